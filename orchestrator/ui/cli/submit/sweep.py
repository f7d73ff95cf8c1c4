from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from click import Choice

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import (
    RESULTS,
    Changes,
    Delegated,
    Grid,
    GridOption,
    Json,
    Results,
    amount,
    grid_file,
    print_json,
    print_warnings,
    refuse_untrainable,
)

if TYPE_CHECKING:
    from orchestrator.control.flow import Flow
    from orchestrator.control.flow.leaving_runs import LeavingRuns
    from orchestrator.core.types import Sweep


def sweep(
    grid: Grid = None,
    grid_option: GridOption = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="TARGET,...", help="Where to run it; several share it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print exactly what would be submitted; write nothing.")
    ] = False,
    detach: Annotated[
        bool | None,
        typer.Option(
            "--detach/--follow",
            help="Submit and leave, or stay to the end. By default: leave a cluster, stay here.",
            show_default=False,
        ),
    ] = None,
    changes: Changes = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, metavar="N", help="Runs at once; by default as cores allow."),
    ] = None,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary", help="One run of each configuration first; the rest when it has trained something."
        ),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0,
            metavar="USD",
            help="What all of the sweep may cost; inf: no limit any more.",
            callback=amount("US dollars, or inf for no limit", "--budget 20", unlimited=True),
        ),
    ] = None,
    reuse: Annotated[
        str,
        typer.Option(
            "--reuse",
            click_type=Choice(["exact", "any", "none"]),
            help="Take runs that a library has: trained alike, by any code, or none.",
        ),
    ] = "exact",
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Go on with a sweep of this name that another tree submitted there."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask where finished runs leave a changed grid.")
    ] = False,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Further options of sbatch.")
    ] = None,
    delegated: Delegated = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Run everything in a grid that is not done yet.

    The same command again submits only what is missing: finished runs stay
    finished, killed runs go on from their last checkpoint, and live workers
    are adopted.

    [bold]Examples[/bold]

      orchestrate sweep sweeps/speed.yaml
      orchestrate sweep sweeps/speed.yaml --dry-run
      orchestrate sweep sweeps/speed.yaml --detach --slots 1
      orchestrate sweep sweeps/speed.yaml --set name=try --set seed=0
      orchestrate sweep sweeps/speed.yaml --on gpu -- --reservation=course
      orchestrate sweep sweeps/speed.yaml --on l4 --budget 20
      orchestrate sweep sweeps/speed.yaml --on local,gpu
    """
    from orchestrator.ui.terminal.working import working

    first, further = _parted(grid, options or [])
    file = Path("stdin") if delegated else grid_file(first, grid_option, "sweep")
    with working(f"reading {file}"):
        from orchestrator.config.sweep import load_sweep
        from orchestrator.control.flow import assigned_flow, flow_of
        from orchestrator.control.flow.leaving_runs import leaving_runs
        from orchestrator.planning.plan import ReuseOption, SubmitOptions
        from orchestrator.rundir import SweepDir
        from orchestrator.ui.cli.submit.work_through import work_through

        submit_options = SubmitOptions(slots, canary, budget, ReuseOption(reuse))
        if delegated:
            flow = assigned_flow(sys.stdin.buffer.read(), results, submit_options, further, dry=dry_run)
        else:
            grown = load_sweep(file, results, changes or ())
            sweep_dir = SweepDir(results, grown.name)
            flow = flow_of(grown, sweep_dir, submit_options, on, further, adopt=adopt)
        gone = None if delegated else leaving_runs(flow.sweep, flow.sweep_dir)
        planned = flow.rehearse() if dry_run else None
    if gone is not None:
        _consent(gone, yes=yes or dry_run)
    if planned is None:
        raise typer.Exit(
            _submit_only(flow) if delegated else work_through(flow, detach=detach, as_json=as_json)
        )
    if delegated:
        print_json(planned)
    else:
        _print_plan(planned, flow.sweep, as_json)


def _consent(gone: LeavingRuns, *, yes: bool) -> None:
    """Warn of finished runs that leave the grid; ask at a terminal. Raises an error unless that is wanted."""
    if yes or sys.stdin.isatty():
        print_warnings([f"{gone}\n  {gone.hint}"])
    if not yes and not (sys.stdin.isatty() and typer.confirm("go on without them?", err=True)):
        raise OrchestrateError(f"{gone}", hint=f"{gone.hint}; --yes goes on without them")


def _submit_only(flow: Flow) -> int:
    """Submit for another tree, which follows its runs itself; print JSON and return the exit code."""
    from orchestrator.core.records import plain

    started = flow.start(
        lambda text: typer.echo(text, err=True), lambda text: print_warnings([text]), detach=True
    )
    print_json({"started": plain(started)})
    return int(bool(started.problems))


def _parted(first: str | None, others: list[str]) -> tuple[str | None, list[str]]:
    """Return the argument that names a grid, if there is one, and the options of sbatch after ``--``."""
    if first is not None and first.startswith("-"):
        return None, [first, *others]
    if others and not others[0].startswith("-"):
        raise OrchestrateError(
            f"found {others[0]!r} after the grid, expected options of sbatch",
            hint="as in: orchestrate sweep GRID -- --reservation=course; one sweep is of one grid",
        )
    return first, others


def _print_plan(planned: Mapping[str, Any], sweep: Sweep, as_json: bool) -> None:
    if as_json:
        jobs = [{**job, "script": array["script"]} for array in planned["arrays"] for job in array["jobs"]]
        about = {name: planned.get(name, []) for name in ("skipped", "reused", "notes")}
        print_json({"sweep": sweep.name, "jobs": jobs, **about})
    else:
        _show_plan(planned, sweep)
    refuse_untrainable(len(planned["skipped"]), len(sweep.runs), planned["target"])


def _show_plan(planned: Mapping[str, Any], sweep: Sweep) -> None:
    print_warnings(planned.get("notes", []))
    points = {run.run_id: run.point for run in sweep.runs}
    for array in planned["arrays"]:
        target = array.get("target", planned["target"])
        room = array["jobs"][0].get("room")
        slots = array["slots"]
        at_once = (
            f"up to {slots} at once on the {room[0]} cores of each" if room else f"{slots} at once in each"
        )
        typer.echo(
            f"{array['token']} on {target}: {count(len(array['jobs']), 'job')}, "
            f"{count(len(array['run_ids']), 'run')}, {at_once}"
        )
        typer.echo(array["script"])
        _echo_runs({run_id: points[run_id] for run_id in array["run_ids"]})
    for line in planned.get("reused", []):
        typer.echo(line)
    for run_id, why in planned["skipped"].items():
        typer.echo(f"skipped {run_id}: {why}")
    if planned["waiting"]:
        later = "to be submitted later, when there is room or the first runs have trained"
        typer.echo(f"{count(planned['waiting'], 'run')} {later}")
    if not planned["arrays"]:
        typer.echo("nothing to submit")


def _echo_runs(points: dict[str, dict[str, object]]) -> None:
    from orchestrator.core.labels import run_labels

    for run_id, label in zip(points, run_labels(list(points.values())), strict=True):
        typer.echo(f"  {run_id}  {label}")

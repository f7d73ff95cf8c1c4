from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import RESULTS, Json, Results, print_json, print_problems

if TYPE_CHECKING:
    from orchestrator.backends.base import Backend
    from orchestrator.control import Submitted
    from orchestrator.plan import Capacity
    from orchestrator.rundir import SweepDir
    from orchestrator.state import Survey
    from orchestrator.types import Job, Plan, Sweep


def sweep(
    grid: Annotated[Path, typer.Option("--grid", metavar="GRID", help="The grid file.")],
    on: Annotated[str | None, typer.Option("--on", metavar="TARGET", help="Where to run it.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print exactly what would be submitted; write nothing.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and leave; `orchestrate status --watch` follows.")
    ] = False,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, metavar="N", help="Runs at once; by default as cores allow."),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Run everything in a grid that is not done yet, and follow it.

    The same command again does just what is missing: finished runs stay
    finished, killed ones go on from their last checkpoint, and workers that
    are still alive are adopted.

    [bold]Examples[/bold]

      orchestrate sweep --grid sweeps/speed.yaml
      orchestrate sweep --grid sweeps/speed.yaml --dry-run
      orchestrate sweep --grid sweeps/speed.yaml --detach --slots 1
    """
    from orchestrator import control
    from orchestrator.rundir import SweepDir
    from orchestrator.sweep import load_sweep
    from orchestrator.targets import target_of

    loaded = load_sweep(grid)
    if dry_run:
        _, capacity = target_of(loaded, on)
        prospect = control.plan_sweep(loaded, SweepDir(results, loaded.name), capacity, slots=slots)
        _print_plan(prospect.plan, results, as_json)
    else:
        work_through(loaded, results, on=on, detach=detach, slots=slots, as_json=as_json)


def work_through(
    loaded: Sweep, results: Path, *, on: str | None, detach: bool, slots: int | None, as_json: bool
) -> None:
    """Submit what is missing, follow it unless detached, and leave with the exit code the runs deserve."""
    from orchestrator import control
    from orchestrator.reading import no_garbage_collection
    from orchestrator.rundir import SweepDir
    from orchestrator.targets import target_of
    from orchestrator.types import RunState

    backend, capacity = target_of(loaded, on)
    sweep_dir = SweepDir(results, loaded.name)
    with no_garbage_collection():
        prospect = control.plan_sweep(loaded, sweep_dir, capacity, slots=slots)
    plan, seen = prospect.plan, prospect.seen
    if control.is_settled(loaded, sweep_dir, prospect):
        jobs: list[Job] = []
        if not as_json:
            typer.echo(f"{loaded.name}: nothing new to submit ({sweep_dir.path}/)")
    else:
        if plan.jobs:
            _check(loaded, plan)
        submitted = control.submit_sweep(loaded, sweep_dir, backend, capacity, slots=slots)
        plan, jobs = submitted.plan, list(submitted.plan.jobs)
        if not as_json:
            _announce(sweep_dir, submitted)
        if not detach:
            _follow(loaded, sweep_dir, backend, capacity, slots, as_json)
        seen = control.look(sweep_dir, backend, control.rows_of(loaded, sweep_dir))
    seen = control.with_stale(seen, sweep_dir)
    if as_json:
        statuses = [seen.statuses[row.run_id].to_json() for row in seen.rows if row.in_grid]
        print_json({"sweep": loaded.name, "jobs": [job.to_json() for job in jobs], "runs": statuses})
    else:
        _conclude(sweep_dir, seen, plan, detach)
    left = (seen.left or seen.unknown) and not detach
    if seen.counts().get(RunState.FAILED) or plan.problems or left:
        raise typer.Exit(1)


def _print_plan(plan: Plan, results: Path, as_json: bool) -> None:
    from orchestrator.render import local_script

    scripts = {job.token: local_script(results, job) for job in plan.jobs}
    if as_json:
        jobs = [{**job.to_json(), "script": scripts[job.token]} for job in plan.jobs]
        print_json({"sweep": plan.sweep.name, "jobs": jobs, "skipped": dict(plan.skipped)})
        return
    for job in plan.jobs:
        typer.echo(f"job {job.token} on {job.target}: {len(job.run_ids)} runs, {job.slots} at once")
        typer.echo(f"  {scripts[job.token]}")
        points = {run.run_id: run.point for run in plan.sweep.runs}
        _echo_runs({run_id: points[run_id] for run_id in job.run_ids})
    for run_id, why in plan.skipped.items():
        typer.echo(f"skipped {run_id}: {why}")
    if not plan.jobs:
        typer.echo("nothing to submit")


def _echo_runs(points: dict[str, dict[str, object]]) -> None:
    from orchestrator.labels import run_labels

    for run_id, label in zip(points, run_labels(list(points.values())), strict=True):
        typer.echo(f"  {run_id}  {label}")


def _check(loaded: Sweep, plan: Plan) -> None:
    """Refuse the sweep before anything is written if a run that is to be submitted cannot work."""
    from dataclasses import replace

    from orchestrator.check import check_sweep

    todo = set(plan.run_ids)
    runs = tuple(run for run in loaded.runs if run.run_id in todo)
    report = check_sweep(replace(loaded, runs=runs))
    if report.problems:
        print_problems(report.problems)
        raise typer.Exit(2)


def _announce(sweep_dir: SweepDir, submitted: Submitted) -> None:
    plan = submitted.plan
    counted = f"{len(plan.run_ids)} runs to do" if plan.jobs else "nothing new to submit"
    adopted = f", {len(submitted.adopted)} live worker(s) adopted" if submitted.adopted else ""
    typer.echo(f"{sweep_dir.name}: {counted}{adopted} ({sweep_dir.path}/)")


def _follow(
    loaded: Sweep, sweep_dir: SweepDir, backend: Backend, capacity: Capacity, slots: int | None, quiet: bool
) -> None:
    """Show progress to the end. Ctrl-C lets the workers save and leave, then says how to go on."""
    from orchestrator.cli import view
    from orchestrator.follow import follow, stop

    try:
        with view.Screen(sweep_dir.name, quiet) as screen:
            for seen in follow(loaded, sweep_dir, backend, capacity, slots=slots):
                screen.show(seen)
    except KeyboardInterrupt:
        typer.echo("stopping: runs save a checkpoint and leave (Ctrl-C again to leave them to it)", err=True)
        try:
            left = stop(sweep_dir, backend)
        except KeyboardInterrupt:
            left = False
        said = (
            "stopped" if left else f"not all have left yet (orchestrate status {sweep_dir.name} shows them)"
        )
        typer.echo(f"{said}; go on with: orchestrate sweep --grid {loaded.source}", err=True)
        raise typer.Exit(130) from None


def _conclude(sweep_dir: SweepDir, seen: Survey, plan: Plan, detach: bool) -> None:
    from orchestrator.cli import view
    from orchestrator.follow import why_left
    from orchestrator.types import RunState

    console = view.console()
    if detach and seen.active:
        typer.echo(f"detached; follow with: orchestrate status {sweep_dir.name} --watch")
        return
    console.print(view.sweep_view(sweep_dir.name, seen, view.ROWS))
    for run_id, problem in plan.problems.items():
        typer.echo(f"{run_id}: {problem}", err=True)
    counts = seen.counts()
    if seen.left:
        why = why_left(sweep_dir, seen) or "their worker died again and again"
        typer.echo(f"{len(seen.left)} runs are left ({why}); the same command goes on with them", err=True)
    if counts.get(RunState.FAILED):
        typer.echo(f"next: orchestrate logs {sweep_dir.name} RUN, then orchestrate retry {sweep_dir.name}")
    elif counts.get(RunState.STALE):
        typer.echo(f"next: orchestrate retry {sweep_dir.name} trains the stale runs anew")
    elif counts.get(RunState.DONE):
        typer.echo(f"next: orchestrate collect {sweep_dir.name} && orchestrate report {sweep_dir.name}")

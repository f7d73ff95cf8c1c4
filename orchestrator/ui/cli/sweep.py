from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.ui.cli.common import (
    RESULTS,
    Json,
    Results,
    amount,
    count,
    print_json,
    print_kept,
    print_problems,
    print_warnings,
    refuse_untrainable,
    waiting,
)

if TYPE_CHECKING:
    from orchestrator.backends.base import Backend
    from orchestrator.control.submit import SubmissionReport, SubmitOptions
    from orchestrator.core.types import Job, Plan, Sweep
    from orchestrator.rundir import SweepDir
    from orchestrator.status.survey import Survey


def sweep(
    grid: Annotated[Path, typer.Option("--grid", metavar="GRID", help="The grid file.")],
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
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Go on with a sweep of this name that somebody else submitted there."),
    ] = False,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Further options of sbatch.")
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
      orchestrate sweep --grid sweeps/speed.yaml --on gpu -- --reservation=course
      orchestrate sweep --grid sweeps/speed.yaml --on l4 --budget 20
      orchestrate sweep --grid sweeps/speed.yaml --on local,gpu
    """
    from orchestrator.backends.registry import behind_ssh, target_of
    from orchestrator.config.sweep import load_sweep
    from orchestrator.control import submit
    from orchestrator.rundir import SweepDir

    loaded, wish = load_sweep(grid), submit.SubmitOptions(slots, canary, budget)
    sweep_dir = SweepDir(results, loaded.name)
    names = tuple(on.split(",")) if on is not None else loaded.targets
    if len(names) > 1:
        from orchestrator.control.multi_target import SharedSweep, parties_of, rehearse
        from orchestrator.ui.cli.sweep_multi_target import several

        matter = SharedSweep(loaded, sweep_dir, wish, adopt)
        parties = parties_of(matter, names, options or (), asked=on is not None)
        if dry_run:
            _print_plan(rehearse(matter, parties, detach=bool(detach)), loaded, as_json)
        else:
            several(matter, parties, detach=bool(detach), as_json=as_json)
        return
    if profile := behind_ssh(loaded, on):
        from orchestrator.control.remote import delegate
        from orchestrator.ui.cli.sweep_over_ssh import send

        if dry_run:
            _print_plan(delegate.rehearse(loaded, sweep_dir, profile, wish, options or ()), loaded, as_json)
        else:
            stay = detach is False
            send(loaded, results, profile, wish, options or [], detach=not stay, as_json=as_json, adopt=adopt)
        return
    backend = target_of(loaded, on, options or ())
    kept = _take_back(loaded, sweep_dir) if on is not None and not dry_run else {}
    if dry_run:
        from orchestrator.control.dry_run import rehearse as rehearse_here

        _print_plan(rehearse_here(loaded, sweep_dir, backend, wish), loaded, as_json)
    else:
        work_through(loaded, results, backend, wish, detach=detach, as_json=as_json)
    if kept:
        raise typer.Exit(1)


def _take_back(loaded: Sweep, sweep_dir: SweepDir) -> Mapping[str, str]:
    """Runs that clusters behind ssh were given and do not work on are for the target that was named now."""
    from orchestrator.control.remote.delegate import take_back

    kept = take_back(loaded, sweep_dir)
    print_kept(kept)
    return kept


def work_through(
    loaded: Sweep,
    results: Path,
    backend: Backend,
    wish: SubmitOptions,
    *,
    detach: bool | None,
    as_json: bool,
) -> None:
    """Submit what is missing, follow it unless detached, and leave with the exit code the runs deserve."""
    from orchestrator.config.check import check_plan
    from orchestrator.control import submit
    from orchestrator.control.cloud_instances import costs
    from orchestrator.control.dry_run import said_before
    from orchestrator.control.fleet import present
    from orchestrator.control.follow import bring_home, exit_code_of
    from orchestrator.control.poll import leave_queue, poll_sweep
    from orchestrator.control.staleness import with_stale
    from orchestrator.core.bulk_read import no_garbage_collection
    from orchestrator.core.types import RunState
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.cli.money import settle_up

    detach = backend.leaves if detach is None else detach
    sweep_dir = SweepDir(results, loaded.name)
    bring_home(sweep_dir, not_within=0, orphans=True)
    with no_garbage_collection():
        prospect = submit.plan_sweep(loaded, sweep_dir, backend.capacity(ask=False), wish)
    plan, seen = prospect.plan, prospect.seen
    if submit.is_settled(loaded, sweep_dir, prospect):
        jobs: list[Job] = []
        notes, seen = leave_queue(sweep_dir, seen), with_stale(seen, sweep_dir)
        if not as_json:
            _echo_notes(f"{loaded.name}: nothing new to submit ({sweep_dir.path}/)", notes)
        to_go = bool(not detach and costs(sweep_dir))  # instances, though nothing is left to do
        _follow(loaded, sweep_dir, backend, submit.AS_USUAL, to_the_end=to_go, quiet=as_json)
    else:
        report = check_plan(plan)
        if report.problems:
            print_problems(report.problems)
            raise typer.Exit(2)
        print_warnings((*report.warnings, *said_before(backend, plan)))
        began = time.time()
        submitted = submit.submit_sweep(loaded, sweep_dir, backend, wish)
        plan, jobs = submitted.plan, list(submitted.plan.jobs)
        if not as_json:
            _announce(sweep_dir, submitted)
        if wish.canary or not detach:
            _follow(loaded, sweep_dir, backend, wish, to_the_end=not detach, quiet=as_json)
        seen = poll_sweep(sweep_dir, submit.rows_of(loaded, sweep_dir))
        seen = present(sweep_dir, with_stale(seen, sweep_dir))
        if not detach:
            settle_up(sweep_dir, began, quiet=as_json)
    if as_json:
        print_warnings(seen.remarks)
        statuses = [seen.statuses[row.run_id].to_json() for row in seen.rows if row.in_grid]
        print_json({"sweep": loaded.name, "jobs": [job.to_json() for job in jobs], "runs": statuses})
    else:
        _conclude(sweep_dir, seen, plan, wish, detach)
    left = (seen.left or seen.unknown) and not detach
    if left and (code := exit_code_of(sweep_dir, seen)):
        raise typer.Exit(code)
    counts = seen.counts()
    if counts.get(RunState.FAILED) or plan.problems or left:
        raise typer.Exit(1)
    refuse_untrainable(counts.get(RunState.SKIPPED, 0), sum(counts.values()), plan.target)


def _print_plan(planned: Mapping[str, Any], sweep: Sweep, as_json: bool) -> None:
    if as_json:
        jobs = [{**job, "script": array["script"]} for array in planned["arrays"] for job in array["jobs"]]
        about = {"skipped": planned["skipped"], "notes": planned.get("notes", [])}
        print_json({"sweep": sweep.name, "jobs": jobs, **about})
    else:
        _show_plan(planned, sweep)
    refuse_untrainable(len(planned["skipped"]), len(sweep.runs), planned["target"])


def _show_plan(planned: Mapping[str, Any], sweep: Sweep) -> None:
    print_warnings(planned.get("notes", []))
    points = {run.run_id: run.point for run in sweep.runs}
    for array in planned["arrays"]:
        target = array.get("target", planned["target"])
        typer.echo(
            f"{array['token']} on {target}: {count(len(array['jobs']), 'job')}, "
            f"{count(len(array['run_ids']), 'run')}, {array['slots']} at once in each"
        )
        typer.echo(array["script"])
        _echo_runs({run_id: points[run_id] for run_id in array["run_ids"]})
    for run_id, why in planned["skipped"].items():
        typer.echo(f"skipped {run_id}: {why}")
    if planned["waiting"]:
        typer.echo(f"{count(planned['waiting'], 'run')} to be submitted when there is room, or cause")
    if not planned["arrays"]:
        typer.echo("nothing to submit")


def _arrays(submitted: SubmissionReport) -> list[str]:
    """What the scheduler calls the arrays that were submitted."""
    lines = []
    for array in submitted.plan.arrays:
        known = submitted.job_ids.get(array.jobs[0].token, "")
        scheduler, _, job_id = known.partition(":")
        if len(array.jobs) > 1 or "." in array.jobs[0].token:
            what = f"{scheduler} array {job_id.partition('_')[0]}"
            lines.append(
                f"{what}: {count(len(array.jobs), 'job')}, {array.jobs[0].slots} runs at once in each"
            )
        elif scheduler == "skypilot":
            (job,) = array.jobs
            name, runs = job_id.partition("/")[0], count(len(job.run_ids), "run")
            lines.append(f"instance {name}: {runs}, {job.slots} at once")
    return lines


def _echo_notes(text: str, notes: Iterable[str]) -> None:
    typer.echo("\n  ".join([text, *notes]))


def _echo_runs(points: dict[str, dict[str, object]]) -> None:
    from orchestrator.core.labels import run_labels

    for run_id, label in zip(points, run_labels(list(points.values())), strict=True):
        typer.echo(f"  {run_id}  {label}")


def _announce(sweep_dir: SweepDir, submitted: SubmissionReport) -> None:
    plan = submitted.plan
    counted = f"{count(len(plan.run_ids), 'run')} to do" if plan.jobs else "nothing new to submit"
    adopted = f", {len(submitted.adopted)} live worker(s) adopted" if submitted.adopted else ""
    typer.echo(f"{sweep_dir.name}: {counted}{adopted} ({sweep_dir.path}/)")
    for line in _arrays(submitted):
        typer.echo(f"  {line}")
    if plan.waiting:
        jobs, no_feed = bool(plan.jobs), plan.no_feed
        typer.echo(f"  {waiting(len(plan.waiting), submitted=jobs, no_feed=no_feed, follow=True)}")
    for note in submitted.notes:
        typer.echo(f"  {note}")


def _follow(
    loaded: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    wish: SubmitOptions,
    *,
    to_the_end: bool,
    quiet: bool,
) -> None:
    """Show progress. Ctrl-C lets workers here save and leave, and leaves those of a cluster alone."""
    from orchestrator.control.follow import follow, follow_canaries, stop
    from orchestrator.ui.cli import sweep_table

    try:
        with sweep_table.SweepScreen(sweep_dir.name, quiet) as screen:
            if wish.canary:
                for seen in follow_canaries(loaded, sweep_dir, backend, wish):
                    screen.show(seen)
            if to_the_end:
                for seen in follow(loaded, sweep_dir, backend, wish, screen.note):
                    screen.show(seen)
    except KeyboardInterrupt:
        if backend.queues:
            typer.echo(f"its jobs go on; follow with: orchestrate status {sweep_dir.name} --watch", err=True)
            raise typer.Exit(130) from None
        typer.echo("stopping: runs save a checkpoint and leave (Ctrl-C again to leave them to it)", err=True)
        try:
            left = stop(sweep_dir)
        except KeyboardInterrupt:
            left = False
        said = (
            "stopped" if left else f"not all have left yet (orchestrate status {sweep_dir.name} shows them)"
        )
        typer.echo(f"{said}; go on with: orchestrate sweep --grid {loaded.source}", err=True)
        raise typer.Exit(130) from None


def _conclude(sweep_dir: SweepDir, seen: Survey, plan: Plan, wish: SubmitOptions, detach: bool) -> None:
    from orchestrator.control.cloud_instances import costs
    from orchestrator.control.follow import out_of_budget, why_left
    from orchestrator.core.types import RunState
    from orchestrator.ui.cli import sweep_table

    console = sweep_table.console()
    up = costs(sweep_dir)
    if detach and seen.active:
        print_warnings(seen.remarks)
        typer.echo(f"detached; follow with: orchestrate status {sweep_dir.name} --watch")
        if up:
            typer.echo(
                "it fetches results, too: an instance that is done waits for that, as long as the profile's "
                "`hold` says, and then goes with what was not fetched, unless it has a `store`"
            )
        return
    for line in up:
        typer.echo(f"{line}; the same command again sees it off, and `sky down` ends it at once", err=True)
    console.print(sweep_table.sweep_view(sweep_dir.name, seen, sweep_table.ROWS))
    for run_id, problem in plan.problems.items():
        typer.echo(f"{run_id}: {problem}", err=True)
    counts = seen.counts()
    if seen.left and wish.canary:
        held = "no run of their configuration has trained anything yet"
        typer.echo(f"{count(len(seen.left), 'run')} held back ({held}); the same command goes on", err=True)
    elif seen.left:
        why = why_left(sweep_dir, seen) or (
            "the queue takes no more jobs of yours now"
            if plan.waiting
            else "their worker died again and again"
        )
        how = " and a larger --budget" if out_of_budget(sweep_dir, seen) else ""
        typer.echo(
            f"{count(len(seen.left), 'run')} left ({why}); the same command{how} goes on with them", err=True
        )
    if counts.get(RunState.FAILED):
        typer.echo(f"next: orchestrate logs {sweep_dir.name} RUN, then orchestrate retry {sweep_dir.name}")
    elif counts.get(RunState.STALE):
        typer.echo(f"next: orchestrate retry {sweep_dir.name} trains the stale runs anew")
    elif counts.get(RunState.DONE) and not seen.left:
        typer.echo(f"next: orchestrate collect {sweep_dir.name} && orchestrate report {sweep_dir.name}")

"""Work through a sweep at a terminal: announce, follow, conclude, exit with a code that tells the outcome."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import typer

from orchestrator.core.formatting import count
from orchestrator.ui.cli.common import print_json, print_kept, print_warnings, refuse_untrainable

if TYPE_CHECKING:
    from orchestrator.control.flow import Flow, Started
    from orchestrator.control.follow import WhyLeft
    from orchestrator.rundir import SweepDir
    from orchestrator.status.survey import Survey


def work_through(flow: Flow, *, detach: bool | None, as_json: bool) -> int:
    """Submit what is missing and follow it; return the exit code.

    With ``detach`` only submit, as by default to a queue.
    """
    from orchestrator.core.records import plain
    from orchestrator.core.types import RunState
    from orchestrator.ui.cli.watch import sweep_table
    from orchestrator.ui.terminal.working import working

    detach = flow.leaves if detach is None else detach
    began, name = time.time(), flow.sweep_dir.name
    screen = sweep_table.SweepScreen(name, quiet=as_json)
    tell = partial(typer.echo, err=True) if as_json else screen.note
    with working(f"{name}: looking at what is done") as above:
        warn = above(lambda text: print_warnings([text]))
        started = flow.start(above(tell), warn, detach=detach)
    if not as_json:
        _announce(name, started)
    print_kept(started.kept)
    if not started.over:
        try:
            with screen:
                for seen in flow.follow(tell, detach=detach):
                    screen.show(seen)
        except KeyboardInterrupt:
            _leave(flow)
    seen = flow.survey()
    left = flow.why_left(seen)
    if not detach and not started.over:
        _print_costs(flow.sweep_dir, began, quiet=as_json)
    if as_json:
        print_warnings(seen.remarks)
        rows = [row for row in seen.rows if row.in_grid]
        runs = [{**flow.fact_of(seen, row.run_id), "point": row.point} for row in rows]
        print_json({"sweep": name, "started": plain(started), **flow.facts(), "runs": runs})
    else:
        _conclude(flow, started, seen, left)
    if code := flow.exit_code(seen, left):
        return code
    counts = seen.counts()
    refuse_untrainable(counts.get(RunState.SKIPPED, 0), sum(counts.values()), flow.target)
    return 0


def _announce(name: str, started: Started) -> None:
    counted = f"{count(started.to_do, 'run')} to do" if started.to_do else "nothing new to submit"
    where = f" on {started.where}" if started.where else ""
    numbers = ((started.adopted, "running job"), (started.queued, "queued job"))
    jobs = " and ".join(count(number, what) for number, what in numbers if number)
    adopted = f", {jobs} adopted" if jobs else ""
    typer.echo("\n  ".join([f"{name}: {counted}{where}{adopted} ({started.path})", *started.lines]))


def _leave(flow: Flow) -> None:
    """After Ctrl-C: stop the runs on this machine; those of a queue go on."""
    from orchestrator.control.cloud.exchange import follow_command

    name = flow.sweep_dir.name
    if not flow.stops:
        typer.echo(f"its jobs go on; follow with: {follow_command(flow.sweep_dir)}", err=True)
        raise typer.Exit(130)
    again = "Ctrl-C again: quit now, the runs continue"
    typer.echo(f"stopping: {flow.stops} save a checkpoint and leave{flow.stays} ({again})", err=True)
    try:
        left = flow.stop()
    except KeyboardInterrupt:
        left = False
    said = "stopped" if left else f"not all have left yet (orchestrate status {name} shows them)"
    typer.echo(f"{said}; go on with: {flow.command}", err=True)
    raise typer.Exit(130)


def _conclude(flow: Flow, started: Started, seen: Survey, left: WhyLeft) -> None:
    from orchestrator.control.cloud.exchange import follow_command
    from orchestrator.core.types import RunState
    from orchestrator.planning.without_return import of_survey
    from orchestrator.ui.cli.watch import sweep_table
    from orchestrator.ui.terminal.screen import show

    name, up = flow.sweep_dir.name, flow.costs()
    if flow.detach and seen.active:
        print_warnings(seen.remarks)
        typer.echo(f"detached; follow with: {(command := follow_command(flow.sweep_dir))}")
        if command.endswith("--exchange"):
            typer.echo(
                "--exchange fetches results: an instance that is done waits for that, as long as the "
                "profile's `hold` says, and then goes with what was not fetched, unless it has a `store`"
            )
        return
    for line in up:
        typer.echo(f"{line}; the same command again sees it off, and `sky down` ends it at once", err=True)
    show(sweep_table.sweep_view(name, seen, sweep_table.ROWS))
    for run_id, problem in started.problems.items():
        typer.echo(f"{run_id}: {problem}", err=True)
    counts = seen.counts()
    if lacking := of_survey(flow.sweep_dir, seen.statuses):
        print_warnings([lacking])
    if seen.left:
        why = f" ({left.why})" if left.why else ""
        more = " and a larger --budget" if left.out_of_budget else ""
        runs = f"{count(len(seen.left), 'run')} {'held back' if flow.options.canary else 'left'}{why}"
        typer.echo(f"{runs}; the same command{more} goes on with them", err=True)
    if counts.get(RunState.FAILED):
        failed = seen.first(RunState.FAILED)
        typer.echo(f"next: orchestrate logs {name} {failed[:8]}, then orchestrate retry {name}")
    elif counts.get(RunState.STALE):
        stale = seen.first(RunState.STALE)[:8]
        typer.echo(f"next: orchestrate status {name} --why {stale} shows why runs are stale")
    elif counts.get(RunState.DONE) and not seen.left:
        typer.echo(f"next: {flow.next_step}")


def _print_costs(sweep_dir: SweepDir, since: float, *, quiet: bool) -> None:
    """Record the runs' speeds; print predicted and actual cost of submissions ``since`` (epoch seconds)."""
    from orchestrator.planning.predictions import bills, lines
    from orchestrator.planning.throughput.record import take_up

    take_up(sweep_dir)
    if not quiet:
        for line in lines([bill for bill in bills(sweep_dir) if bill.time >= since]):
            typer.echo(line)

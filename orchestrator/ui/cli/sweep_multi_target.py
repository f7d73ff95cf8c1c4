"""`sweep` over several targets: what is dealt to whom, followed, or submitted all at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from orchestrator.core.errors import BudgetError, OrchestrateError
from orchestrator.ui.cli.common import (
    count,
    print_json,
    print_kept,
    print_problems,
    print_warnings,
    refuse_untrainable,
)

if TYPE_CHECKING:
    from orchestrator.control.multi_target import SharedSweep, TargetHandle, TargetScheduler
    from orchestrator.status.survey import Survey
    from orchestrator.ui.cli import sweep_table


def several(matter: SharedSweep, parties: Sequence[TargetHandle], *, detach: bool, as_json: bool) -> None:
    """Work through a sweep that these targets share, and leave with the exit code that its runs deserve."""
    from orchestrator.control.follow import exit_code_of
    from orchestrator.control.multi_target import TargetScheduler, check, submit_all, take_from_others
    from orchestrator.core.types import RunState
    from orchestrator.ui.cli import sweep_table
    from orchestrator.ui.cli.money import settle_up

    if detach and matter.wish.canary:
        raise OrchestrateError(
            "found --canary with --detach: over several targets somebody has to stay and see what trains",
            hint="leave one of them away",
        )
    began, kept = time.time(), take_from_others(matter, parties)
    print_kept(kept)
    with sweep_table.SweepScreen(matter.sweep.name, quiet=as_json) as screen:
        tell = partial(typer.echo, err=True) if as_json else screen.note
        table = TargetScheduler(matter, parties, tell)
        if (report := check(matter, parties)) is not None:
            if report.problems:
                print_problems(report.problems)
                raise typer.Exit(2)
            print_warnings(report.warnings)
        if not as_json:
            _announce(matter, table)
        if detach:
            submit_all(matter, parties, tell)
        else:
            _follow(matter, parties, table, screen)
    seen = table.look().seen
    if as_json:
        rows = [row.run_id for row in seen.rows if row.in_grid]
        runs = [{**seen.statuses[one].to_json(), "target": seen.target(one)} for one in rows]
        print_json({"sweep": matter.sweep.name, "targets": [party.name for party in parties], "runs": runs})
    else:
        _conclude(matter, seen, detach=detach)
        if not detach:
            settle_up(matter.sweep_dir, began, quiet=False)
    left = (seen.left or seen.unknown) and not detach
    if seen.left and (
        code := BudgetError.exit_code if table.refused else exit_code_of(matter.sweep_dir, seen)
    ):
        raise typer.Exit(code)
    counts = seen.counts()
    if counts.get(RunState.FAILED) or left or kept:
        raise typer.Exit(1)
    names = ", ".join(party.name for party in parties)
    refuse_untrainable(counts.get(RunState.SKIPPED, 0), sum(counts.values()), names)


def _announce(matter: SharedSweep, table: TargetScheduler) -> None:
    sight = table.look()
    todo, live = len(table.todo(sight)), len(sight.seen.live)
    counted = f"{count(todo, 'run')} to do" if todo else "nothing new to submit"
    adopted = f", {live} live worker(s) adopted" if live else ""
    seats = ", ".join(f"{seat.name} ({seat.places} at once)" for seat in table.seats(sight))
    typer.echo(f"{matter.sweep.name}: {counted} on {seats}{adopted} ({matter.sweep_dir.path}/)")


def _follow(
    matter: SharedSweep,
    parties: Sequence[TargetHandle],
    table: TargetScheduler,
    screen: sweep_table.SweepScreen,
) -> None:
    """Show progress. Ctrl-C lets workers here save and leave, and leaves those elsewhere alone."""
    from orchestrator.control.multi_target import stop_here

    try:
        for seen in table.follow():
            screen.show(seen)
    except KeyboardInterrupt:
        typer.echo(
            "stopping: runs on this machine save a checkpoint and leave, jobs elsewhere go on", err=True
        )
        try:
            left = stop_here(matter, parties)
        except KeyboardInterrupt:
            left = False
        name = matter.sweep.name
        said = "stopped" if left else f"not all have left yet (orchestrate status {name} shows them)"
        typer.echo(f"{said}; the same command goes on with it", err=True)
        raise typer.Exit(130) from None


def _conclude(matter: SharedSweep, seen: Survey, *, detach: bool) -> None:
    from orchestrator.control.follow import out_of_budget, why_left
    from orchestrator.core.types import RunState
    from orchestrator.ui.cli import sweep_table

    name, counts = matter.sweep.name, seen.counts()
    if detach and seen.active:
        typer.echo(f"detached; follow with: orchestrate status {name} --watch")
        return
    sweep_table.console().print(sweep_table.sweep_view(name, seen, sweep_table.ROWS))
    if seen.left:
        how = " and a larger --budget" if out_of_budget(matter.sweep_dir, seen) else ""
        why = f" ({said})" if (said := why_left(matter.sweep_dir, seen)) else ""
        typer.echo(
            f"{count(len(seen.left), 'run')} left{why}; the same command{how} goes on with them", err=True
        )
    if counts.get(RunState.FAILED):
        typer.echo(f"next: orchestrate logs {name} RUN, then orchestrate retry {name}")
    elif counts.get(RunState.DONE) and not seen.left:
        typer.echo(f"next: orchestrate collect {name} && orchestrate report {name}")

"""`sweep --on PROFILE` where the profile is reached by ssh: what is sent there, and what it came to."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.ui.cli.common import count, print_json, print_kept, refuse_untrainable, waiting

if TYPE_CHECKING:
    from orchestrator.config.profiles import Profile
    from orchestrator.control.remote.delegate import RemoteSubmission
    from orchestrator.control.submit import SubmitOptions
    from orchestrator.core.types import Sweep
    from orchestrator.rundir import SweepDir
    from orchestrator.status.survey import Survey


def send(
    loaded: Sweep,
    results: Path,
    profile: Profile,
    wish: SubmitOptions,
    options: list[str],
    *,
    detach: bool,
    as_json: bool,
    only: Collection[str] | None = None,
    adopt: bool = False,
) -> None:
    """Submit there what is missing, follow it if asked, and leave with the exit code the runs deserve."""
    from orchestrator.control import fleet
    from orchestrator.control.remote import delegate
    from orchestrator.core.errors import BudgetError, StorageError
    from orchestrator.core.types import Reason, RunState
    from orchestrator.rundir import SweepDir
    from orchestrator.ui.cli import sweep_table

    sweep_dir = SweepDir(results, loaded.name)
    done = delegate.send(loaded, sweep_dir, profile, wish, options, only=only, adopt=adopt)
    if problems := done.answer["problems"]:
        for problem in problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2)
    if not as_json:
        _announce(sweep_dir, done)
    seen = fleet.present(sweep_dir)
    if not detach:
        seen = _follow(sweep_dir, quiet=as_json)
    if as_json:
        runs = [seen.statuses[row.run_id].to_json() for row in seen.rows if row.in_grid]
        print_json({"sweep": loaded.name, "on": done.place.name, "kept": dict(done.kept), "runs": runs})
    elif detach and seen.active:
        typer.echo(f"detached; follow with: orchestrate status {loaded.name} --watch")
    else:
        sweep_table.console().print(sweep_table.sweep_view(loaded.name, seen, sweep_table.ROWS))
        _conclude(loaded.name, profile, seen)
    if not detach and any(seen.statuses[run_id].unpaid for run_id in seen.left):
        raise typer.Exit(BudgetError.exit_code)
    if not detach and any(seen.statuses[run_id].reason == Reason.DISK_FULL.value for run_id in seen.left):
        raise typer.Exit(StorageError.exit_code)
    counts = seen.counts()
    failed = counts.get(RunState.FAILED)
    if failed or done.kept or done.answer.get("cannot") or (not detach and (seen.left or seen.unknown)):
        raise typer.Exit(1)
    refuse_untrainable(counts.get(RunState.SKIPPED, 0), sum(counts.values()), done.place.name)


def _announce(sweep_dir: SweepDir, done: RemoteSubmission) -> None:
    answer, place = done.answer, done.place
    where = f"{place.ssh}:{place.folder}/results/{sweep_dir.name}/"
    if answer["settled"]:
        typer.echo(f"{sweep_dir.name}: nothing new to submit on {place.name} ({where})")
    else:
        todo = f"{count(answer['to_do'], 'run')} to do" if answer["to_do"] else "nothing new to submit"
        adopted = f", {answer['adopted']} live worker(s) adopted" if answer["adopted"] else ""
        typer.echo(f"{sweep_dir.name}: {todo} on {place.name}{adopted} ({where})")
        for array in answer["arrays"]:
            scheduler, _, job_id = (array["id"] or "").partition(":")
            what = f"{scheduler} array {job_id.partition('_')[0]}"
            typer.echo(f"  {what}: {count(array['jobs'], 'job')}, {array['slots']} runs at once in each")
        if answer["waiting"]:
            submitted, no_feed = bool(answer["arrays"]), answer.get("no_feed")
            typer.echo(f"  {waiting(answer['waiting'], submitted=submitted, no_feed=no_feed, follow=False)}")
    for note in (*done.notes, *answer.get("notes", ())):
        typer.echo(f"  {note}")
    print_kept(done.kept)
    for run_id, problem in answer.get("cannot", {}).items():
        typer.echo(f"{run_id}: {problem}", err=True)


def _conclude(name: str, profile: Profile, seen: Survey) -> None:
    from orchestrator.config.profiles import as_typed
    from orchestrator.core.types import RunState

    counts = seen.counts()
    if counts.get(RunState.FAILED):
        typer.echo(f"next: orchestrate logs {name} RUN, then orchestrate retry {name}")
    elif counts.get(RunState.DONE) and not seen.left:
        typer.echo(f"next: orchestrate sync {as_typed(profile)} brings results home")


def _follow(sweep_dir: SweepDir, quiet: bool) -> Survey:
    """Show what the place says until nothing works there any more. Ctrl-C leaves its jobs alone."""
    from orchestrator.control import fleet
    from orchestrator.ui.cli import sweep_table

    try:
        with sweep_table.SweepScreen(sweep_dir.name, quiet) as screen:
            for seen in fleet.watch(sweep_dir):
                screen.show(seen)
        return seen
    except KeyboardInterrupt:
        typer.echo(f"its jobs go on; follow with: orchestrate status {sweep_dir.name} --watch", err=True)
        raise typer.Exit(130) from None

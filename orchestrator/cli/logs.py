from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import RESULTS, Results
from orchestrator.errors import NotFoundError
from orchestrator.rundir import RunDir, SweepDir

_POLL_S = 0.3


def logs(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP")],
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id prefix, or algorithm=mappo,seed=0.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the run ends.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", help="This attempt; by default the newest.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Print what a run has written, the newest attempt's by default.

    [bold]Examples[/bold]

      orchestrate logs speed algorithm=mappo,seed=0
      orchestrate logs speed 3fa9 -f
    """
    from orchestrator.selection import one_run

    sweep_dir = SweepDir.existing(results, sweep)
    row = one_run(sweep_dir.read_index(), run)
    run_dir = sweep_dir.run(row.run_id)
    path = _log_path(run_dir, attempt)
    position = _print_from(path, 0)
    while follow and not _over(run_dir):
        newest = _log_path(run_dir, attempt)
        if newest != path:
            typer.echo(f"--- attempt {newest.parent.name}")
            path, position = newest, 0
        position = _print_from(path, position)
        time.sleep(_POLL_S)
    if follow:
        _print_from(path, position)


def _log_path(run_dir: RunDir, attempt: int | None) -> Path:
    attempts = {one.number: one for one in run_dir.attempts()}
    if not attempts:
        raise NotFoundError(
            f"run {run_dir.run_id} has not begun yet", hint="orchestrate status SWEEP --watch waits for it"
        )
    number = max(attempts) if attempt is None else attempt
    if number not in attempts:
        raise NotFoundError(
            f"run {run_dir.run_id} has no attempt {number} (found: {', '.join(map(str, attempts))})"
        )
    return attempts[number].log


def _print_from(path: Path, position: int) -> int:
    try:
        with open(path, "rb") as file:
            file.seek(position)
            data = file.read()
    except FileNotFoundError:
        return position
    typer.echo(data.decode(errors="replace"), nl=False)
    return position + len(data)


def _over(run_dir: RunDir) -> bool:
    """Nobody works on the run, and nothing says that somebody will."""
    return run_dir.result_path.exists() or run_dir.blocked_by() is None

"""Progress of a sync: a bar with bytes and remaining time in a terminal, elsewhere plain lines."""

from __future__ import annotations

import sys
from typing import Self

import typer

from orchestrator.core.formatting import amount, count, printable
from orchestrator.sync.request import SyncProgress, SyncReport
from orchestrator.ui.cli.progress_lines import ProgressLines

# Seconds between two lines without a terminal.
_BEAT_S = 20.0
# Lines of a kind printed per sweep at most.
_LINES = 20


class SyncScreen(SyncProgress):
    """Progress of a sync, sweep by sweep: a bar in a terminal, elsewhere a line every ``beat`` seconds."""

    def __init__(self, quiet: bool = False, beat: float = _BEAT_S) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from orchestrator.ui.terminal.screen import console

        self._quiet = quiet
        self._live = not quiet and sys.stdout.isatty()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console(),
            disable=not self._live,
            transient=True,
        )
        self._pulse = ProgressLines(beat)

    def __enter__(self) -> Self:
        self._bar.start()
        if not self._live:
            self._pulse.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pulse.stop()
        self._bar.stop()

    def expect(self, sweep: str, files: int, size: int) -> None:
        if files and not self._live and not self._quiet:
            typer.echo(f"{sweep}: {count(files, 'file')}, {amount(size)} to come")
        if files:
            self._pulse.expect(sweep, size)
            self._task = self._bar.add_task(printable(sweep), total=size)

    def came(self, size: int) -> None:
        self._pulse.came(size)
        if self._bar.tasks:
            self._bar.update(self._task, completed=size)

    def begin(self, what: str) -> None:
        self._pulse.begin(what)
        if self._live and not self._bar.tasks:
            self._task = self._bar.add_task(printable(what), total=None)
        elif self._live and self._bar.tasks[-1].total is None:
            self._bar.update(self._task, description=printable(what))

    def say(self, text: str) -> None:
        if self._live:
            self._bar.console.print(printable(text), markup=False)
        else:
            typer.echo(printable(text))


def report(brought: SyncReport, dry_run: bool) -> None:
    """Print what was fetched of a sweep, or would be, with problems and notes."""
    came = f"{count(brought.files, 'file')}, {amount(brought.size)}" if brought.files else "nothing new"
    if dry_run:
        due = f", {count(brought.due, 'run')} would be verified" if brought.due else ""
        aside = f", {brought.put_aside} put aside" if brought.put_aside else ""
        typer.echo(f"{brought.sweep}: {came} would come{due}{aside}")
    else:
        new = f", {count(len(brought.complete), 'run')} verified" if brought.complete else ""
        runs = f"{count(brought.runs, 'run')} {'is' if brought.runs == 1 else 'are'}"
        typer.echo(f"{brought.sweep}: {came}{new}; {brought.finished} of {runs} finished there")
    for note in _some(brought.notes):
        typer.echo(f"  {printable(note)}")
    for problem in _some(brought.problems):
        typer.echo(f"error: {brought.sweep}: {printable(problem)}", err=True)


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"and {more} more like these"]

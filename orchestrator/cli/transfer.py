"""How a sync looks in a terminal: a bar with bytes and the time it will take; elsewhere plain lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

import typer

from orchestrator.shown import plain

if TYPE_CHECKING:
    from orchestrator.sync.wish import Brought


# So many lines of a kind are printed about a sweep.
_LINES = 20


class Screen:
    """Progress of one sweep after the other."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from orchestrator.cli.view import console

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

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def expect(self, sweep: str, files: int, size: int) -> None:
        if files and not self._live and not self._quiet:
            typer.echo(f"{sweep}: {files} files, {amount(size)} to come")
        if files:
            self._task = self._bar.add_task(sweep, total=size)

    def came(self, size: int) -> None:
        if self._bar.tasks:
            self._bar.update(self._task, completed=size)


def report(brought: Brought, dry_run: bool) -> None:
    """What came of a sweep, or would, and what is to be known about it."""
    came = f"{brought.files} files, {amount(brought.size)}" if brought.files else "nothing new"
    if dry_run:
        due = f", {brought.due} runs would be verified" if brought.due else ""
        aside = f", {brought.put_aside} put aside" if brought.put_aside else ""
        typer.echo(f"{brought.sweep}: {came} would come{due}{aside}")
    else:
        new = f", {len(brought.complete)} runs verified" if brought.complete else ""
        typer.echo(
            f"{brought.sweep}: {came}{new}; {brought.finished} of {brought.runs} runs are finished there"
        )
    for note in _some(brought.notes):
        typer.echo(f"  {plain(note)}")
    for problem in _some(brought.problems):
        typer.echo(f"error: {brought.sweep}: {plain(problem)}", err=True)


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"and {more} more like these"]


def amount(size: int) -> str:
    """Bytes as people read them."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}"

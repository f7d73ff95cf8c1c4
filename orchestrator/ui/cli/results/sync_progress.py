"""Progress of a sync: a bar with bytes and remaining time in a terminal, elsewhere plain lines."""

from __future__ import annotations

import sys
import threading
import time
from typing import Self

import typer

from orchestrator.core.formatting import amount, count, duration, printable
from orchestrator.sync.request import SyncProgress, SyncReport

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


class ProgressLines:
    """Prints a line every ``beat`` seconds while a step is under way."""

    def __init__(self, beat: float) -> None:
        self._beat, self._lock, self._over = beat, threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._step, self._since, self._name = "", 0.0, ""
        self._size, self._came, self._began, self._moved = 0, 0, 0.0, 0.0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self, step: str) -> None:
        """Begin a step that transfers no bytes."""
        with self._lock:
            self._step, self._since = step, time.monotonic()

    def expect(self, name: str, size: int) -> None:
        """Begin a transfer of so many bytes."""
        with self._lock:
            now = time.monotonic()
            self._step, self._name, self._size, self._came = "", name, size, 0
            self._began = self._moved = now

    def came(self, size: int) -> None:
        with self._lock:
            if size > self._came:
                self._step, self._came, self._moved = "", size, time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(self._beat):
            with self._lock:
                line = self._line(time.monotonic())
            if line:
                typer.echo(printable(line))

    def _line(self, now: float) -> str:
        if self._step:
            return f"{self._step}: {duration(now - self._since)} so far"
        if not self._size:
            return ""
        so_far = f"{self._name}: {amount(self._came)} of {amount(self._size)}"
        if now - self._moved >= self._beat:
            return f"{so_far}; nothing came for {duration(now - self._moved)}, still waiting"
        speed = self._came / max(now - self._began, 1e-3)
        left = f", about {duration((self._size - self._came) / speed)} left" if speed else ""
        return f"{so_far}, {amount(int(speed))}/s{left}"


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

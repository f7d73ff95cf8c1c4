"""One line at the end of a terminal that says what a command is doing, and goes away."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.core.formatting import duration, printable
from orchestrator.core.progress import listening
from orchestrator.ui.terminal.output import ERASE_LINE

# Work that is done sooner shows nothing.
_PATIENCE_S = 0.6
_BEAT_S = 0.2
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class _Line:
    """The line; a thread draws it anew while the work goes on."""

    def __init__(self, step: str) -> None:
        self._lock, self._over = threading.Lock(), threading.Event()
        self._began = self._step_began = time.monotonic()
        self._step, self._done, self._total = step, 0, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._write(ERASE_LINE)

    def step(self, step: str, done: int, total: int) -> None:
        if step != self._step:
            self._step_began = time.monotonic()
        self._step, self._done, self._total = step, done, total

    @contextmanager
    def away(self) -> Iterator[None]:
        """Take the line away while something else is printed."""
        with self._lock:
            self._write(ERASE_LINE)
            yield

    def _run(self) -> None:
        wait = _PATIENCE_S
        while not self._over.wait(wait):
            wait = _BEAT_S
            with self._lock:
                self._write(
                    ERASE_LINE + self._text(time.monotonic())[: shutil.get_terminal_size().columns - 1]
                )

    def _text(self, now: float) -> str:
        frame = _FRAMES[int((now - self._began) / _BEAT_S) % len(_FRAMES)]
        counter = f": {self._done:,} of {self._total:,}" if self._total else ""
        return f"{frame} {printable(self._step)}{counter}, {duration(now - self._step_began)}"

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def working(step: str) -> Iterator[Callable[[Callable[[Any], None]], Callable[[Any], None]]]:
    """Say on a terminal what this block is doing: this step, then those that are reported.

    Yields a function that makes a printing function one that prints above the line.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda tell: tell
        return
    line = _Line(step)

    def above(tell: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(text: Any) -> None:
            with line.away():
                tell(text)

        return told

    line.start()
    try:
        with listening(line.step):
            yield above
    finally:
        line.stop()

"""Progress of a long transfer as lines, without a terminal, also while no byte arrives."""

from __future__ import annotations

import threading
import time

import typer

from orchestrator.core.formatting import amount, duration, printable


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

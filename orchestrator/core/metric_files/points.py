"""Points of metrics, and the files that hold them, read as they grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

# Bytes read at a time, and those at a file's beginning by which one that was written anew is recognised.
CHUNK = 1 << 18
_HEAD = 256
# Bytes read at once at most, and so of one line.
_LARGEST = 1 << 26


@dataclass(frozen=True)
class Point:
    """Values by name, after ``step`` steps; ``time``: seconds since the epoch. ``None``: not recorded."""

    values: Mapping[str, float]
    step: float | None = None
    time: float | None = None


class Parser(Protocol):
    """Parse one format, piece by piece."""

    def feed(self, data: bytes, at: int) -> tuple[list[Point], int]:
        """Return the points in ``data``, which stands at ``at`` in its file, and how many bytes are used up.

        The rest is given again, with what follows.
        """
        ...


class GrowingFile:
    """Read the points of a file that grows. ``start``: its size before the program started.

    A file written anew is read from its beginning; where only its first line changed, as when
    Stable-Baselines3 adds a column, points that were returned are left out.
    """

    def __init__(self, path: Path, parser: Callable[[], Parser], start: int) -> None:
        self._path, self._make, self._start = path, parser, start
        self._parser, self._at, self._number, self._skip = parser(), 0, 0, 0
        self._head = b""
        self.behind = True

    @property
    def is_old(self) -> bool:
        """Whether no more was read than stood there before the program started."""
        return self._at <= self._start

    def read(self, *, ended: bool) -> list[Point]:
        """Return the next points; ``behind``: whether there are more. ``ended``: the last line is whole."""
        with open(self._path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            self._restart_if_new(file.read(_HEAD), size)
            most = min(self._start - self._at, _LARGEST) if self._at < self._start else CHUNK
            while True:
                file.seek(self._at)
                data = file.read(most)
                points, used = self._parser.feed(data, self._at)
                whole = len(data) < most or self._at + len(data) >= size
                if used or whole or most >= _LARGEST:
                    break
                most = 2 * max(most, CHUNK)
        if ended and whole and used < len(data):
            more, _ = self._parser.feed(data[used:] + b"\n", self._at + used)
            points, used = points + more, len(data)
        self._at += used
        self.behind = not whole and used > 0
        self._number += len(points)
        fresh, self._skip = points[self._skip :], max(0, self._skip - len(points))
        return fresh

    def _restart_if_new(self, head: bytes, size: int) -> None:
        if size < self._at or not head.startswith(self._head):
            self._skip = self._number if size >= self._at else 0
            self._parser, self._at, self._start, self._number = self._make(), 0, 0, 0
        self._head = head


def numbers(value: Any, name: str, joint: str) -> dict[str, float]:
    """Return the numbers in parsed JSON by name; the names of levels are joined."""
    if isinstance(value, dict):
        found: dict[str, float] = {}
        for key, item in value.items():
            found |= numbers(item, f"{name}{joint}{key}" if name else str(key), joint)
        return found
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"):
        return {name: float(value)}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {name: float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf}

"""Parse the lines of metrics that a program writes, and count those that cannot be used.

Unusable parts are dropped, with a warning in the run's log: no line is worth hours of training. A program
fails only if none of its first lines can be used, before it trains for hours without a record.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.worker.failures import ProgramFailed

# The key of a line that describes the program instead of its training.
PROGRAM_KEY = "program"

_KEYS = ("frames", "iteration", "metrics", "total")
_BEYOND = 1 << 63
_MOST_WARNINGS = 20
# A program whose first lines are all unusable follows another protocol.
_FIRST_LINES = 10
_SHOWN = 200


@dataclass
class Dropped:
    """Counts of dropped metrics of a program: whole ``lines``, and single ``values`` of others.

    ``first``: the first cause. Each cause is written to the run's log once.
    """

    lines: int = 0
    values: int = 0
    first: str = ""
    _warned: set[str] = field(default_factory=set)

    def line(self, cause: str, text: bytes, *, read_before: bool = True) -> None:
        """Drop a line. Raises :class:`ProgramFailed` if none of the first ones could be used."""
        self.lines += 1
        self._warn(cause, f"{cause} in the line {text[:_SHOWN].decode(errors='replace').strip()}")
        if not read_before and self.lines >= _FIRST_LINES:
            raise ProgramFailed(f"none of the first {self.lines} lines of metrics can be used: {self.first}")

    def value(self, name: str, cause: str) -> None:
        """Drop a value of a line."""
        self.values += 1
        self._warn(name, f"{name!a}: {cause}")

    def _warn(self, cause: str, text: str) -> None:
        self.first = self.first or text
        if cause not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(cause)
            sys.stderr.write(f"warning: dropped from the metrics, here and later: {text}\n")

    def __str__(self) -> str:
        """Describe the dropped lines and values; empty without any."""
        counts = ((self.lines, "line"), (self.values, "value"))
        parts = [f"{number} {word}{'s' * (number != 1)}" for number, word in counts if number]
        return f"dropped {' and '.join(parts)} of the metrics, first {self.first}" if parts else ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result: the counts, and the remark for `status`; empty without any."""
        found = {"lines": self.lines, "values": self.values, "first": self.first}
        return {"dropped_metrics": found, "remark": str(self)} if self.first else {}


@dataclass(frozen=True)
class Line:
    """A line, parsed: ``frames`` are at least 0, ``total`` at least 1."""

    frames: int
    metrics: Mapping[str, float]
    iteration: int | None
    total: int | None


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises ``ValueError``."""
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"found no JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError("found no object, expected one with the key 'frames'")
    return data


def parse_line(data: Mapping[str, Any], dropped: Dropped) -> Line:
    """Return the usable metrics of a line. Raises ``ValueError`` for one without frames."""
    if "frames" not in data:
        raise ValueError("found no key 'frames'")
    frames = _whole(data["frames"])
    if frames is None:
        raise ValueError(f"found frames {_short(data['frames'])}, expected a whole number from 0")
    for key in data.keys() - set(_KEYS):
        dropped.value(key, f"unknown key, expected one of {', '.join(_KEYS)}: figures stand in metrics")
    return Line(frames, _metrics(data.get("metrics"), dropped), *_positive(data, dropped))


def last_total(metrics: Path) -> int | None:
    """Return the frames at the end of the run that the program declared last in this file."""
    try:
        lines = metrics.read_bytes().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if b'"total"' in line:
            with suppress(ValueError):
                if total := _positive(parse_object(line), Dropped(_warned={"iteration", "total"}))[1]:
                    return total
    return None


def _positive(data: Mapping[str, Any], dropped: Dropped) -> tuple[int | None, int | None]:
    """Return iteration and total."""
    found: list[int | None] = []
    for key in ("iteration", "total"):
        value = _whole(data.get(key))
        if data.get(key) is not None and not value:
            dropped.value(key, f"found {_short(data[key])}, expected a whole number from 1")
        found.append(value or None)
    return found[0], found[1]


def _metrics(data: Any, dropped: Dropped) -> dict[str, float]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        dropped.value("metrics", f"found {_short(data)}, expected names to numbers")
        return {}
    found = {}
    for name, value in _flat(data):
        number = _number(value)
        if not name or not _is_text(name):
            dropped.value(name, "expected a name that is text")
        elif number is None:
            dropped.value(name, f"found {_short(value)}, expected a number")
        else:
            found[name] = number
    return found


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of nested mappings; the names of their levels are joined by a slash."""
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def _is_text(name: str) -> bool:
    """Whether a name can be written to files: JSON also has halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(value: Any) -> float | None:
    """Return a number, also one that a program wrote as text, as ``json.dumps(…, default=str)`` does."""
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _whole(value: Any) -> int | None:
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not math.isfinite(number):
        return None
    whole = value if isinstance(value, int) else int(number)
    return whole if 0 <= whole < _BEYOND else None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"

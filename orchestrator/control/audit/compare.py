"""Compare the metrics of two executions of a run."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

from orchestrator.rundir import Row
from orchestrator.rundir.attempts.metrics import is_of_machine
from orchestrator.rundir.records.audits import MetricDifference


def differences(straight: Sequence[Row], other: Sequence[Row]) -> tuple[MetricDifference, ...]:
    """Return the metrics that differ, those that differ first at the head. Times and loads do not count."""
    one, two = _by_frames(straight), _by_frames(other)
    found: dict[str, MetricDifference] = {}
    for frames in sorted({*one, *two}):
        for name, was, became in _differing(one.get(frames, {}), two.get(frames, {})):
            size = abs(was - became) if was is not None and became is not None else math.inf
            before = found.setdefault(name, MetricDifference(name, frames, was, became, 0.0))
            if size > before.largest and math.isfinite(size):
                found[name] = MetricDifference(name, before.frames, before.straight, before.other, size)
    return tuple(sorted(found.values(), key=lambda one: one.frames))


def ignored(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the metrics that are not compared."""
    return tuple(sorted({name for row in rows for name in row.metrics if is_of_machine(name)}))


def _differing(
    one: dict[str, float], two: dict[str, float]
) -> Iterator[tuple[str, float | None, float | None]]:
    for name in dict.fromkeys((*one, *two)):
        was, became = one.get(name), two.get(name)
        if _bits(was) != _bits(became):
            yield name, was, became


def _bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("d", math.nan if math.isnan(value) else value)


def _by_frames(rows: Sequence[Row]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        values = {name: value for name, value in row.metrics.items() if not is_of_machine(name)}
        found.setdefault(row.frames, {}).update(values)
    return found

"""How fast a run was, what it returned and what memory it took."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from orchestrator.rundir import Row

# Seconds per iteration, where a trainer measures them.
COLLECTION_TIMER, TRAINING_TIMER = "timers/collection_time", "timers/training_time"


def speed(history: Sequence[Row], attempts: Iterable[Sequence[Row]]) -> dict[str, float | None]:
    """Frames per second over all and in the steady state, seconds per iteration and their split.

    ``history``: the run's merged rows. ``attempts``: each attempt's rows as executed. The steady state is the
    median over all iterations but each attempt's first, which warms up; ``None`` where there is no other.
    ``fps_lasting`` is over all of these together, evaluations and checkpoints among them.
    """
    steady = [pair for rows in attempts for pair in pairwise(rows)]
    seconds = [after.wall_time - before.wall_time for before, after in steady]
    rates = [
        (after.frames - before.frames) / taken
        for (before, after), taken in zip(steady, seconds, strict=True)
        if taken > 0
    ]
    rows = [after for _, after in steady]
    return {
        "fps": overall_fps(history),
        "fps_steady": _median(rates),
        "fps_lasting": _ratio(sum(after.frames - before.frames for before, after in steady), sum(seconds)),
        "seconds_per_iteration": _median(seconds),
        "collection_seconds": _median(_values(rows, COLLECTION_TIMER)),
        "training_seconds": _median(_values(rows, TRAINING_TIMER)),
    }


def overall_fps(history: Sequence[Row]) -> float | None:
    if not history or history[-1].wall_time <= 0:
        return None
    return history[-1].frames / history[-1].wall_time


def returns(history: Iterable[Row], names: Iterable[str]) -> tuple[float | None, float | None]:
    """The final and the best return, of the first of ``names`` that was ever recorded. NaN is no return."""
    rows = list(history)
    for name in names:
        values = list(_values(rows, name))
        if values:
            return values[-1], max(values)
    return None, None


def peak_memory_mb() -> float:
    """This process's peak resident memory and that of its largest finished child, in MiB."""
    own, children = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return round((own + children) / 1024, 1)


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """What `status` shows of a finished run."""
    measured = result["speed"]
    return {
        "fps_steady": measured["fps_steady"],
        "seconds_per_iteration": measured["seconds_per_iteration"],
        "final_return": result["final_return"],
        "wall_time": result["wall_time"],
    }


def _values(rows: Iterable[Row], name: str) -> Iterator[float]:
    return (row.metrics[name] for row in rows if math.isfinite(row.metrics.get(name, math.nan)))


def _ratio(frames: int, seconds: float) -> float | None:
    return frames / seconds if seconds > 0 else None


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None

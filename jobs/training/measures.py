"""Measure what a run returned and what memory it took. Speed is planning.throughput.measure's."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.rundir import Row


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
        "training_fps": measured["training_fps"],
        "end_to_end_fps": measured["end_to_end_fps"],
        "seconds_per_iteration": measured["seconds_per_iteration"],
        "final_return": result["final_return"],
        "wall_time": result["wall_time"],
    }


def _values(rows: Iterable[Row], name: str) -> Iterator[float]:
    return (row.metrics[name] for row in rows if math.isfinite(row.metrics.get(name, math.nan)))

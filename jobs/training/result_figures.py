"""Figures of a run's result: returns and memory. Speed is measured in planning.throughput.measure."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.rundir import Row


def returns(history: Iterable[Row], names: Iterable[str]) -> tuple[float | None, float | None]:
    """Return the final and the best value of the first of ``names`` that was recorded, without NaN."""
    rows = list(history)
    for name in names:
        values = list(_values(rows, name))
        if values:
            return values[-1], max(values)
    return None, None


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process plus that of its largest finished child, in MiB."""
    own, children = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return round((own + children) / 1024, 1)


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a result that `status` shows."""
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

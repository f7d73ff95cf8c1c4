"""Figures of a run's result. Speed is measured in planning.throughput.measure."""

from __future__ import annotations

import math
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

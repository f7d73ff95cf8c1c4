"""Figures of a run's result. Speed is measured in planning.throughput.measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.rundir import Row

# The number of episodes that ended since a training began, where it is recorded.
_EPISODES = "train/total_episodes"


def learned(history: Iterable[Row], names: Iterable[str]) -> dict[str, float | int | None]:
    """Return the initial, final and best return, and the number of episodes, as far as they are recorded.

    Returns are the finite values of the first of ``names`` that was recorded, none if it never was finite.
    """
    rows = list(history)
    recorded = next((name for name in names if any(name in row.metrics for row in rows)), "")
    values = [*_values(rows, recorded)]
    episodes = [*_values(rows, _EPISODES)]
    return {
        "initial_return": values[0] if values else None,
        "final_return": values[-1] if values else None,
        "best_return": max(values, default=None),
        "episodes": int(episodes[-1]) if episodes else None,
    }


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

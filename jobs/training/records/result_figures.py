"""Figures of a run's result. Speed is measured in planning.throughput.measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from orchestrator.config.returns import return_figures
from orchestrator.rundir import Result, Row

# The number of episodes that ended since a training began, where it is recorded.
_EPISODES = "train/total_episodes"


def learned(history: Sequence[Row], names: Iterable[str]) -> dict[str, float | int | None]:
    """Return the initial, final and best return, and the number of episodes, as far as they are recorded.

    ``names``: the metrics that mean return, best first.
    """
    told = (row.metrics.get(_EPISODES, math.nan) for row in reversed(history))
    episodes = next(filter(math.isfinite, told), None)
    return {**return_figures(history, names), "episodes": None if episodes is None else int(episodes)}


def ended(result: Result) -> dict[str, object]:
    """Return the data of the event that a run is done: what `status` shows of its result."""
    return {
        "frames": result.frames,
        "code_id": result.code_id,
        "message": result.remark,
        "summary": {
            "training_fps": result.speed.training_fps,
            "end_to_end_fps": result.speed.end_to_end_fps,
            "seconds_per_iteration": result.speed.seconds_per_iteration,
            "final_return": result.final_return,
            "wall_time": result.wall_time,
        },
    }

"""Minutes of training in place of a number of frames."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from jobs.training.config_errors import bare_key, unexpected
from orchestrator.config.trainers import BENCHMARL
from orchestrator.core.types import Run, Value
from orchestrator.planning.throughput.measure import COLLECTION_TIMER, LEARNING_TIMER
from orchestrator.rundir import Row

_MINUTE_S = 60.0
_BOUNDS = ("experiment.max_n_frames", "experiment.max_n_iters")
# Three thousand years at a millisecond each.
_ENDLESS = 10**14


class TimeIsUp(Exception):
    """The iteration that just ended is the last one."""


class TimeBudget:
    """A run's minutes of training, and the seconds spent of them.

    Collecting and learning count, in the iterations that stand: evaluations, checkpoints, start-ups and
    undone iterations are not training. The run ends with the iteration that uses up the time.
    """

    def __init__(self, minutes: float | None, had: Iterable[Row] = ()) -> None:
        self._seconds = None if minutes is None else minutes * _MINUTE_S
        self.spent = sum(map(_training_seconds, had))

    def spend(self, row: Row) -> None:
        """Count an iteration."""
        self.spent += _training_seconds(row)

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._seconds is not None and self.spent >= self._seconds

    def total_frames(self, frames: int) -> int | None:
        """Predict the frames of the whole run at the speed so far; ``None`` without a budget."""
        if self._seconds is None or self.spent <= 0:
            return None
        return max(frames, round(frames * self._seconds / self.spent))


def minutes_of(run: Run) -> float | None:
    """Return the run's minutes; ``None`` if it has none. Raises :class:`RefusedKeyError`."""
    value = run.overrides.get(BENCHMARL.minutes)
    return None if value is None else checked(value)


def checked(value: Value) -> float:
    """Return the value of the key as minutes. Raises :class:`RefusedKeyError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        expected = "minutes of training above 0, such as 10 or 0.5"
        raise unexpected(BENCHMARL.minutes, repr(value), expected)
    return float(value)


def without_minutes(run: Run) -> dict[str, Value]:
    """Return the run's overrides that are BenchMARL's."""
    return {key: value for key, value in run.overrides.items() if key != BENCHMARL.minutes}


def unbounded(config: Any, run: Run, on_policy: bool) -> Any:
    """Copy BenchMARL's experiment config, without bounds besides time unless the run sets frames as well.

    Exploration is annealed as before: over a third of the frames in the config.
    """
    config = copy.deepcopy(config)
    if run.overrides.get(BENCHMARL.minutes) is not None and not _is_bounded(run):
        config.exploration_anneal_frames = config.get_exploration_anneal_frames(on_policy)
        config.max_n_frames, config.max_n_iters = None, _ENDLESS
    return config


def _is_bounded(run: Run) -> bool:
    return any(bare_key(key) in _BOUNDS and value is not None for key, value in run.overrides.items())


def _training_seconds(row: Row) -> float:
    return row.metrics.get(COLLECTION_TIMER, 0.0) + row.metrics.get(LEARNING_TIMER, 0.0)

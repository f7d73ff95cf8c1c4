"""So many minutes of training instead of so many frames."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from jobs.trainers.benchmarl.hydra_text import RefusedKeyError, bare_key
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
    """The minutes of training that a run was given, and the seconds it has had of them.

    What counts is collecting and learning, of the iterations that stand: evaluations, checkpoints, start-ups
    and what an interruption undid are not training. The run ends with the iteration in which the time is up.
    """

    def __init__(self, minutes: float | None, had: Iterable[Row] = ()) -> None:
        self._seconds = None if minutes is None else minutes * _MINUTE_S
        self.spent = sum(map(_training_seconds, had))

    def spend(self, row: Row) -> None:
        self.spent += _training_seconds(row)

    @property
    def over(self) -> bool:
        return self._seconds is not None and self.spent >= self._seconds

    def total_frames(self, frames: int) -> int | None:
        """How many frames it will be if it goes on as in the first ``frames``; ``None`` without a budget."""
        if self._seconds is None or self.spent <= 0:
            return None
        return max(frames, round(frames * self._seconds / self.spent))


def minutes_of(run: Run) -> float | None:
    """The minutes that the run asks for. Raises :class:`RefusedKeyError`."""
    value = run.overrides.get(BENCHMARL.minutes)
    return None if value is None else checked(value)


def checked(value: Value) -> float:
    """The value of the key as minutes. Raises :class:`RefusedKeyError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        key = BENCHMARL.minutes
        raise RefusedKeyError(
            key, f"{key}: found {value!r}, expected minutes of training above 0, such as 10 or 0.5"
        )
    return float(value)


def without_minutes(run: Run) -> dict[str, Value]:
    """The run's overrides that are BenchMARL's."""
    return {key: value for key, value in run.overrides.items() if key != BENCHMARL.minutes}


def unbounded(config: Any, run: Run, on_policy: bool) -> Any:
    """A copy of BenchMARL's experiment config that time alone ends, unless the run sets frames as well.

    Exploration is annealed as it would have been: over a third of the frames that the config has.
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

"""Minutes of training in place of a number of frames."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.training.config_errors import unexpected
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run, Value
from orchestrator.planning.throughput.measure import training_seconds
from orchestrator.rundir import Row

_MINUTE_S = 60.0


class TimeBudget:
    """A run's minutes of training, and the seconds spent of them.

    The training clock counts, in the iterations that stand: evaluations, checkpoints, start-ups and undone
    iterations are not training. Without that clock the time between rows counts. The run ends with the
    iteration that uses up the time.
    """

    def __init__(self, minutes: float | None, had: Iterable[Row] = ()) -> None:
        self._seconds = None if minutes is None else minutes * _MINUTE_S
        self._wall_time = 0.0
        self.spent = 0.0
        for row in had:
            self.spend(row)

    def spend(self, row: Row) -> None:
        """Count an iteration."""
        measured = training_seconds(row)
        self.spent += max(0.0, row.wall_time - self._wall_time) if measured is None else measured
        self._wall_time = row.wall_time

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
    spec = get_trainer(run.trainer)
    key = spec.minutes_key(run)
    value = run.overrides.get(key)
    hint = f"a key of the program's own stands in its command as {{{key}}}, or has another name"
    return None if value is None else checked_minutes(key, value, hint if spec.runs_program else None)


def checked_minutes(key: str, value: Value, hint: str | None = None) -> float:
    """Return the value of the key as minutes. Raises :class:`RefusedKeyError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise unexpected(key, repr(value), "minutes of training above 0, such as 10 or 0.5", hint=hint)
    return float(value)

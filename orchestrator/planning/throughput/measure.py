"""Measure the speed of a run: two figures, each a ratio of sums over one steady window. Pure.

*Training throughput* is frames per second of the training clock: of collecting and learning, by the trainer's
own timers, where time in which both go on counts once. It compares devices: how often a run is evaluated does
not change it. *End-to-end throughput* is frames per
second of wall time, with evaluations, logs and checkpoints. It predicts time and money.

The steady window of an attempt is its iterations after the first, which warms up. An attempt that evaluated
at least twice after the first iteration has its window cut to whole evaluation cycles: from the end of the
first of these evaluations to the end of the last. So neither figure depends on the iteration at which a run
ended. Where no attempt has a whole cycle, the window is all iterations after each attempt's first. The
end-to-end throughput of a run that evaluates is provisional then: it depends on where the run ended. Without
any of these, as after a single iteration, there are no figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.returns import is_evaluation
from orchestrator.rundir import Row
from orchestrator.rundir.records.result import Throughput

# Seconds of an iteration, where a trainer measures them. The names are BenchMARL's.
COLLECTION_TIMER, LEARNING_TIMER = "timers/collection_time", "timers/training_time"
# Parts of these: of collection; of learning by several processes, which also wait for each other.
ENVIRONMENT_TIMER, INFERENCE_TIMER = "timers/environment_time", "timers/inference_time"
ALL_REDUCE_TIMER, WAITING_TIMER = "timers/all_reduce_time", "timers/waiting_time"
# Of actors that play while other processes learn.
ACTOR_WAITING_TIMER = "timers/actor_waiting_time"
# Seconds of an iteration in which the trainer collected or learned, for one that does both at a time.
TRAINING_CLOCK = "timers/training_clock"
# Metrics of iterations with an evaluation only.
EVALUATION_TIMER = "timers/evaluation_time"

# The two figures: columns of the table of runs, and their names.
TRAINING, END_TO_END = "training_fps", "end_to_end_fps"
NAMES = {TRAINING: "training throughput", END_TO_END: "end-to-end throughput"}
# Beside a number of frames/s.
SHORT = {TRAINING: "of training", END_TO_END: "end-to-end"}

# The meaning of a figure with an asterisk.
PROVISIONAL = (
    "provisional end-to-end throughput: some run has no whole cycle from one evaluation to the next, so "
    "the figure depends on the length of the run"
)


def comparable(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the column to compare the speeds of these runs by: the training throughput if all have it.

    Otherwise the end-to-end throughput, as for programs that report no timers: the two are never compared.
    """
    known = [row for row in rows if _is_speed(row[END_TO_END])]
    return TRAINING if all(_is_speed(row[TRAINING]) for row in known) else END_TO_END


def _is_speed(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


@dataclass
class _Sums:
    """Sums over iterations; ``clocked`` counts those with a training clock, ``timed`` with both timers."""

    iterations: int = 0
    frames: int = 0
    seconds: float = 0.0
    training: float = 0.0
    clocked: int = 0
    collection: float = 0.0
    learning: float = 0.0
    timed: int = 0

    def add(self, other: _Sums) -> None:
        self.iterations += other.iterations
        self.frames += other.frames
        self.seconds += other.seconds
        self.training += other.training
        self.clocked += other.clocked
        self.collection += other.collection
        self.learning += other.learning
        self.timed += other.timed

    def figures(self, *, provisional: bool) -> Throughput:
        timed = 0 < self.iterations == self.timed
        return Throughput(
            _ratio(self.frames, self.training) if 0 < self.iterations == self.clocked else None,
            _ratio(self.frames, self.seconds),
            self.iterations,
            _mean(self.seconds, self.iterations),
            _mean(self.collection, self.iterations) if timed else None,
            _mean(self.learning, self.iterations) if timed else None,
            provisional,
        )


class Window:
    """The steady window of one attempt, row by row."""

    def __init__(self) -> None:
        self._before: Row | None = None
        self._all, self._cycles, self._open = _Sums(), _Sums(), _Sums()
        self._evaluated = False
        self.evaluates = False

    def add(self, row: Row) -> None:
        """Add the next row."""
        before, self._before = self._before, row
        self.evaluates = self.evaluates or evaluates(row)
        if before is None:
            return  # the first iteration warms up
        step = _step(before, row)
        self._all.add(step)
        self._open.add(step)
        if evaluates(row):
            if self._evaluated:
                self._cycles.add(self._open)
            self._evaluated, self._open = True, _Sums()

    @property
    def figures(self) -> Throughput:
        """The figures of this attempt alone."""
        return throughput_of([self])


def throughput(attempts: Iterable[Sequence[Row]]) -> Throughput:
    """Return the figures of a run from the rows of its attempts, each as executed."""
    windows = []
    for rows in attempts:
        window = Window()
        for row in rows:
            window.add(row)
        windows.append(window)
    return throughput_of(windows)


def throughput_of(windows: Sequence[Window]) -> Throughput:
    """Return the figures over several attempts: over their whole cycles if any attempt has one."""
    cycles, every = _Sums(), _Sums()
    for window in windows:
        cycles.add(window._cycles)
        every.add(window._all)
    if cycles.iterations:
        return cycles.figures(provisional=False)
    evaluated = any(window.evaluates for window in windows)
    return every.figures(provisional=evaluated and every.iterations > 0)


def evaluates(row: Row) -> bool:
    """Return whether the iteration ended with an evaluation."""
    return EVALUATION_TIMER in row.metrics or any(map(is_evaluation, row.metrics))


def rate(before: Row | None, row: Row) -> float | None:
    """Return the frames per second of wall time of one iteration; ``before``: the previous row, if any."""
    frames, seconds = (before.frames, before.wall_time) if before is not None else (0, 0.0)
    return _ratio(row.frames - frames, row.wall_time - seconds)


def training_seconds(row: Row) -> float | None:
    """Return the seconds of the training clock in an iteration; ``None`` if the trainer has no timers."""
    clock = row.metrics.get(TRAINING_CLOCK)
    if clock is None:
        clock = row.metrics.get(COLLECTION_TIMER, math.nan) + row.metrics.get(LEARNING_TIMER, math.nan)
    return clock if math.isfinite(clock) else None


def _step(before: Row, row: Row) -> _Sums:
    collection, learning = (row.metrics.get(name, math.nan) for name in (COLLECTION_TIMER, LEARNING_TIMER))
    timed = math.isfinite(collection) and math.isfinite(learning)
    clock = training_seconds(row)
    return _Sums(
        1,
        row.frames - before.frames,
        row.wall_time - before.wall_time,
        clock or 0.0,
        int(clock is not None),
        collection if timed else 0.0,
        learning if timed else 0.0,
        int(timed),
    )


def _ratio(frames: float, seconds: float) -> float | None:
    """Return frames per second; ``None`` for an invalid speed: JSON and foreign logs can hold any number."""
    if not seconds > 0 or not math.isfinite(seconds):
        return None
    found = frames / seconds
    return found if 0 < found < math.inf else None


def _mean(seconds: float, iterations: int) -> float | None:
    return seconds / iterations if iterations and math.isfinite(seconds) else None

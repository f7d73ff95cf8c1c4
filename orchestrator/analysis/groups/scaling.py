"""How the training throughput of a configuration grows with its actors or threads, and what holds it back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.grouping import Members, by_point, group_labels
from orchestrator.analysis.groups.keys import SWEEP, changes_with
from orchestrator.analysis.groups.speeds import actors_of, peak_share, processes_of
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.amdahl import FEW_SIZES, Amdahl, fit, pays_up_to
from orchestrator.analysis.statistics.bootstrap import finite, median_interval
from orchestrator.analysis.statistics.ratios import Ratio, ratio
from orchestrator.core.formatting import count
from orchestrator.planning.throughput.measure import (
    ACTOR_WAITING_TIMER,
    ALL_REDUCE_TIMER,
    COLLECTION_TIMER,
    ENVIRONMENT_TIMER,
    INFERENCE_TIMER,
    LEARNING_TIMER,
    TRAINING,
    TRAINING_CLOCK,
    WAITING_TIMER,
)

# What the seconds of an iteration go to.
PARTS = ("environment", "inference", "learning", "all-reduce", "waiting", "other")
_TIMERS = (
    *(ENVIRONMENT_TIMER, INFERENCE_TIMER, LEARNING_TIMER, ALL_REDUCE_TIMER, WAITING_TIMER),
    *(COLLECTION_TIMER, TRAINING_CLOCK, ACTOR_WAITING_TIMER),
)
# What a run's size is counted in; the first that varies is what a line is over.
ACTORS, THREADS = "actors", "threads"
_SIZE = "actors and threads"
# Beyond so many times the largest measured size a limit is not given as a number.
_FARTHEST = 4
# A larger deviation of the fit is mentioned.
_MUCH = 0.1


@dataclass(frozen=True)
class ScalingPoint:
    """Runs of one size. ``number``: of actors, or of threads; ``cores`` are those that the size asks for.

    ``speed_up``: against the smallest size; ``times``: how many of its cores. ``shares``: mean parts of an
    iteration's seconds, which add up to 1. ``peak``: the median share of the machine's peak FLOP/s.
    """

    number: int
    cores: int
    fps: tuple[float, ...]
    times: float
    speed_up: Ratio | None
    shares: Mapping[str, float]
    peak: float | None

    @property
    def middle(self) -> float:
        """Median frames/s."""
        return median(self.fps)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median; ``None`` for one run."""
        return median_interval(self.fps) if len(self.fps) > 1 else None

    @property
    def efficiency(self) -> float | None:
        """Speed-up over the ratio of cores."""
        return self.speed_up.value / self.times if self.speed_up else None


@dataclass(frozen=True)
class ScalingLine:
    """A configuration in several sizes, the smallest first. ``over``: :data:`ACTORS` or :data:`THREADS`."""

    label: str
    over: str
    points: tuple[ScalingPoint, ...]

    @cached_property
    def amdahl(self) -> Amdahl | None:
        """The fit of Amdahl's law, if there are enough sizes."""
        return fit({point.number: point.fps for point in self.points})

    @property
    def verdict(self) -> str:
        """One sentence: up to which size doubling pays, as far as that is known."""
        noun, most = self.over.removesuffix("s"), self.points[-1].number
        if self.amdahl is None:
            here = len(self.points)
            return f"no fit of Amdahl's law, which takes {FEW_SIZES} numbers of {self.over}: here are {here}"
        law = self.amdahl
        if not law.parallel:
            first = count(self.points[0].number, noun)
            return f"training is no faster with more {self.over}: beyond {first} you pay for waiting"
        within = "" if law.low is None else f" [{law.low:.1%}, {law.high:.1%}]"
        said = f"serial fraction {law.fraction:.1%}{within} by Amdahl's law"
        if law.off > _MUCH:
            said += f" (the fit is up to {law.off:.0%} off)"
        limit = self._limit(law.fraction)
        if limit > _FARTHEST * most:
            return f"{said}: doubling pays up to {count(most, noun)}, the most measured, and beyond"
        beyond = f"{said}: beyond {count(int(limit), noun)} you pay for waiting"
        if law.low is not None and law.high is not None:
            least, last = (self._limit(end) for end in (law.high, law.low))
            if least < last:
                many = f"{last:,.0f}" if last <= _FARTHEST * most else "any number"
                beyond += f" ({least:,.0f} to {many} by the fit's interval)"
        return beyond + (f"; no more than {most} were measured" if limit > most else "")

    def _limit(self, fraction: float) -> float:
        """Return the largest number from which doubling pays, at least the smallest measured."""
        limit = pays_up_to(fraction)
        return max(self.points[0].number, limit if math.isinf(limit) else math.floor(limit + 1e-9))


def scaling_lines(collected: Collected) -> list[ScalingLine]:
    """Return the configurations of the present grids that were trained in several sizes.

    Of each configuration those finished runs count that record how long their environments took.
    """
    shares = _shares(collected)
    rows = [
        {**row, _SIZE: (actors_of(row), row[THREADS])}
        for row in collected.runs.iter_rows(named=True)
        if row["in_grid"] and (row[SWEEP], row["run_id"]) in shares and row[THREADS]
    ]
    parted = []
    for _, of_sweep in by_point(rows, [SWEEP]):
        together = changes_with(of_sweep, collected.keys, _SIZE)
        apart = [key for key in collected.keys if key not in ("seed", ACTORS, THREADS, *together)]
        for point, own in by_point(of_sweep, [SWEEP, *apart]):
            done, _ = Members(tuple(own)).counted()
            lines = _lines([row for row in done if finite(row[TRAINING]) and row[TRAINING] > 0])
            parted += [({**point, **kept}, over, some) for over, kept, some in lines]
    labels = group_labels([{"algorithm": own[0]["trainer"], **point} for point, _, own in parted])
    return [
        ScalingLine(label, over, tuple(_points(own, over, shares)))
        for label, (_, over, own) in zip(labels, parted, strict=True)
    ]


def _lines(rows: Sequence[RunRow]) -> Iterator[tuple[str, dict[str, Any], list[RunRow]]]:
    """Part runs into lines of several sizes: over actors for each number of threads, or over threads."""
    if len({row[_SIZE][0] for row in rows}) < 2:
        if len({row[THREADS] for row in rows}) > 1:
            yield THREADS, {}, list(rows)
        return
    several = len({row[THREADS] for row in rows}) > 1
    for point, own in by_point(rows, [THREADS]):
        if len({row[_SIZE][0] for row in own}) > 1:
            yield ACTORS, point if several else {}, own


def _cores(row: RunRow) -> int:
    return processes_of(row) * int(row[THREADS])


def _points(
    rows: Sequence[RunRow], over: str, shares: Mapping[tuple[str, str], Mapping[str, float]]
) -> Iterator[ScalingPoint]:
    in_order = sorted(rows, key=lambda row: math.prod(row[_SIZE]))
    sizes = gathered((int(row[_SIZE][0 if over == ACTORS else 1]), row) for row in in_order)
    sides = {number: {(): {row.get("seed"): row[TRAINING] for row in own}} for number, own in sizes.items()}
    first = next(iter(sizes))
    for number, own in sizes.items():
        cores = _cores(own[0])
        peaks = [share for row in own if (share := peak_share(row)) is not None]
        told = [shares[row[SWEEP], row["run_id"]] for row in own]
        yield ScalingPoint(
            number,
            cores,
            tuple(row[TRAINING] for row in own),
            cores / _cores(sizes[first][0]),
            ratio(str(number), str(first), sides[number], sides[first], among=max(1, len(sizes) - 1)),
            {part: fmean(shares[part] for shares in told) for part in PARTS},
            median(peaks) if peaks else None,
        )


def _shares(collected: Collected) -> dict[tuple[str, str], dict[str, float]]:
    """Return the parts of an iteration's seconds of each run that records them, without its first one."""
    table = collected.metrics.filter(
        pl.col("name").is_in(list(_TIMERS))
        & pl.col("value").is_finite()
        & (pl.col("iteration") > pl.col("iteration").min().over("sweep", "run_id"))
    )
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for sweep, run_id, name, value in (
        table.group_by("sweep", "run_id", "name").agg(pl.col("value").sum()).rows()
    ):
        sums.setdefault((sweep, run_id), {})[name] = value
    return {run: _parted(own) for run, own in sums.items() if own.get(ENVIRONMENT_TIMER)}


def _parted(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of an iteration's seconds.

    All-reduce is part of learning; so is waiting as far as the parts would exceed the whole, but where actors
    play while others learn. There the parts exceed it by themselves, and the shares are of their sum.
    """
    environment, inference, learning, all_reduce, waiting, collection, clock, _ = (
        seconds.get(name, 0.0) for name in _TIMERS
    )
    whole = clock or collection + learning
    twice = environment + inference + learning + waiting - whole
    if ACTOR_WAITING_TIMER in seconds:
        twice = 0.0
    learning = max(0.0, learning - all_reduce - min(waiting, max(0.0, twice)))
    parts = (environment, inference, learning, all_reduce, waiting)
    whole = max(whole, sum(parts))
    return dict(zip(PARTS, (*(part / whole for part in parts), 1 - sum(parts) / whole), strict=True))

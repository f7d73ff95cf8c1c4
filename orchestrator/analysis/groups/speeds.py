"""Speeds of groups on each kind of hardware, and speed that depends on the time of start.

A busy hour, or a machine that gets slower: runs that differ only in their seed, on the same hardware, should
be equally fast at any time. Their differences are tested in the order of starts: for a trend from first to
last, and for similar neighbours, which finds a slow hour in the middle. Both tests use ranks and fixed random
permutations within those runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.run_table import RunRow, known
from orchestrator.analysis.statistics.bootstrap import finite, middle
from orchestrator.analysis.statistics.significance import Floats, average_ranks
from orchestrator.core.formatting import count, duration
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING, comparable

_TIMES = ("seconds_per_iteration", "collection_seconds", "learning_seconds")
# With fewer runs the tests find nothing that matters; more are thinned out evenly in time.
FEWEST_RUNS, _MOST_RUNS = 9, 1000
_PERMUTATIONS = 2000
# Significance level of each of the two tests.
_LEVEL = 0.005
# A smaller ratio between two parts of the time is no reason to doubt a comparison.
_LEAST_EFFECT = 1.05
_SEED = 20


@dataclass(frozen=True)
class SpeedSummary:
    """A group's speed on one kind of hardware.

    Both throughputs of each run that has them, and the medians over runs of the seconds per iteration and of
    two parts of these. ``provisional``: the end-to-end throughput of some run is. ``peak``: the median share
    of the peak FLOP/s, where runs record it.
    """

    group: SeedGroup
    hardware: str
    training_fps: tuple[float, ...]
    end_to_end_fps: tuple[float, ...]
    seconds_per_iteration: float | None
    collection_seconds: float | None
    learning_seconds: float | None
    provisional: bool
    peak: float | None = None

    def split(self) -> tuple[float, float, float]:
        """Return the seconds per iteration of collection, of learning, and of the rest."""
        whole = self.seconds_per_iteration or 0.0
        collection = min(self.collection_seconds or 0.0, whole)
        learning = min(self.learning_seconds or 0.0, whole - collection)
        return collection, learning, whole - collection - learning


def speeds(groups: Sequence[SeedGroup]) -> list[SpeedSummary]:
    """Return each group's speed on each kind of hardware it ran on."""
    rows = []
    for group in groups:
        by_hardware = gathered((hardware(row), row) for row in group.counted()[0])
        for name, alike in sorted(by_hardware.items()):
            training, end_to_end = (known(alike, column) for column in (TRAINING, END_TO_END))
            whole, collection, learning = (middle(known(alike, column)) for column in _TIMES)
            seconds, marked = (whole, collection, learning), is_provisional(alike)
            peak = middle([share for row in alike if (share := peak_share(row)) is not None])
            rows.append(SpeedSummary(group, name, training, end_to_end, *seconds, marked, peak))
    return rows


def is_provisional(rows: Sequence[RunRow]) -> bool:
    """Return whether the end-to-end throughput of any of these runs is provisional."""
    return any(row["provisional"] for row in rows)


def machine(row: RunRow) -> str | None:
    """Describe the GPU and the processor of a run; ``None`` where unknown."""
    return " + ".join(filter(None, (row["gpu_model"], row["cpu_model"]))) or None


def hardware(row: RunRow) -> str:
    """Describe the hardware that decides a run's speed: GPU, CPU, threads."""
    threads, name = row["threads"], machine(row) or "unknown CPU"
    return name if threads is None else f"{name}, {count(threads, 'thread')}"


def peak_share(row: RunRow) -> float | None:
    """Return the share of the measured peak FLOP/s of its cores that a run's training takes, if known."""
    frame, core, fps = row["flop_per_frame"], row["machine_flops_per_core"], row[TRAINING]
    if not (frame and core and fps and row["threads"]):
        return None
    cores = processes_of(row) * row["threads"]
    return float(fps * frame / (min(cores, row["run_cores"] or cores) * core))


def actors_of(row: RunRow) -> int:
    """Return a run's number of actors."""
    return row["actors"] if isinstance(row["actors"], int) and row["actors"] > 0 else 1


def processes_of(row: RunRow) -> int:
    """Return the number of a run's processes, each with its threads: more than actors if others learn."""
    return row["processes"] or actors_of(row)


@dataclass(frozen=True)
class Drift:
    """Speed that depends on the time of start.

    ``slow`` and ``fast``: parts of the time, in seconds after the first start; runs of the one are ``times``
    as fast as those of the other. ``chance``: the p-value.
    """

    runs: int
    chance: float
    slow: tuple[float, float]
    fast: tuple[float, float]
    times: float

    def __str__(self) -> str:
        slow, fast = (f"{duration(start)} to {duration(end)}" for start, end in (self.slow, self.fast))
        return (
            "speed depends on when runs were started: of runs that differ only in their seed, those started "
            f"{slow} after the first one trained {self.times:.2f} times as fast as those started {fast} "
            f"after it ({self.runs} runs, p = {self.chance:.2g}); something else may have slowed the machine "
            "then, which speeds of other configurations may show as well"
        )


def drift_of(groups: Sequence[SeedGroup]) -> Drift | None:
    """Test whether the speeds of finished runs depend on their starts; ``None`` where that is only noise."""
    started, away, strata = _residuals(groups)
    if len(started) < FEWEST_RUNS or np.ptp(started) <= 0:
        return None
    chance = _chance(away, strata)
    if chance > 2 * _LEVEL:
        return None
    thirds = [part for part in np.array_split(np.arange(len(started)), 3) if len(part)]
    levels = [float(np.median(away[part])) for part in thirds]
    slow, fast = int(np.argmin(levels)), int(np.argmax(levels))
    times = math.exp(levels[slow] - levels[fast])
    if 1 / times < _LEAST_EFFECT:
        return None
    spans = [(float(started[part[0]]), float(started[part[-1]])) for part in thirds]
    return Drift(len(started), chance, spans[slow], spans[fast], times)


def _residuals(groups: Sequence[SeedGroup]) -> tuple[Floats, Floats, NDArray[np.int_]]:
    """Return for each run, in the order of starts: seconds after the first, log speed, stratum number.

    A stratum is runs that differ only in their seed, on the same hardware; log speeds are relative to its
    mean.
    """
    rows: list[tuple[float, float, int]] = []
    number = 0
    for group in groups:
        alike = gathered(
            (hardware(row), row)
            for row in group.counted()[0]
            if finite(row["started"]) and finite(row[END_TO_END]) and row[END_TO_END] > 0
        )
        for several in alike.values():
            column = comparable(several)
            speeds = np.log([row[column] for row in several])
            if len(several) > 1:
                middle = float(speeds.mean())
                rows += [
                    (row["started"], float(speed) - middle, number)
                    for row, speed in zip(several, speeds, strict=True)
                ]
                number += 1
    rows.sort(key=lambda row: row[0])  # not by speed where starts are equal
    if len(rows) > _MOST_RUNS:
        rows = [rows[place] for place in np.linspace(0, len(rows) - 1, _MOST_RUNS).astype(int)]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return table[:, 0] - table[:1, 0].sum(), table[:, 1], table[:, 2].astype(int)


def _chance(away: Floats, strata: NDArray[np.int_]) -> float:
    """Return the p-value of speeds so dependent on time; ``away`` is in the order of starts."""
    ranks = average_ranks(away.round(6))
    ranks -= ranks.mean()
    generator = np.random.default_rng(_SEED)
    drawn = np.tile(ranks, (_PERMUTATIONS + 1, 1))
    # Sorted by stratum and randomly within it: all strata at once, as there can be hundreds.
    by_chance = np.argsort(strata + generator.random((_PERMUTATIONS, len(ranks))), axis=1)
    drawn[1:, np.argsort(strata, kind="stable")] = ranks[by_chance]
    places = np.arange(len(ranks)) - (len(ranks) - 1) / 2
    direction, neighbours = drawn @ places, (drawn[:, 1:] * drawn[:, :-1]).sum(axis=1)
    direction = np.abs(direction - direction[1:].mean())
    chances = [float((one >= one[0] - 1e-9).mean()) for one in (direction, neighbours)]
    return min(1.0, 2 * min(chances))

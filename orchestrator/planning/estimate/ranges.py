"""Predictions as ranges of three numbers, and a schedule of runs on machines. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter


@dataclass(frozen=True)
class Range:
    """An expected value and its 80 % interval. ``low <= mid <= high``."""

    low: float
    mid: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Range:
        """Return a range without uncertainty."""
        return cls(value, value, value)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Multiply all three numbers by ``factor`` (not negative)."""
        return Range(self.low * factor, self.mid * factor, self.high * factor)

    def to_json(self) -> dict[str, float]:
        """Return it as JSON data."""
        return {"low": round(self.low, 4), "expected": round(self.mid, 4), "high": round(self.high, 4)}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> Range:
        """Return a range from JSON data."""
        return cls(float(data["low"]), float(data["expected"]), float(data["high"]))


NOTHING = Range.exactly(0.0)


def total(ranges: Iterable[Range]) -> Range:
    """Return the sum, with fully correlated errors: many runs are predicted from one measurement."""
    result = NOTHING
    for one in ranges:
        result += one
    return result


def lay_out(runs: Sequence[tuple[Range, int]], machines: int, cores: int) -> list[Range]:
    """Return the busy time of each machine, longest first.

    ``runs``: their times, and how many of a machine's ``cores`` they take. The largest are scheduled first,
    and of these the longest: every run goes where it can begin first. Low, mid and high are scheduled
    separately. A machine is busy until its last run is done.
    """
    assert machines >= 1, machines
    assert cores >= 1, cores
    sized = [(min(size, cores), time) for time, size in runs]
    columns: list[list[tuple[int, float]]] = [
        [(size, time.low) for size, time in sized],
        [(size, time.mid) for size, time in sized],
        [(size, time.high) for size, time in sized],
    ]
    low, mid, high = (_loads(sorted(column, reverse=True), machines, cores) for column in columns)
    # With several slots, different runs can share a machine in the three schedules.
    return [Range(min(one), one[1], max(one)) for one in zip(low, mid, high, strict=True)]


def _loads(runs: Iterable[tuple[int, float]], machines: int, cores: int) -> list[float]:
    """Return each machine's time, longest first, so that ranges made of several such lists are ordered.

    ``runs``: cores and seconds, those with the most cores first.
    """
    free = [[0.0] * cores for _ in range(machines)]  # when each core of a machine is free, in order
    begun = [0] * machines
    for size, alike in groupby(runs, key=itemgetter(0)):
        # Of machines that are free at the same time, take the one with the fewest runs: load all evenly.
        soonest = [(own[size - 1], begun[machine], machine) for machine, own in enumerate(free)]
        heapq.heapify(soonest)
        for _, seconds in alike:
            begins, _, machine = heapq.heappop(soonest)
            own = free[machine]
            own[:size] = [begins + seconds] * size
            own.sort()
            begun[machine] += 1
            heapq.heappush(soonest, (own[size - 1], begun[machine], machine))
    return sorted((own[-1] for own in free), reverse=True)

"""Predictions as ranges of three numbers, and a schedule of runs on machines. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


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


def lay_out(times: Sequence[Range], machines: int, at_once: int) -> list[Range]:
    """Return the busy time of each machine, longest first, with the longest runs scheduled first.

    ``machines`` have ``at_once`` slots each; every run goes to the slot that is free first. Low, mid and high
    are scheduled separately. A machine is busy until its last slot is done.
    """
    assert machines >= 1, machines
    assert at_once >= 1, at_once
    low, mid, high = (
        _loads(sorted(column, reverse=True), machines, at_once)
        for column in ([one.low for one in times], [one.mid for one in times], [one.high for one in times])
    )
    # With several slots, different runs can share a machine in the three schedules.
    return [Range(min(one), one[1], max(one)) for one in zip(low, mid, high, strict=True)]


def _loads(times: Sequence[float], machines: int, at_once: int) -> list[float]:
    """Return each machine's time, longest first, so that ranges made of several such lists are ordered."""
    # Fill the first slot of every machine first: filling machine by machine would load them unevenly.
    free = [(0.0, slot, machine) for slot in range(at_once) for machine in range(machines)]
    heapq.heapify(free)
    longest = [0.0] * machines
    for seconds in times:
        begins, slot, machine = heapq.heappop(free)
        heapq.heappush(free, (begins + seconds, slot, machine))
        longest[machine] = max(longest[machine], begins + seconds)
    return sorted(longest, reverse=True)

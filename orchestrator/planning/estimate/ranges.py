"""A prediction as three numbers, and runs laid out over machines. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """What is expected, and what in four cases of five it stays between. ``low <= mid <= high``."""

    low: float
    mid: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value, value)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Each of the three ``factor`` (not below zero) times."""
        return Range(self.low * factor, self.mid * factor, self.high * factor)

    def to_json(self) -> dict[str, float]:
        return {"low": round(self.low, 4), "expected": round(self.mid, 4), "high": round(self.high, 4)}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> Range:
        return cls(float(data["low"]), float(data["expected"]), float(data["high"]))


NOTHING = Range.exactly(0.0)


def total(ranges: Iterable[Range]) -> Range:
    """Their sum. Errors are taken to go together, as those of one figure that many runs rest on do."""
    result = NOTHING
    for one in ranges:
        result += one
    return result


def lay_out(times: Sequence[Range], machines: int, at_once: int) -> list[Range]:
    """How long each machine is at work with these runs: the longest first, each to the slot that is free.

    ``machines`` have ``at_once`` slots each. Low and high go through the same order, each by itself; a
    machine is at work until its last slot is through. The machine with the most to do comes first.
    """
    assert machines >= 1, machines
    assert at_once >= 1, at_once
    low, mid, high = (
        _loads(sorted(column, reverse=True), machines, at_once)
        for column in (
            [one.low for one in times],
            [one.mid for one in times],
            [one.high for one in times],
        )
    )
    # Which runs share a machine can differ between the three, if it has several slots.
    return [Range(min(one), one[1], max(one)) for one in zip(low, mid, high, strict=True)]


def _loads(times: Sequence[float], machines: int, at_once: int) -> list[float]:
    """Each machine's time, the longest first, so that ranges made of several such lists are ordered."""
    # Machine by machine would leave some of them with one run and others with many: slots in turn.
    free = [(0.0, slot, machine) for slot in range(at_once) for machine in range(machines)]
    heapq.heapify(free)
    longest = [0.0] * machines
    for seconds in times:
        begins, slot, machine = heapq.heappop(free)
        heapq.heappush(free, (begins + seconds, slot, machine))
        longest[machine] = max(longest[machine], begins + seconds)
    return sorted(longest, reverse=True)

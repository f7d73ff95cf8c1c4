"""Order points so that no hour and no job trains only one setting. Pure.

A machine that is slow for an hour, or slower than another, then affects all values of all keys alike: noise
in their comparison instead of a bias.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]
# The most comparisons for an exact order; with more points than that a shuffled order is as even.
_MOST_LOOKS = 300_000

_Value = Hashable

# A text that is the same for equal values. `json.dumps` would make an encoder for each of very many values.
_identity = json.JSONEncoder(sort_keys=True, default=str).encode


def interleaved(points: Sequence[Point], lanes: int = 1) -> list[int]:
    """Return the indices of these points in an interleaved order that depends only on the points.

    Points that differ only in their seed go to different rounds: every round has each configuration once.
    Within a round the next point is the one with the values used least so far, in all and in its lane: every
    ``lanes``-th point of the order shares a lane, as runs do that are assigned to jobs in turn.
    """
    values = _varying_values(points)
    rounds = _rounds([_identity({key: point[key] for key in point if key != "seed"}) for point in points])
    looks = sum(len(one) ** 2 for one in rounds) * max(map(len, values), default=0)
    if looks > _MOST_LOOKS:
        shuffled = (sorted(one, key=_shuffle_key(values, turn)) for turn, one in enumerate(rounds))
        return [number for one in shuffled for number in one]
    counts = _TurnCounts(values, lanes)
    order: list[int] = []
    for turn, one in enumerate(rounds):
        left = sorted(one, key=_shuffle_key(values, turn)) if turn else list(one)
        for place in range(len(one)):
            number = min(left, key=lambda number: counts.priority(number, len(order) % lanes))
            left.remove(number)
            counts.add(number, len(order) % lanes, place / len(one))
            order.append(number)
    return order


class _TurnCounts:
    """How often each value was used: in all, in each lane, and how early in its rounds."""

    def __init__(self, values: Sequence[Sequence[_Value]], lanes: int) -> None:
        self._values, self._lanes = values, lanes
        self._total = Counter(value for own in values for value in own)
        self._used: Counter[_Value] = Counter()
        self._in_lane: Counter[tuple[int, _Value]] = Counter()
        self._places: dict[_Value, float] = dict.fromkeys(self._total, 0.0)

    def priority(self, number: int, lane: int) -> float:
        """Return the priority of a point: the lower, the less its values were used so far."""
        behind = 0.0
        for value in self._values[number]:
            used, total = self._used[value], self._total[value]
            behind += (used + self._lanes * self._in_lane[lane, value]) / total
            if used:  # a value that came late in earlier rounds comes early now
                behind -= self._places[value] / used / total / 2
        return round(behind, 9)

    def add(self, number: int, lane: int, place: float) -> None:
        """Count the values of a chosen point, at ``place`` (0 to 1) of its round."""
        for value in self._values[number]:
            self._used[value] += 1
            self._in_lane[lane, value] += 1
            self._places[value] += place


def _varying_values(points: Sequence[Point]) -> list[list[_Value]]:
    """Return the values of each point for the keys that vary, without the seed."""
    seen: dict[str, set[str]] = {}
    texts = [{key: _identity(value) for key, value in point.items() if key != "seed"} for point in points]
    keys = sorted({key for own in texts for key in own})
    for key in keys:
        seen[key] = {own.get(key, "") for own in texts}
    return [[(key, own.get(key, "")) for key in keys if len(seen[key]) > 1] for own in texts]


def _rounds(identities: Sequence[str]) -> list[list[int]]:
    """Return the indices in rounds: the first of each identity, the second of each, and so on."""
    met: Counter[str] = Counter()
    rounds: list[list[int]] = []
    for number, identity in enumerate(identities):
        if met[identity] == len(rounds):
            rounds.append([])
        rounds[met[identity]].append(number)
        met[identity] += 1
    return rounds


def _shuffle_key(values: Sequence[Sequence[_Value]], turn: int) -> Callable[[int], bytes]:
    """Return a sort key for an arbitrary but fixed order, another one in each round."""
    return lambda number: hashlib.sha256(f"{turn} {values[number]}".encode()).digest()

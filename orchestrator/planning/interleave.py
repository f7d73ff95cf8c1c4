"""An order in which points take turns, so that no hour and no job is one setting's alone. Pure.

What slows a machine for an hour, and what makes one machine faster than another, is then spread over all
values of all keys, and is noise to their comparison instead of a difference.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]
# Comparisons that a careful order may take; beyond, there are so many points that shuffling is as even.
_MOST_LOOKS = 300_000

_Value = Hashable


def interleaved(points: Sequence[Point], lanes: int = 1) -> list[int]:
    """The numbers of these points in an order that depends on nothing but them and their order.

    Points that differ only in their seed come one to a round, so that every round has each configuration
    once. In a round the one comes next whose values are most behind in all, and in their lane: the first,
    and every ``lanes``-th from there, share a lane, as runs that are dealt out to so many jobs do.
    """
    values = _varying(points)
    rounds = _rounds([_identity({key: point[key] for key in point if key != "seed"}) for point in points])
    looks = sum(len(one) ** 2 for one in rounds) * max(map(len, values), default=0)
    if looks > _MOST_LOOKS:
        shuffled = (sorted(one, key=_shuffling(values, turn)) for turn, one in enumerate(rounds))
        return [number for one in shuffled for number in one]
    ledger = _Ledger(values, lanes)
    order: list[int] = []
    for turn, one in enumerate(rounds):
        left = sorted(one, key=_shuffling(values, turn)) if turn else list(one)
        for place in range(len(one)):
            number = min(left, key=lambda number: ledger.claim(number, len(order) % lanes))
            left.remove(number)
            ledger.take(number, len(order) % lanes, place / len(one))
            order.append(number)
    return order


class _Ledger:
    """What of each value has had its turn: in all, in each lane, and how early in its rounds."""

    def __init__(self, values: Sequence[Sequence[_Value]], lanes: int) -> None:
        self._values, self._lanes = values, lanes
        self._total = Counter(value for own in values for value in own)
        self._used: Counter[_Value] = Counter()
        self._in_lane: Counter[tuple[int, _Value]] = Counter()
        self._places: dict[_Value, float] = dict.fromkeys(self._total, 0.0)

    def claim(self, number: int, lane: int) -> float:
        """The lower, the more this point's values are behind."""
        behind = 0.0
        for value in self._values[number]:
            used, total = self._used[value], self._total[value]
            behind += (used + self._lanes * self._in_lane[lane, value]) / total
            if used:  # who was late in earlier rounds comes early now
                behind -= self._places[value] / used / total / 2
        return round(behind, 9)

    def take(self, number: int, lane: int, place: float) -> None:
        for value in self._values[number]:
            self._used[value] += 1
            self._in_lane[lane, value] += 1
            self._places[value] += place


def _varying(points: Sequence[Point]) -> list[list[_Value]]:
    """Of each point the values of the keys that vary, but the seed."""
    seen: dict[str, set[str]] = {}
    texts = [{key: _identity(value) for key, value in point.items() if key != "seed"} for point in points]
    keys = dict.fromkeys(key for own in texts for key in own)
    for key in keys:
        seen[key] = {own.get(key, "") for own in texts}
    return [[(key, own.get(key, "")) for key in keys if len(seen[key]) > 1] for own in texts]


def _rounds(identities: Sequence[str]) -> list[list[int]]:
    """The first of each identity, the second of each, and so on."""
    met: Counter[str] = Counter()
    rounds: list[list[int]] = []
    for number, identity in enumerate(identities):
        if met[identity] == len(rounds):
            rounds.append([])
        rounds[met[identity]].append(number)
        met[identity] += 1
    return rounds


def _shuffling(values: Sequence[Sequence[_Value]], turn: int) -> Callable[[int], bytes]:
    """A key that puts points in an order of no meaning, another one in each round."""
    return lambda number: hashlib.sha256(f"{turn} {values[number]}".encode()).digest()


def _identity(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)

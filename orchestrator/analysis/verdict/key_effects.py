"""The effect of one key of the grid at a time: how its values fare where all other keys are equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import classes
from orchestrator.analysis.groups.grouping import Final, by_task
from orchestrator.analysis.statistics.significance import chances_to_win
from orchestrator.core.labels import varying_keys

_NOT_KEYS = ("task", "sweep", "seed")


@dataclass(frozen=True)
class ValueEffect:
    """A value of a key, in ``combinations`` of the other keys that have all values of the key.

    ``mean``: of the interquartile means. ``wins``: mean chance that a run returns more than one with another
    value of the key, a tie counting half. ``best_in``: combinations in which it has the highest interquartile
    mean.
    """

    value: Any
    combinations: int
    mean: float
    wins: float
    best_in: int


@dataclass(frozen=True)
class KeyEffect:
    """A key that varies in a task, with its values from the best to the worst."""

    task: str
    key: str
    values: tuple[ValueEffect, ...]

    @property
    def size(self) -> float:
        """The distance between the best and the worst value, in chances to win."""
        return self.values[0].wins - self.values[-1].wins


def key_effects(finals: Sequence[Final]) -> list[KeyEffect]:
    """Return the effects by task, the largest first; none in a task where a single key varies."""
    by_key = []
    for task, keys, members in _varying(finals):
        effects = [effect for key in keys if (effect := _effect(task, key, members)) is not None]
        by_key += sorted(effects, key=lambda effect: -effect.size)
    return by_key


def keys_without_effect(finals: Sequence[Final]) -> list[tuple[str, str]]:
    """Return task and key of all that vary, but no combination of the other keys has all values of it.

    Not of those that have an effect among other runs of the task, which can be ranked against each other.
    """
    pairs: dict[tuple[str, str], bool] = {}
    for task, keys, members in _varying(finals):
        for key in keys:
            pairs[task, key] = pairs.get((task, key), False) or bool(_whole(key, members))
    return [pair for pair, whole in pairs.items() if not whole]


def _varying(finals: Sequence[Final]) -> Iterator[tuple[str, list[str], list[Final]]]:
    """Yield tasks, their keys and their final returns, where several keys vary among rankable ones."""
    for task, own in by_task(final for final in finals if final.estimate is not None).items():
        for members in classes((final, final.terms) for final in own):
            keys = varying_keys([final.group.point for final in members], _NOT_KEYS)
            if len(members) > 1 and len(keys) > 1:
                yield task, keys, members


def _effect(task: str, key: str, members: Sequence[Final]) -> KeyEffect | None:
    """Return the effect of a key; ``None`` where no combination of the others has all of its values."""
    whole = _whole(key, members)
    if not whole:
        return None
    values = {repr(final.group.point.get(key)): final.group.point.get(key) for final in members}
    levels = [{name: one.estimate.value for name, one in own.items() if one.estimate} for own in whole]
    merits = [{name: one.merit for name, one in own.items()} for own in whole]
    best_in = Counter(name for own in merits for name in own if own[name] == max(own.values()))
    means = gathered(pair for own in levels for pair in own.items())
    chances = gathered(
        pair
        for own in whole
        for pair in zip(
            own, chances_to_win([final.terms.merits(final.values) for final in own.values()]), strict=True
        )
    )
    effects = [
        ValueEffect(value, len(whole), fmean(means[name]), fmean(chances[name]), best_in[name])
        for name, value in values.items()
    ]
    return KeyEffect(task, key, tuple(sorted(effects, key=lambda effect: -effect.wins)))


def _whole(key: str, members: Sequence[Final]) -> list[dict[str, Final]]:
    """Return the combinations of the other keys that have all values of a key, with a run of each value."""
    by_rest: dict[str, dict[str, Final]] = defaultdict(dict)
    for final in members:
        point = final.group.point
        rest = repr(sorted((name, repr(value)) for name, value in point.items() if name != key))
        by_rest[rest][repr(point.get(key))] = final
    every = len({value for own in by_rest.values() for value in own})
    return [own for own in by_rest.values() if len(own) == every] if every > 1 else []

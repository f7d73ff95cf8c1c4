"""Short names for runs and groups of runs: only what tells them apart."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]

# BenchMARL has many keys twice, and an algorithm reads one of the two.
_KIND = re.compile(r"^(on|off)_policy_(?=.)")


def varying_keys(points: Sequence[Point], without: Collection[str] = ()) -> list[str]:
    """The keys that tell points apart, in the points' own order; of keys that advance together, the first."""
    keys = list(dict.fromkeys(key for point in points for key in point if key not in without))
    if len(points) < 2:
        return keys
    found: dict[tuple[int, ...], str] = {}
    for key in keys:
        values = [_text(point.get(key)) for point in points]
        order = {value: number for number, value in enumerate(dict.fromkeys(values))}
        if len(order) > 1:
            found.setdefault(tuple(order[value] for value in values), key)
    return list(found.values())


def shared_keys(points: Sequence[Point]) -> dict[str, Any]:
    """The keys that all points have with the same value."""
    first, *others = points or [{}]
    return {
        key: value
        for key, value in first.items()
        if all(key in point and _text(point[key]) == _text(value) for point in others)
    }


def spellings(key: str) -> tuple[str, ...]:
    """How a person may write a key, the shortest first: ``n_envs``, ``on_policy_n_envs_per_worker`` and the
    whole ``experiment.on_policy_n_envs_per_worker``.
    """
    last = key.rpartition(".")[2]
    core = _KIND.sub("", last).removesuffix("_per_worker")
    return tuple(dict.fromkeys((core, last, key)))


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each key's shortest spelling that is no other's: ``experiment.lr`` → ``lr``."""
    written = Counter(name for key in dict.fromkeys(keys) for name in spellings(key))
    return {key: next((name for name in spellings(key) if written[name] == 1), key) for key in keys}


def labeller(points: Sequence[Point], without: Collection[str] = ()) -> Callable[[Point], str]:
    """What names one of these points by the keys that vary: ``mappo cpu lr=0.001 seed=0``.

    Text stands alone where no other key has the same; everything else is named.
    """
    keys = varying_keys(points, without)
    names = short_keys(keys)
    texts = {key: {point[key] for point in points if isinstance(point.get(key), str)} for key in keys}

    def part(key: str, value: Any) -> str:
        shared = isinstance(value, str) and any(value in texts[other] for other in keys if other != key)
        alone = isinstance(value, str) and not shared and _text(value) == value
        return value if alone else f"{names[key]}={_text(value)}"

    return lambda point: " ".join(part(key, point[key]) for key in keys if key in point)


def run_labels(points: Sequence[Point], without: Collection[str] = ()) -> list[str]:
    """A label per point, of the keys that vary."""
    return list(map(labeller(points, without), points))


def _text(value: Any) -> str:
    """Text as it is, if it can be seen; everything else as JSON."""
    plain = isinstance(value, str) and value.strip() != "" and value.isprintable()
    return value if plain else json.dumps(value, ensure_ascii=not isinstance(value, dict | list))

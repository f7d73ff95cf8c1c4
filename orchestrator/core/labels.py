"""Short labels for runs and groups, made of the keys that differ."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

Point = Mapping[str, Any]

# BenchMARL has many keys twice; an algorithm reads one of the two.
_KIND = re.compile(r"^(on|off)_policy_(?=.)")

# Text that stands for itself: `mappo`, `vmas/balance`, `torch.nn.Tanh`. Answers need their question.
_NAME = re.compile(r"[^\W\d_][\w./@+:-]*")
_ANSWERS = {"yes", "no", "on", "off", "true", "false", "none", "null", "default", "auto", "all", "any"}


def varying_keys(points: Sequence[Point], without: Collection[str] = ()) -> list[str]:
    """Return the keys that differ between points, in the points' own order, the seed last.

    Keys that vary together are all kept, as any of them may cause a difference. Left out are keys that are
    constant within each sweep (the sweep's name implies them) and the second of a BenchMARL pair with equal
    values.
    """
    found_keys = dict.fromkeys(key for point in points for key in point if key not in without)
    keys = sorted(found_keys, key=lambda key: key == "seed")
    if len(points) < 2:
        return keys
    together: dict[tuple[int, ...], dict[tuple[str, ...], list[str]]] = {}
    for key in keys:
        values = tuple(value_text(point[key]) if key in point else "" for point in points)
        order = {value: number for number, value in enumerate(dict.fromkeys(values))}
        if len(order) > 1:
            alike = together.setdefault(tuple(order[value] for value in values), {})
            alike.setdefault(values, []).append(key)
    found = {key for alike in together.values() for several in alike.values() for key in _named_keys(several)}
    by_sweep = next((alike for alike in together.values() if ["sweep"] in alike.values()), {})
    found -= {key for several in by_sweep.values() for key in several if key != "sweep"}
    return [key for key in keys if key in found]


def _named_keys(alike: Sequence[str]) -> Iterator[str]:
    """Yield the keys to keep of several with the same values: one of each BenchMARL pair."""
    named: set[str] = set()
    for key in alike:
        core = spellings(key)[0] if _KIND.match(key.rpartition(".")[2]) else key
        if core not in named:
            yield key
        named.add(core)


def shared_keys(points: Sequence[Point]) -> dict[str, Any]:
    """Return the keys that have the same value in all points."""
    first, *others = points or [{}]
    return {
        key: value
        for key, value in first.items()
        if all(key in point and value_text(point[key]) == value_text(value) for point in others)
    }


def spellings(key: str) -> tuple[str, ...]:
    """Return the accepted spellings of a key, shortest first.

    As in ``n_envs``, ``on_policy_n_envs_per_worker`` and ``experiment.on_policy_n_envs_per_worker``.
    """
    last = key.rpartition(".")[2]
    core = _KIND.sub("", last).removesuffix("_per_worker")
    return tuple(dict.fromkeys((core, last, key)))


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Map each key to its shortest unambiguous spelling: ``experiment.lr`` → ``lr``."""
    written = Counter(name for key in dict.fromkeys(keys) for name in spellings(key))
    return {key: next((name for name in spellings(key) if written[name] == 1), key) for key in keys}


def labeller(points: Sequence[Point], without: Collection[str] = ()) -> Callable[[Point], str]:
    """Return a function that labels a point by the varying keys: ``mappo cpu lr=0.001 seed=0``.

    A name stands without its key unless another key has the same value.
    """
    keys = varying_keys(points, without)
    names = short_keys(keys)
    texts = {key: {point[key] for point in points if isinstance(point.get(key), str)} for key in keys}

    def part(key: str, value: Any) -> str:
        shared = isinstance(value, str) and any(value in texts[other] for other in keys if other != key)
        alone = isinstance(value, str) and not shared and _is_name(value)
        return value if alone else f"{names[key]}={value_text(value)}"

    return lambda point: " ".join(part(key, point[key]) for key in keys if key in point)


def run_labels(points: Sequence[Point], without: Collection[str] = ()) -> list[str]:
    """Return a label for each point, made of the varying keys."""
    return list(map(labeller(points, without), points))


class KeyColumn(NamedTuple):
    """A key that varies, by its short name, with its value in each point as text."""

    key: str
    name: str
    values: tuple[str, ...]


def key_columns(
    points: Sequence[Point], without: Collection[str] = (), of: Sequence[Point] | None = None
) -> list[KeyColumn]:
    """Return the keys that differ between points as columns of a table, with values ``of`` some or all."""
    keys = varying_keys(points, without)
    names, shown = short_keys(keys), points if of is None else of
    return [
        KeyColumn(key, names[key], tuple(value_text(point[key]) if key in point else "" for point in shown))
        for key in keys
    ]


def _is_name(value: str) -> bool:
    return bool(_NAME.fullmatch(value)) and value.lower() not in _ANSWERS


def value_text(value: Any) -> str:
    """Return a value as labels and tables show it: visible text unchanged, everything else as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return _scalar_text(value)


@lru_cache(maxsize=1024, typed=True)  # ten thousand runs have few values, and each is shown several times
def _scalar_text(value: Any) -> str:
    plain = isinstance(value, str) and value.strip() != "" and value.isprintable()
    return value if plain else json.dumps(value)

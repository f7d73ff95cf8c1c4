"""Short names for runs and groups of runs: only what tells them apart."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any


def varying_keys(points: Sequence[Mapping[str, Any]], without: Collection[str] = ()) -> list[str]:
    """The keys whose values differ between points, in the points' own order."""
    keys = dict.fromkeys(key for point in points for key in point if key not in without)
    if len(points) < 2:
        return list(keys)
    return [key for key in keys if len({_text(point.get(key)) for point in points}) > 1]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each key's last part where that is unambiguous: ``experiment.lr`` → ``lr``."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: tail if last.count(tail) == 1 else key for key, tail in zip(keys, last, strict=True)}


def run_labels(points: Sequence[Mapping[str, Any]], without: Collection[str] = ()) -> list[str]:
    """A label per point, of the keys that vary. Keys that advance together are all shown."""
    keys = varying_keys(points, without)
    names = short_keys(keys)
    return [
        " ".join(f"{names[key]}={_text(point[key])}" for key in keys if key in point) for point in points
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

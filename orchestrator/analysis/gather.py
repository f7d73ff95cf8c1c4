"""Gather values by key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def gathered(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, both in the order of their first mention."""
    values: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values

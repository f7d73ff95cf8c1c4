"""A grid as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.types import PluginSource, Resources, Value

# More than this is a slip of the pen, not a benchmark.
MAX_POINTS = 100_000


class Position(NamedTuple):
    """A place in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Axis:
    """Keys that advance together: one key of ``matrix``, or all keys of ``zip``.

    ``steps`` has one tuple per step, with one value per key.
    """

    keys: tuple[str, ...]
    steps: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Point:
    """Keys and values that the file names together: an entry of ``exclude`` or ``include``."""

    values: Mapping[str, Value]
    at: Position


@dataclass(frozen=True)
class Grid:
    """A parsed grid file. Nothing is expanded yet, but sweeps such as ``range(3)`` are lists.

    ``positions`` says where each key was first written.
    """

    name: str
    trainer: TrainerSpec
    base: Mapping[str, Value]
    axes: tuple[Axis, ...]
    exclude: tuple[Point, ...]
    include: tuple[Point, ...]
    targets: tuple[str, ...]
    compare: bool
    resources: Resources
    plugins: tuple[PluginSource, ...]
    text: str
    source: str
    positions: Mapping[str, Position]

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the grid: what varies first, as written."""
        axes = (key for axis in self.axes for key in axis.keys)
        return tuple(dict.fromkeys([*axes, *self.base, *(k for point in self.include for k in point.values)]))


def bare_key(key: str) -> str:
    """The key without Hydra's ``+``, ``++`` and ``~``."""
    return key.lstrip("+~")


def same_value(value: Value) -> str:
    """Equal for values that mean the same: ``1`` and ``1.0``, but not ``1`` and ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return "[" + ",".join(same_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        items = sorted((key, same_value(item)) for key, item in value.items())
        return "{" + ",".join(f"{json.dumps(key)}:{item}" for key, item in items) + "}"
    return json.dumps(value)


def shown(value: Value) -> str:
    """A value as a grid would spell it, short enough for one line."""
    if isinstance(value, str) and value.isprintable() and value:
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""The types of a parsed grid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import Entries, Position
from orchestrator.core.types import KEPT, PluginSource, Value

# More points than this are a mistake.
MAX_POINTS = 100_000


@dataclass(frozen=True)
class Axis:
    """Keys that advance together: one key of ``matrix``, or all keys of ``zip``.

    ``steps`` has one tuple per step, with one value per key.
    """

    keys: tuple[str, ...]
    steps: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Point:
    """Keys and values of one entry of ``include``, with its position."""

    values: Mapping[str, Value]
    at: Position


@dataclass(frozen=True)
class Exclusion:
    """One entry of ``exclude``: no points that have, for each key of ``when``, one of its values.

    Values of ``when`` are spelled by :func:`same_value`.
    """

    when: Mapping[str, frozenset[str]]
    at: Position


@dataclass(frozen=True, eq=False)
class Rule:
    """One entry of ``for``: the ``values`` of points that have, for each key of ``when``, one of its values.

    Values of ``when`` are spelled by :func:`same_value`. ``places``: the position of each key in ``values``.
    """

    when: Mapping[str, frozenset[str]]
    values: Mapping[str, Value]
    at: Position
    places: Mapping[str, Position]

    def fits(self, point: Mapping[str, Value]) -> bool:
        """Return whether a point, before any rule, has the values of ``when``."""
        return all(key in point and same_value(point[key]) in wanted for key, wanted in self.when.items())


@dataclass(frozen=True)
class Fork:
    """The section ``fork``: where every run goes on from the whole state of another one.

    ``run``: the id of that run; without one it is the run with these ``values``, ended at ``place``, in the
    unit of its length. ``place`` is 0 for the end of ``run``. ``text``: the place for tables.
    """

    text: str
    at: Position
    run: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    place: float = 0


@dataclass(frozen=True)
class Init:
    """The section ``init``: the run that gives every run its policy; ``run``: its id."""

    text: str
    run: str


@dataclass(frozen=True)
class Formula:
    """A resource (``name``) as a text with keys of the run in braces."""

    name: str
    text: str
    at: Position


@dataclass(frozen=True)
class ResourceRequest:
    """The section ``resources``: what is ``stated`` for all runs, and ``formulas`` of a run's own keys."""

    stated: Mapping[str, Value]
    formulas: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A parsed grid file. Its points are not expanded yet, but Hydra sweeps such as ``range(3)`` are lists.

    ``positions``: where each key is first written. ``merged``: its sections with those of the files that it
    ``extends`` and with its ``changes``, if there are any. ``notify``: the command that sends messages.
    ``labels`` decide nothing. ``length``: the key that only says when a program ends. ``keep``: one of
    :data:`KEPT`. ``library``: trees with finished runs, as users name them.
    """

    name: str
    trainer: TrainerSpec
    base: Mapping[str, Value]
    axes: tuple[Axis, ...]
    exclude: tuple[Exclusion, ...]
    include: tuple[Point, ...]
    targets: tuple[str, ...]
    compare: bool
    resources: ResourceRequest
    plugins: tuple[PluginSource, ...]
    loggers: tuple[str, ...]
    metrics: Mapping[str, str]
    text: str
    source: str
    positions: Mapping[str, Position]
    rules: tuple[Rule, ...] = ()
    extends: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    merged: Entries | None = None
    notify: tuple[str, ...] = ()
    labels: Mapping[str, Value] = field(default_factory=dict)
    length: str = ""
    keep: str = KEPT[0]
    library: tuple[str, ...] = ()
    fork: Fork | None = None
    init: Init | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the grid: varying keys first, as written."""
        axes = (key for axis in self.axes for key in axis.keys)
        rules = (key for rule in self.rules for key in rule.values)
        include = (key for point in self.include for key in point.values)
        return tuple(dict.fromkeys([*axes, *self.base, *rules, *include]))


def over(point: Mapping[str, Value], values: Mapping[str, Value]) -> dict[str, Value]:
    """Return a point with these values in the place of its own, also if a key has other signs of Hydra."""
    names = {bare_key(key) for key in values}
    return {**{key: value for key, value in point.items() if bare_key(key) not in names}, **values}


def bare_key(key: str) -> str:
    """Return the key without Hydra's ``+``, ``++`` and ``~``."""
    return key.lstrip("+~")


def same_value(value: Value) -> str:
    """Return a text that is the same for equal values: ``1`` and ``1.0``, but not ``1`` and ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return "[" + ",".join(same_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        items = sorted((key, same_value(item)) for key, item in value.items())
        return "{" + ",".join(f"{json.dumps(key)}:{item}" for key, item in items) + "}"
    return json.dumps(value)

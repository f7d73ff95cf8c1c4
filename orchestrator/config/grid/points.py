"""Parse the sections ``exclude`` and ``include``: points listed one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from orchestrator.config.grid.model import MAX_POINTS, Axis, Point, bare_key, same_value, shown
from orchestrator.config.grid.values import Keys, nearest_key, one_value
from orchestrator.config.grid.yaml_nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Scalar,
    YamlFile,
    kind,
    plain_value,
)
from orchestrator.core.types import Value


def read_exclude(
    node: Node | None, base: Mapping[str, Value], axes: Sequence[Axis], source: YamlFile
) -> tuple[Point, ...]:
    """Parse entries that remove matching points; a list that is no value of its key means any of its items.

    An entry without a match is an error; an inherited one is left out.
    """
    known = [key for axis in axes for key in axis.keys]
    points = []
    for entries in _list_of_points(node, "exclude", source):
        for entry in entries.entries:
            if entry.key not in known and not entries.at.file:
                raise _not_an_axis(entry, base, known, source)
        alternatives = _alternatives(entries, axes)
        possible = [one for one in alternatives if _can_match(one, axes)]
        if not entries.at.file:
            if not alternatives:
                raise source.error(entries.at, "exclude: found an empty list, so nothing is excluded")
            for one in alternatives:
                _must_match(one, _point(one, source), axes, source, together=not possible)
        points += [_point(one, source) for one in possible]
    return tuple(points)


def _point(entries: Entries, source: YamlFile) -> Point:
    values = {one.key: one_value(one.key, one.node, source, where="exclude") for one in entries.entries}
    return Point(values, entries.at)


def _alternatives(entries: Entries, axes: Sequence[Axis]) -> list[Entries]:
    """Return an entry once for each combination of the items of its lists."""
    columns = {key: (axis, at) for axis in axes for at, key in enumerate(axis.keys)}

    def nodes(entry: KeyNode) -> Sequence[Node]:
        if not isinstance(entry.node, Items) or entry.key not in columns:
            return (entry.node,)
        axis, at = columns[entry.key]
        whole = same_value(plain_value(entry.node))
        return (
            (entry.node,) if any(same_value(step[at]) == whole for step in axis.steps) else entry.node.items
        )

    return [
        Entries(
            tuple(replace(entry, node=one) for entry, one in zip(entries.entries, chosen, strict=True)),
            entries.at,
        )
        for chosen in product(*map(nodes, entries.entries))
    ]


def read_include(node: Node | None, axes: Sequence[Axis], keys: Keys, source: YamlFile) -> tuple[Point, ...]:
    """Parse entries that each add one whole point: ``base`` and, over it, the entry's own keys."""
    wanted = [key for axis in axes for key in axis.keys]
    points = []
    for entries in _list_of_points(node, "include", source):
        values: dict[str, Value] = {}
        for entry in entries.entries:
            keys.check_key(entry.key, entry.at)
            if bare_key(entry.key) in map(bare_key, values):
                raise source.error(
                    entry.at, f"include: found {shown(entry.key)}, which the same point sets already"
                )
            values[entry.key] = value = one_value(entry.key, entry.node, source, where="include")
            keys.check_value(entry.key, value, entry.node.at)
            keys.positions.setdefault(bare_key(entry.key), entry.at)
        missing = [key for key in wanted if key not in values]
        if missing:
            near = [(key, nearest_key(key, missing)) for key in values if key not in wanted]
            swap = next((f"did you mean {right} instead of {key}?" for key, right in near if right), None)
            raise source.error(
                entries.at,
                f"include: the point lacks {', '.join(missing)}: an entry adds one whole point, "
                "it does not extend others",
                swap or "give it every key of matrix and zip",
            )
        points.append(Point(values, entries.at))
    return tuple(points)


def refuse_empty(
    sections: Mapping[str, KeyNode],
    base: Mapping[str, Value],
    axes: Sequence[Axis],
    include: Sequence[Point],
    source: YamlFile,
) -> None:
    """Raise for a grid without a point, or with too many."""
    if not axes and not include:
        if "matrix" in sections:
            raise source.error(
                sections["matrix"].node.at,
                "matrix: found nothing in it, expected at least one key with values",
                "a sweep of one run has no matrix at all" if base else None,
            )
        if not base:
            raise source.error(None, "the grid has neither base nor matrix", f"start from {source.example}")
    count = math.prod(len(axis.steps) for axis in axes)
    if count > MAX_POINTS:
        at = sections["matrix"].at if "matrix" in sections else None
        raise source.error(
            at, f"found {count:,} points, expected at most {MAX_POINTS:,}", "split it into several grids"
        )


def _list_of_points(node: Node | None, section: str, source: YamlFile) -> list[Entries]:
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return []
    example = f"such as {section}: [{{algorithm: iql, seed: 0}}]"
    if not isinstance(node, Items):
        raise source.unexpected(section, node, "a list of mappings", example)
    points = []
    for item in node.items:
        if not isinstance(item, Entries) or not item.entries:
            found = "an empty mapping" if isinstance(item, Entries) else kind(item)
            raise source.error(
                item.at, f"{section}: found {found}, expected a mapping of keys to values", example
            )
        points.append(item)
    return points


def _not_an_axis(
    entry: KeyNode, base: Mapping[str, Value], known: Sequence[str], source: YamlFile
) -> Exception:
    if entry.key in base:
        return source.error(
            entry.at,
            f"exclude: found {entry.key}, which base gives the same value in every point",
            "remove the key",
        )
    near = nearest_key(entry.key, known)
    return source.error(
        entry.at,
        f"exclude: found {shown(entry.key)}, expected keys of matrix or zip: {', '.join(known) or 'none'}",
        f"did you mean {near}?" if near else None,
    )


def _can_match(entries: Entries, axes: Sequence[Axis]) -> bool:
    """Return whether some points have the values of an entry."""
    known = {key for axis in axes for key in axis.keys}
    point = Point({entry.key: plain_value(entry.node) for entry in entries.entries}, entries.at)
    return point.values.keys() <= known and all(matching_steps(axis, point) for axis in axes)


def _must_match(
    entries: Entries, point: Point, axes: Sequence[Axis], source: YamlFile, *, together: bool
) -> None:
    """Raise for a value that no point has; ``together``: also for values that no point has at once."""
    for axis in axes:
        named = [entry for entry in entries.entries if entry.key in axis.keys]
        if matching_steps(axis, point):
            continue
        for entry in named:
            column = axis.keys.index(entry.key)
            values = list({same_value(step[column]): shown(step[column]) for step in axis.steps}.values())
            if same_value(point.values[entry.key]) not in {same_value(step[column]) for step in axis.steps}:
                found = shown(point.values[entry.key])
                near = nearest_key(found, values)
                raise source.error(
                    entry.node.at,
                    f"exclude: {entry.key} is never {found}, so nothing is excluded; "
                    f"expected one of: {', '.join(values[:10])}{', …' if len(values) > 10 else ''}",
                    f"did you mean {near}?" if near else None,
                )
        if together:
            pairs = ", ".join(f"{entry.key}={shown(point.values[entry.key])}" for entry in named)
            raise source.error(entries.at, f"exclude: zip never has {pairs} together, so nothing is excluded")


def matching_steps(axis: Axis, point: Point) -> list[int]:
    """Return the steps of an axis that match a point; all if the point has none of the axis's keys."""
    named = [
        (column, same_value(point.values[key])) for column, key in enumerate(axis.keys) if key in point.values
    ]
    return [
        number
        for number, step in enumerate(axis.steps)
        if all(same_value(step[column]) == wanted for column, wanted in named)
    ]

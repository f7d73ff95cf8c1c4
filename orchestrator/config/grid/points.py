"""Parse the sections ``exclude`` and ``include``: points listed one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.config.grid.model import MAX_POINTS, Axis, Exclusion, Point, bare_key, same_value
from orchestrator.config.grid.values import Keys, nearest_key, one_value, require_known
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    YamlFile,
    mappings,
    plain_value,
    shown,
)
from orchestrator.core.types import Value


def read_exclude(
    node: Node | None, base: Mapping[str, Value], axes: Sequence[Axis], source: YamlFile
) -> tuple[Exclusion, ...]:
    """Parse entries that remove matching points; a list that is no value of its key means any of its items.

    An entry without a match is an error; an inherited one is left out.
    """
    known = [key for axis in axes for key in axis.keys]
    exclusions = []
    for entries in _list_of_points(node, "exclude", source):
        own = not entries.at.file
        for entry in entries.entries:
            if entry.key not in known and own:
                raise _not_an_axis(entry, base, known, source)
        choices = {entry.key: _choices(entry, axes) for entry in entries.entries}
        exclusion = Exclusion({key: _spelled(nodes) for key, nodes in choices.items()}, entries.at)
        possible = exclusion.when.keys() <= set(known) and all(
            matching_steps(axis, exclusion.when) for axis in axes
        )
        if own and not all(choices.values()):
            raise source.error(entries.at, "exclude: found an empty list, so nothing is excluded")
        if own or possible:
            for key, nodes in choices.items():
                for item in nodes:
                    one_value(key, item, source, where="exclude")
        if own:
            _must_match(exclusion, choices, axes, source)
        if possible:
            exclusions.append(exclusion)
    return tuple(exclusions)


def _choices(entry: KeyNode, axes: Sequence[Axis]) -> Sequence[Node]:
    """Return the values of which a point has one."""
    column = [value for axis in axes if entry.key in axis.keys for value in _column(axis, entry.key)]
    if not isinstance(entry.node, Items) or not column:
        return (entry.node,)
    whole = same_value(plain_value(entry.node))
    return (entry.node,) if any(same_value(value) == whole for value in column) else entry.node.items


def _spelled(nodes: Sequence[Node]) -> frozenset[str]:
    return frozenset(same_value(plain_value(node)) for node in nodes)


def _column(axis: Axis, key: str) -> list[Value]:
    column = axis.keys.index(key)
    return [step[column] for step in axis.steps]


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


def _list_of_points(node: Node | None, section: str, source: YamlFile) -> Iterator[Entries]:
    example = f"such as {section}: [{{algorithm: iql, seed: 0}}]"
    return mappings(section, node, source, "a mapping of keys to values", example)


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


def _must_match(
    exclusion: Exclusion, choices: Mapping[str, Sequence[Node]], axes: Sequence[Axis], source: YamlFile
) -> None:
    """Raise for a value that no point has, and for values that no point has at once."""
    for axis in axes:
        named = [key for key in choices if key in axis.keys]
        for key in named:
            known = {same_value(value): shown(value) for value in _column(axis, key)}
            for node in choices[key]:
                require_known("exclude", key, node, known, source, so="excluded")
        if not matching_steps(axis, exclusion.when):
            pairs = ", ".join(f"{key}={shown(plain_value(choices[key][0]))}" for key in named)
            raise source.error(
                exclusion.at, f"exclude: zip never has {pairs} together, so nothing is excluded"
            )


def matching_steps(axis: Axis, when: Mapping[str, frozenset[str]]) -> list[int]:
    """Return the steps of an axis that have, for each of its keys in ``when``, one of the values there."""
    named = [(column, when[key]) for column, key in enumerate(axis.keys) if key in when]
    return [
        number
        for number, step in enumerate(axis.steps)
        if all(same_value(step[column]) in wanted for column, wanted in named)
    ]

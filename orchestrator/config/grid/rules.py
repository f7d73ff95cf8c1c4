"""Parse the section ``for``: keys of the points that agree with a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.config.grid.extends import SET
from orchestrator.config.grid.model import Axis, Point, Rule, bare_key, same_value
from orchestrator.config.grid.values import Keys, nearest_key, one_value, require_known
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Position,
    YamlFile,
    mappings,
    plain_value,
    shown,
)
from orchestrator.core.types import Value

_EXAMPLE = "such as for: [{algorithm: mappo, set: {experiment.lr: 1e-3}}]"
# Sections with several values for each key.
_AXES = ("matrix", "zip")
_OTHER_SETS = dict.fromkeys(("sets", "then", "with", "values", "overrides", "keys", "base", "use"), SET)

# The values that each key has in some point, as they are shown, by their spelling in same_value.
_Known = Mapping[str, Mapping[str, str]]


def read_rules(
    node: Node | None,
    base: Mapping[str, Value],
    axes: Sequence[Axis],
    include: Sequence[Point],
    keys: Keys,
    source: YamlFile,
) -> tuple[tuple[Rule, ...], tuple[Node, ...]]:
    """Parse entries that set keys of some points; return them, and their nodes.

    A condition that no point can meet is an error; of an inherited entry it is left out.
    """
    known = _known_values(base, axes, include)
    taken = {bare_key(key) for axis in axes for key in axis.keys}
    rules, nodes = [], []
    for entry in mappings("for", node, source, "a mapping with a condition and set", _EXAMPLE):
        _require_both(entry, source)
        narrowed = _narrowed(entry, known) if entry.at.file else entry
        if narrowed is not None:
            when = {one.key: _wanted(one, known, source) for one in narrowed.entries if one.key != SET}
            values, places = _values(narrowed, when, taken, keys, source)
            rules.append(Rule(when, values, entry.at, places))
            nodes.append(narrowed)
    return tuple(rules), tuple(nodes)


def _known_values(base: Mapping[str, Value], axes: Sequence[Axis], include: Sequence[Point]) -> _Known:
    known: dict[str, dict[str, str]] = {}
    for axis in axes:
        for column, key in enumerate(axis.keys):
            known[key] = {same_value(step[column]): shown(step[column]) for step in axis.steps}
    for values in (base, *(point.values for point in include)):
        for key, value in values.items():
            known.setdefault(key, {})[same_value(value)] = shown(value)
    return known


def _require_both(item: Entries, source: YamlFile) -> None:
    names = [entry.key for entry in item.entries]
    for entry in item.entries:
        if entry.key in _AXES:
            raise source.error(
                entry.at,
                f"for: found {entry.key}, and an entry gives a run one value for each key",
                "for several values of some runs alone write a second grid that extends this one, "
                "or give all values in matrix and exclude the others",
            )
    if SET not in names:
        meant = next((name for name in names if name in _OTHER_SETS), None)
        raise source.error(
            item.at,
            f"for: the entry has {', '.join(names)} and no {SET}, which holds the keys that these runs get",
            f"did you mean {SET} instead of {meant}?" if meant else _EXAMPLE,
        )
    if len(names) == 1:
        raise source.error(
            item.at,
            f"for: the entry has nothing but {SET}, expected a condition",
            "keys of every run go into base",
        )


def _narrowed(item: Entries, known: _Known) -> Entries | None:
    """Return an inherited entry with the values that points of this grid have; None without one."""
    entries = []
    for entry in item.entries:
        if entry.key != SET:
            several = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
            here = tuple(one for one in several if same_value(plain_value(one)) in known.get(entry.key, {}))
            if not here:
                return None
            entry = replace(entry, node=Items(here, entry.node.at))
        entries.append(entry)
    return Entries(tuple(entries), item.at)


def _wanted(entry: KeyNode, known: _Known, source: YamlFile) -> frozenset[str]:
    """Return the values of a condition's key: one, or any of a list."""
    if entry.key not in known:
        near = nearest_key(entry.key, known)
        raise source.error(
            entry.at,
            f"for: found {shown(entry.key)}, expected keys of the grid: {', '.join(known) or 'none'}",
            f"did you mean {near}?" if near else None,
        )
    several = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
    if not several:
        raise source.error(entry.node.at, f"for: found an empty list for {entry.key}, so nothing is set")
    for node in several:
        one_value(entry.key, node, source, where="for")
        require_known("for", entry.key, node, known[entry.key], source, so="set")
    return frozenset(same_value(plain_value(node)) for node in several)


def _values(
    item: Entries, when: Mapping[str, object], taken: set[str], keys: Keys, source: YamlFile
) -> tuple[dict[str, Value], dict[str, Position]]:
    """Return what an entry sets, with positions."""
    node = next(entry.node for entry in item.entries if entry.key == SET)
    if not isinstance(node, Entries) or not node.entries:
        raise source.unexpected(f"for: {SET}", node, "a mapping of the trainer's keys", _EXAMPLE)
    values: dict[str, Value] = {}
    places: dict[str, Position] = {}
    for entry in node.entries:
        keys.check_key(entry.key, entry.at)
        name = bare_key(entry.key)
        if name in taken or entry.key in when:
            where = "matrix or zip sets already" if name in taken else "is the entry's own condition"
            raise source.error(
                entry.at, f"for: {SET}: found {shown(entry.key)}, which {where}", "remove the line"
            )
        if name in places:
            raise source.error(
                entry.at, f"for: {SET}: found {shown(entry.key)}, which the same entry sets already"
            )
        values[entry.key] = value = one_value(entry.key, entry.node, source, where="for")
        keys.check_value(entry.key, value, entry.node.at)
        places[name] = entry.at
        keys.positions.setdefault(name, entry.at)
    return values, places

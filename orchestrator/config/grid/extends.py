"""Merge a grid with the files that it extends, and write what came out as one text."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from orchestrator.config.grid.model import bare_key
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    nearest,
    read_nodes,
    shown,
    texts,
)
from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.config.yaml_files.text import read_text

EXTENDS, ANCHORS, SET = "extends", "anchors", "set"
# Sections of keys: a key that a grid sets in one of them replaces an inherited one of any.
KEYED = ("base", "matrix", "zip")
_MAX_FILES = 50
_WIDTH = 110
_Kind = TypeVar("_Kind", Entries, Items)


class Extended:
    """A grid's sections with those of the files that it extends, and the names of these files."""

    def __init__(self, text: str, source: YamlFile, known: Callable[[Node, YamlFile], Entries]) -> None:
        """Read a grid's text and the files that it names; ``known`` refuses unknown sections.

        Raises :class:`GridError`.
        """
        self.files: list[str] = []
        self._known = known
        self.root = self._merged(text, source, ())

    def _merged(self, text: str, source: YamlFile, above: tuple[str, ...]) -> Entries:
        own = self._known(read_nodes(text, source), source)
        inherited: Entries | None = None
        here = (*above, os.path.realpath(source.name))
        for name, item in _names(own, source):
            parent = self._parent(name, item.at, source, here)
            inherited = parent if inherited is None else merge(inherited, parent, source)
        if inherited is None:
            return own
        return merge(_without(inherited, "name", ANCHORS), _without(own, EXTENDS), source)

    def _parent(self, name: str, at: Position, source: YamlFile, here: tuple[str, ...]) -> Entries:
        path = Path(source.name).parent / Path(name).expanduser()
        if not os.path.exists(path):
            near = nearest(path.stem, sorted(file.stem for file in path.parent.glob("*.yaml")))
            raise source.error(
                at,
                f"{EXTENDS}: found {shown(name)}, and there is no such file",
                f"paths are relative to {source.name}" + (f"; did you mean {near}.yaml?" if near else ""),
            )
        if os.path.realpath(path) in here:
            raise source.error(
                at,
                f"{EXTENDS}: found {shown(name)}, which extends this file",
                "remove one of both",
            )
        self.files.append(name)
        if len(self.files) > _MAX_FILES:
            raise source.error(at, f"{EXTENDS}: found more than {_MAX_FILES} files")
        parent = YamlFile(str(path), extended=True)
        root = self._merged(read_text(path, parent, lambda _path: ""), parent, here)
        return _moved(root, path.parent, Path(source.name).parent)


def merge(inherited: Entries, own: Entries, source: YamlFile) -> Entries:
    """Merge the sections of two grids; those of ``own`` come first. Raises :class:`GridError`."""
    mine = {bare_key(entry.key) for name in KEYED for entry in entries_of(own, name, source)}
    sections = {entry.key: entry for entry in inherited.entries} | {entry.key: entry for entry in own.entries}
    for name, entry in sections.items():
        theirs = entries_of(inherited, name, source) if name in (*KEYED, "resources") else ()
        if name in KEYED:
            together = entries_of(own, name, source)
            names = {bare_key(entry.key) for entry in together}
            kept = [one for one in theirs if bare_key(one.key) not in mine - names]
            sections[name] = replace(entry, node=Entries(_over(kept, together), entry.node.at))
        elif name == "resources":
            sections[name] = replace(
                entry, node=Entries(_over(theirs, entries_of(own, name, source)), entry.node.at)
            )
        elif name == "for":
            rules = _rules_without(_list(inherited, name, source), mine)
            sections[name] = replace(entry, node=Items((*rules, *_list(own, name, source)), entry.node.at))
        elif name == "exclude":
            both = (*_list(inherited, name, source), *_list(own, name, source))
            sections[name] = replace(entry, node=Items(both, entry.node.at))
    return Entries(tuple(sections.values()), own.at)


def written(root: Entries, head: str) -> str:
    """Return sections as the text of a grid, behind a comment of one line.

    Plain values are written as they were, so that they mean the same.
    """
    events = [
        yaml.StreamStartEvent(None, None),
        yaml.DocumentStartEvent(None, None, explicit=False),
        *_events(root, 0),
        yaml.DocumentEndEvent(None, None, explicit=False),
        yaml.StreamEndEvent(None, None),
    ]
    text: str = yaml.emit(events, allow_unicode=True, width=_WIDTH)
    return f"# {head}\n{text}"


def _names(root: Entries, source: YamlFile) -> Iterator[tuple[str, Node]]:
    """Yield the names of the files that a grid extends."""
    if (node := _node(root, EXTENDS)) is not None:
        expected = "the name of a grid file or a list of them"
        yield from texts(EXTENDS, node, source, expected, f"such as {EXTENDS}: common.yaml")


def _without(root: Entries, *names: str) -> Entries:
    return replace(root, entries=tuple(entry for entry in root.entries if entry.key not in names))


def _node(root: Entries, name: str) -> Node | None:
    return next((entry.node for entry in root.entries if entry.key == name), None)


def entries_of(root: Entries, name: str, source: YamlFile) -> tuple[KeyNode, ...]:
    """Return the keys of a section; none without the section."""
    node = _child(root, name, Entries, "a mapping", source)
    return () if node is None else node.entries


def _list(root: Entries, name: str, source: YamlFile) -> tuple[Node, ...]:
    node = _child(root, name, Items, "a list of mappings", source)
    return () if node is None else node.items


def _child(root: Entries, name: str, kind: type[_Kind], expected: str, source: YamlFile) -> _Kind | None:
    node = _node(root, name)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return None
    if not isinstance(node, kind):
        raise source.unexpected(name, node, expected)
    return node


def _over(inherited: Sequence[KeyNode], own: Sequence[KeyNode]) -> tuple[KeyNode, ...]:
    """Return both, each key once: an own one stands in the place of an inherited one."""
    mine = {bare_key(entry.key): entry for entry in own}
    kept = [mine.pop(bare_key(entry.key), entry) for entry in inherited]
    return (*kept, *(entry for entry in own if bare_key(entry.key) in mine))


def _rules_without(items: Sequence[Node], keys: Collection[str]) -> Iterator[Node]:
    """Yield inherited entries of `for` without what they set of these keys."""
    for item in items:
        values = _node(item, SET) if isinstance(item, Entries) else None
        if not isinstance(item, Entries) or not isinstance(values, Entries):
            yield item
            continue
        kept = tuple(entry for entry in values.entries if bare_key(entry.key) not in keys)
        if kept or not values.entries:
            yield Entries(
                tuple(
                    replace(entry, node=Entries(kept, values.at)) if entry.key == SET else entry
                    for entry in item.entries
                ),
                item.at,
            )


def _moved(root: Entries, folder: Path, to: Path) -> Entries:
    """Return an inherited grid with the folders of its plug-ins relative to another folder."""

    def moved(node: Node) -> Node:
        if isinstance(node, Items):
            return replace(node, items=tuple(map(moved, node.items)))
        text = node.value if isinstance(node, Scalar) else None
        if not isinstance(text, str) or ("/" not in text and text not in (".", "..")):
            return node
        place = Path(text).expanduser()
        if not place.is_absolute():
            # With a slash it is a folder, never an installed package.
            place = Path(".", os.path.relpath(folder / place, to))
        name = str(place) if "/" in str(place) else f"./{place}"
        return Scalar(name, False, node.at, name)

    return replace(
        root,
        entries=tuple(
            replace(entry, node=moved(entry.node)) if entry.key == "plugins" else entry
            for entry in root.entries
        ),
    )


def _events(node: Node, depth: int) -> Iterator[Any]:
    """Yield a node's YAML events: blocks down to the keys of a section, brackets and braces below."""
    flow = depth > 1 and not (depth == 2 and isinstance(node, Entries))
    if isinstance(node, Scalar):
        # A plain text that cannot stand between brackets gets quotes.
        implicit = node.plain, isinstance(node.value, str)
        text = "null" if node.value is None else node.text
        yield yaml.ScalarEvent(None, None, implicit, text, style=None if node.plain else '"')
    elif isinstance(node, Items):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=flow)
        for item in node.items:
            yield from _events(item, depth + 1)
        yield yaml.SequenceEndEvent()
    else:
        yield yaml.MappingStartEvent(None, None, True, flow_style=flow)
        for entry in node.entries:
            plain = entry.key != "<<" and isinstance(_resolved(entry.key), str)
            yield yaml.ScalarEvent(None, None, (plain, True), entry.key, style=None if plain else '"')
            yield from _events(entry.node, depth + 1)
        yield yaml.MappingEndEvent()


def _resolved(text: str) -> Any:
    """Return what a plain scalar is; None where it is nothing that a grid can hold."""
    try:
        return resolve(text)
    except ValueError:
        return None

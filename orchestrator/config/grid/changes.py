"""Change keys of a grid for one command, as a grid would that extends it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from orchestrator.config.grid.extends import EXTENDS, KEYED, entries_of, merge
from orchestrator.config.grid.hydra_sweeps import looks_like_sweep
from orchestrator.config.grid.model import bare_key
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    read_nodes,
)

_OPTION = "--set "


def changed(root: Entries, changes: Sequence[str], known: Collection[str], source: YamlFile) -> Entries:
    """Return a grid with each ``key=value`` of ``changes``; ``known``: the names of sections.

    A key of the trainer takes the place of that key in any section. A list, or a text such as ``range(3)``,
    is several values, unless the key has a list in `base`. Raises :class:`GridError`.
    """
    for change in changes:
        name, given, text = change.partition("=")
        place = YamlFile(f"{_OPTION}{change}", extended=True)
        if not name or not given or not text.strip():
            hint = "an empty text is ''" if given and name else None
            raise place.error(None, "found no value, expected key=value, as in lr=1e-4", hint)
        if name == EXTENDS:
            raise place.error(None, "a change cannot extend a grid", "write it in the grid file")
        at = Position(1, len(_OPTION) + 1, place.name)
        node = read_nodes(" " * (len(_OPTION) + len(name) + 1) + text, place)
        root = merge(root, Entries((_section(KeyNode(name, at, node), root, known, source),), at), source)
    return root


def _section(change: KeyNode, root: Entries, known: Collection[str], source: YamlFile) -> KeyNode:
    """Return the section that a change stands in, with nothing but the change."""
    if change.key in known:
        return change
    section, _, key = change.key.partition(".")
    if section in (*KEYED, "resources") and key:
        inner = KeyNode(key, change.at, change.node)
    else:
        section, inner = _placed(change, root, source)
    return KeyNode(section, change.at, Entries((inner,), change.at))


def _placed(change: KeyNode, root: Entries, source: YamlFile) -> tuple[str, KeyNode]:
    """Return the section of a trainer's key, and the key as it is spelled there."""
    section, former = next(
        (
            (name, entry)
            for name in KEYED
            for entry in entries_of(root, name, source)
            if bare_key(entry.key) == bare_key(change.key)
        ),
        ("", change),
    )
    key, node = former.key if bare_key(change.key) == change.key else change.key, change.node
    if _is_several(node) and not (section == "base" and isinstance(former.node, Items | Entries)):
        return (section if section in ("matrix", "zip") else "matrix"), KeyNode(key, change.at, node)
    if section == "matrix":
        return section, KeyNode(key, change.at, Items((node,), node.at))
    return "base", KeyNode(key, change.at, node)


def _is_several(node: Node) -> bool:
    text = node.value if isinstance(node, Scalar) and node.plain else None
    return isinstance(node, Items) or (isinstance(text, str) and looks_like_sweep(text))

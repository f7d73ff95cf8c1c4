"""Parse YAML into values with positions. Refuse duplicate keys and tags; fill in aliases and merge keys."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.core.errors import GridError, PlacedError
from orchestrator.core.types import Value

# libyaml if installed: ten times as fast. Only its events: its composer recurses without a limit.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MAX_DEPTH = 20
# Values in all that aliases may stand for: nested ones multiply.
_MAX_ALIASED = 200_000
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
# In place of the key <<, which in quotes is text.
_MERGE = "\0merge"


class Position(NamedTuple):
    """A position in a file; both numbers count from 1. ``file``: one that the grid extends, else empty."""

    line: int
    column: int
    file: str = ""


@dataclass(frozen=True)
class Scalar:
    """A single value. ``text`` is its spelling: ``0123``, where ``value`` is the number 123."""

    value: Value
    plain: bool
    at: Position
    text: str


@dataclass(frozen=True)
class Items:
    """A YAML list."""

    items: tuple[Node, ...]
    at: Position


@dataclass(frozen=True)
class KeyNode:
    """A key of a YAML mapping with its value."""

    key: str
    at: Position
    node: Node


@dataclass(frozen=True)
class Entries:
    """A YAML mapping."""

    entries: tuple[KeyNode, ...]
    at: Position


Node = Scalar | Items | Entries


@dataclass(frozen=True)
class YamlFile:
    """A file in error messages. ``noun``: the kind of file; ``example``: one to start from.

    ``extended``: a grid extends it, so that positions in it name it.
    """

    name: str
    noun: str = "grid"
    example: str = "the one that `orchestrate init` writes"
    failure: type[PlacedError] = GridError
    extended: bool = False

    def position(self, mark: Any) -> Position:
        """Return the position of a mark of the YAML parser."""
        return Position(mark.line + 1, mark.column + 1, self.name if self.extended else "")

    def error(self, at: Position | None, message: str, hint: str | None = None) -> PlacedError:
        """Make an error of the file's kind at a position."""
        line, column, file = at if at is not None else (None, None, "")
        return self.failure(message, file=file or self.name, line=line, column=column, hint=hint)

    def unexpected(self, key: str, node: Node, expected: str, hint: str | None = None) -> PlacedError:
        """Make an error for a key with another kind of value than ``expected``."""
        return self.error(node.at, f"{key}: found {kind(node)}, expected {expected}", hint)


def nearest(name: str, names: Iterable[str], others: Mapping[str, str] | None = None) -> str | None:
    """Return the name nearest to a misspelt one; ``others`` maps other common words to names."""
    near = difflib.get_close_matches(name, list(names), 1)
    return (others or {}).get(name) or (near[0] if near else None)


def did_you_mean(
    name: str, names: Iterable[str], others: Mapping[str, str] | None = None, otherwise: str | None = None
) -> str | None:
    """Return the hint for an unknown name."""
    near = nearest(name, names, others)
    return f"did you mean {near}?" if near else otherwise


def read_nodes(text: str, source: YamlFile) -> Node:
    """Parse the single document of a YAML text. Raises the source's kind of :class:`PlacedError`."""
    reader = _Reader(source)
    try:
        events = yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER)
        return reader.document(events)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, source) from None
    except (yaml.YAMLError, UnicodeError):
        raise _bad_character(text, source) from None


def plain_value(node: Node) -> Value:
    """Return the JSON value of a node."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain_value(item) for item in node.items]
    return {entry.key: plain_value(entry.node) for entry in node.entries}


def scalars(node: Node) -> Iterator[Scalar]:
    """Yield every scalar inside a node."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Items):
        for item in node.items:
            yield from scalars(item)
    else:
        for entry in node.entries:
            yield from scalars(entry.node)


def texts(key: str, node: Node, source: YamlFile, expected: str, hint: str) -> Iterator[tuple[str, Node]]:
    """Yield the texts of a key that has one or a list of them, each with its node."""
    for item in node.items if isinstance(node, Items) else (node,):
        if not isinstance(item, Scalar) or not isinstance(item.value, str) or not item.value:
            raise source.unexpected(key, item, expected, hint)
        yield item.value, item


def mappings(
    section: str, node: Node | None, source: YamlFile, expected: str, example: str
) -> Iterator[Entries]:
    """Yield the mappings, none of them empty, of a section that lists them."""
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return
    if not isinstance(node, Items):
        raise source.unexpected(section, node, "a list of mappings", example)
    for item in node.items:
        if not isinstance(item, Entries) or not item.entries:
            raise source.unexpected(section, item, expected, example)
        yield item


def read_flag(key: str, node: Node, source: YamlFile) -> bool:
    """Read true or false."""
    if not isinstance(node, Scalar) or not isinstance(node.value, bool):
        raise source.unexpected(key, node, "true or false")
    return node.value


def kind(node: Node) -> str:
    """Describe a node for an error message."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Entries):
        return "a mapping" if node.entries else "an empty mapping"
    return "nothing" if node.value is None else shown(node.value)


@dataclass(frozen=True)
class _Anchored:
    """A node with an anchor. ``height``: levels below it; ``size``: values in it, those of aliases too."""

    node: Node
    height: int
    size: int


class _Reader:
    def __init__(self, source: YamlFile) -> None:
        self.source = source
        self._anchors: dict[str, _Anchored] = {}
        self._size = self._deepest = 0

    def document(self, events: Iterator[Any]) -> Node:
        node: Node | None = None
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                if node is not None:
                    raise self.source.error(
                        self.at(event), f"found a second document, expected one {self.source.noun} per file"
                    )
                node = self.node(event, events, 0)
        if node is None:
            raise self.source.error(None, "the file is empty", f"start from {self.source.example}")
        return node

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        at = self.at(event)
        if isinstance(event, yaml.AliasEvent):
            return self.aliased(str(event.anchor), at, depth)
        self.refuse_tag(event, at)
        if event.anchor in self._anchors:
            first = self._anchors[event.anchor].node.at
            raise self.source.error(at, f"found &{event.anchor} twice: it is already on line {first.line}")
        self.descend(depth, at)
        if event.anchor is None:
            return self.content(event, at, events, depth)
        size, deepest = self._size, self._deepest
        self._deepest = depth
        node = self.content(event, at, events, depth)
        self._anchors[event.anchor] = _Anchored(node, self._deepest - depth, self._size - size + 1)
        self._deepest = max(deepest, self._deepest)
        return node

    def content(self, event: Any, at: Position, events: Iterator[Any], depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, at)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, depth + 1))
            return Items(tuple(items), at)
        entries: dict[str, KeyNode] = {}
        merged: list[KeyNode] = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            entry = self.entry(event, events, depth)
            if entry.key in entries:
                first, name = entries[entry.key].at, "<<" if entry.key == _MERGE else shown(entry.key)
                raise self.source.error(entry.at, f"found {name} twice: it is already on line {first.line}")
            if entry.key == _MERGE:
                merged += self.merged(entry)
            entries[entry.key] = entry
        # As YAML's merge keys do: own keys first, then the earlier mapping.
        in_order = {entry.key: entry for entry in reversed(merged)}
        in_order = {entry.key: in_order[entry.key] for entry in merged} | entries
        return Entries(tuple(entry for key, entry in in_order.items() if key != _MERGE), at)

    def entry(self, event: Any, events: Iterator[Any], depth: int) -> KeyNode:
        at = self.at(event)
        if not isinstance(event, yaml.ScalarEvent):
            told = "an alias" if isinstance(event, yaml.AliasEvent) else "a list or mapping"
            raise self.source.error(at, f"found {told} as a key, expected text")
        self.refuse_tag(event, at)
        if event.anchor is not None:
            raise self.source.error(
                at, f"found &{event.anchor} on a key", f"write it behind the colon: {event.value}: &…"
            )
        key = self.scalar(event, at)
        if not isinstance(key.value, str) or not key.value:
            raise self.source.error(at, f"found the key {event.value or '(empty)'}, expected text")
        name = _MERGE if key.plain and key.value == "<<" else key.value
        return KeyNode(name, at, self.node(next(events), events, depth + 1))

    def aliased(self, name: str, at: Position, depth: int) -> Node:
        """Return the node that an alias stands for; it keeps the position of its anchor."""
        anchored = self._anchors.get(name)
        if anchored is None:
            raise self.source.error(
                at,
                f"found *{name}, and no &{name} that ends above it",
                did_you_mean(name, self._anchors, otherwise="a text that starts with * needs quotes"),
            )
        self._size += anchored.size
        if self._size > _MAX_ALIASED:
            raise self.source.error(at, f"found *{name}: aliases stand for more than {_MAX_ALIASED:,} values")
        self.descend(depth + anchored.height, at)
        return anchored.node

    def merged(self, entry: KeyNode) -> list[KeyNode]:
        """Return the entries of the mappings behind a merge key."""
        nodes = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
        for node in nodes:
            if not isinstance(node, Entries):
                raise self.source.unexpected("<<", node, "a mapping, such as <<: *common")
        return [inner for node in nodes if isinstance(node, Entries) for inner in node.entries]

    def scalar(self, event: Any, at: Position) -> Scalar:
        text: str = event.value
        plain = event.implicit[0] and event.style in (None, "")
        if unusable := _UNUSABLE.search(text):
            raise self.source.error(
                at, f"found the character {unusable[0]!r}, which no program takes as an argument"
            )
        if not plain:
            return Scalar(text, False, at, text)
        try:
            return Scalar(resolve(text), True, at, text)
        except ValueError as error:
            raise self.source.error(at, f"found {shown(text)}: {error}") from None

    def descend(self, depth: int, at: Position) -> None:
        if depth > _MAX_DEPTH:
            raise self.source.error(at, f"found values nested more than {_MAX_DEPTH} deep")
        self._size += 1
        self._deepest = max(self._deepest, depth)

    def refuse_tag(self, event: Any, at: Position) -> None:
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self.source.error(
                at,
                f"found the tag {tag}, which {self.source.noun}s do not have",
                "quotes make text; 1.0 and 1 are numbers",
            )

    def at(self, event: Any) -> Position:
        return self.source.position(event.start_mark)


def _syntax_error(error: yaml.MarkedYAMLError, source: YamlFile) -> PlacedError:
    mark = error.problem_mark or error.context_mark
    at = source.position(mark) if mark is not None else None
    problem = error.problem or "it cannot be read"
    context = f" {error.context}" if error.context else ""
    hint = None
    if "start any token" in problem or "tab" in problem:
        hint = "indent with spaces, not tabs; quote text that starts with a special character such as @ or %"
    elif "mapping values are not allowed" in problem:
        hint = "check the indentation, and quote text that has a colon followed by a space"
    elif "flow" in context:
        hint = "a bracket or brace that was opened is not closed"
    return source.error(at, f"this is not YAML:{context} {problem}", hint)


def _bad_character(text: str, source: YamlFile) -> PlacedError:
    """Locate the bad character: PyYAML gives such positions in bytes or not at all."""
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        for column, character in enumerate(line, 1):
            if not (character.isprintable() or character in "\t\x85\xa0\u2028\u2029 "):
                return source.error(
                    Position(number, column),
                    f"found the character {character!r}, which YAML files cannot hold",
                    "in double quotes it can be written as an escape",
                )
    return source.error(None, "this is not YAML: it cannot be read")


def shown(value: Value) -> str:
    """Return a value in a grid's spelling, cut to 60 characters."""
    if isinstance(value, str) and value.isprintable() and value:
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

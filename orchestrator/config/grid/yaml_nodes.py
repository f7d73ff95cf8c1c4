"""Parse YAML into values with positions. Refuse duplicate keys, tags, anchors and merge keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from orchestrator.config.grid.model import Position, shown
from orchestrator.config.grid.yaml_scalars import resolve
from orchestrator.core.errors import GridError, PlacedError
from orchestrator.core.types import Value

# libyaml if installed: ten times as fast. Only its events: its composer recurses without a limit.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MAX_DEPTH = 20
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


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
    """A file in error messages. ``noun``: the kind of file; ``example``: one to start from."""

    name: str
    noun: str = "grid"
    example: str = "the one that `orchestrate init` writes"
    failure: type[PlacedError] = GridError

    def error(self, at: Position | None, message: str, hint: str | None = None) -> PlacedError:
        """Make an error of the file's kind at a position."""
        line, column = at if at is not None else (None, None)
        return self.failure(message, file=self.name, line=line, column=column, hint=hint)

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


def kind(node: Node) -> str:
    """Describe a node for an error message."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Entries):
        return "a mapping"
    return "nothing" if node.value is None else shown(node.value)


class _Reader:
    def __init__(self, source: YamlFile) -> None:
        self.source = source

    def document(self, events: Iterator[Any]) -> Node:
        node: Node | None = None
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                if node is not None:
                    raise self.source.error(
                        _start(event), f"found a second document, expected one {self.source.noun} per file"
                    )
                node = self.node(event, events, 0)
        if node is None:
            raise self.source.error(None, "the file is empty", f"start from {self.source.example}")
        return node

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        at = _start(event)
        self.refuse_extras(event, at)
        if depth > _MAX_DEPTH:
            raise self.source.error(at, f"found values nested more than {_MAX_DEPTH} deep")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, at)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, depth + 1))
            return Items(tuple(items), at)
        entries: dict[str, KeyNode] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            entry = self.entry(event, events, depth)
            if entry.key in entries:
                first = entries[entry.key].at
                raise self.source.error(
                    entry.at, f"found {shown(entry.key)} twice: it is already on line {first.line}"
                )
            entries[entry.key] = entry
        return Entries(tuple(entries.values()), at)

    def entry(self, event: Any, events: Iterator[Any], depth: int) -> KeyNode:
        at = _start(event)
        self.refuse_extras(event, at)
        if not isinstance(event, yaml.ScalarEvent):
            raise self.source.error(at, "found a list or mapping as a key, expected text")
        key = self.scalar(event, at)
        if key.plain and event.value == "<<":
            raise self.source.error(
                at, f"found a merge key (<<), which {self.source.noun}s do not have", "write the keys out"
            )
        if not isinstance(key.value, str) or not key.value:
            raise self.source.error(at, f"found the key {event.value or '(empty)'}, expected text")
        return KeyNode(key.value, at, self.node(next(events), events, depth + 1))

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

    def refuse_extras(self, event: Any, at: Position) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            mark = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise self.source.error(
                at,
                f"found {mark}{event.anchor}: {self.source.noun}s have neither anchors nor aliases",
                "write the value out; a text that starts with & or * needs quotes",
            )
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self.source.error(
                at,
                f"found the tag {tag}, which {self.source.noun}s do not have",
                "quotes make text; 1.0 and 1 are numbers",
            )


def _start(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _syntax_error(error: yaml.MarkedYAMLError, source: YamlFile) -> PlacedError:
    mark = error.problem_mark or error.context_mark
    at = Position(mark.line + 1, mark.column + 1) if mark is not None else None
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

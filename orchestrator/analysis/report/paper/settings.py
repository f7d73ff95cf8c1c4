"""Read the file that chooses panels, labels, order, colours and size of a paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.colors import is_color_like

from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    Node,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    kind,
    plain_value,
    read_nodes,
    shown,
)
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.formatting import listed

_EXAMPLE = "as in: style: neurips"
_MOST_NAMED = 8


class Style(NamedTuple):
    """A venue's widths in inches, of a column and of the text, and its font's family and size in points."""

    column: float
    text: float
    font: str
    size: float


# By the venues' LaTeX templates; fonts are those that matplotlib brings, STIX for Times.
STYLES = {
    "neurips": Style(5.5, 5.5, "STIXGeneral", 8),
    "iclr": Style(5.5, 5.5, "STIXGeneral", 8),
    "icml": Style(3.25, 6.75, "STIXGeneral", 8),
    "ieee": Style(3.5, 7.16, "STIXGeneral", 8),
    "plain": Style(4.0, 7.0, "DejaVu Sans", 8),
}
_WIDTHS = ("column", "text")


@dataclass(frozen=True)
class FigureSettings:
    """``panels``: titles by task, ``variants``: labels by variant, both in order; empty for all.

    ``scores``: by task, the returns that count as 0 and 1. ``columns``: panels side by side.
    """

    style: Style = STYLES["neurips"]
    width: float = STYLES["neurips"].text
    columns: int | None = None
    panels: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    colors: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def read_settings(path: Path, tasks: Collection[str], variants: Collection[str]) -> FigureSettings:
    """Read the file; ``tasks`` and ``variants`` are those that it may name.

    Raises :class:`GridError` with line, column, what was found, what was expected, the nearest spelling.
    """
    source = YamlFile(str(path), "figures", "`style: neurips`")
    root = read_nodes(read_text(path, source, lambda _: _EXAMPLE), source)
    if not isinstance(root, Entries):
        raise source.error(root.at, f"found {kind(root)}, expected keys such as style: neurips")
    read = _Reader(source, tasks, variants)
    found: dict[str, Any] = {}
    for entry in root.entries:
        if entry.key not in _KEYS:
            raise _unknown(source, entry.at, f"found the key {entry.key}", entry.key, _KEYS)
        found[entry.key] = _KEYS[entry.key](read, entry.key, entry.node)
    style = found.pop("style", FigureSettings.style)
    width = found.pop("width", "text")
    inches = width if isinstance(width, float) else style.column if width == "column" else style.text
    return FigureSettings(style, inches, **found)


def _unknown(source: YamlFile, at: Position, found: str, name: str, names: Collection[str]) -> Exception:
    expected = f"{found}, expected one of: {listed(list(names), _MOST_NAMED)}"
    return source.error(at, expected, did_you_mean(name, names))


class _Reader(NamedTuple):
    """Reads the values of keys."""

    source: YamlFile
    tasks: Collection[str]
    known: Collection[str]

    def text(self, key: str, node: Node, names: Collection[str] | None = None) -> str:
        if not isinstance(node, Scalar) or isinstance(node.value, bool | None):
            raise self.source.unexpected(key, node, "a text")
        if names is not None and node.text not in names:
            raise _unknown(self.source, node.at, f"{key}: found {node.text}", node.text, names)
        return node.text

    def named(self, key: str, node: Node, names: Collection[str]) -> Iterator[tuple[str, Node]]:
        """Yield the names of a mapping, each with its value."""
        if not isinstance(node, Entries):
            raise self.source.unexpected(key, node, f"a mapping, of {listed(list(names), _MOST_NAMED)}")
        for entry in node.entries:
            if entry.key not in names:
                raise _unknown(self.source, entry.at, f"{key}: found {entry.key}", entry.key, names)
            yield entry.key, entry.node

    def labels(self, key: str, node: Node, names: Collection[str]) -> dict[str, str]:
        """Read a list of names, or a mapping of names to their labels."""
        if isinstance(node, Items):
            own = [self.text(key, item, names) for item in node.items]
            return dict(zip(own, own, strict=True))
        return {name: self.text(f"{key}: {name}", one) for name, one in self.named(key, node, names)}

    def number(self, key: str, node: Node) -> float:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 100:
            raise self.source.unexpected(key, node, "a number from 0 to 100")
        return float(value)

    def width(self, key: str, node: Node) -> float | str:
        text = isinstance(node, Scalar) and isinstance(node.value, str)
        return self.text(key, node, _WIDTHS) if text else self.number(key, node)

    def color(self, key: str, node: Node) -> str:
        text = self.text(key, node)
        if not is_color_like(text):
            raise self.source.error(node.at, f"{key}: found {text}, expected a colour", 'as in: "#0072b2"')
        return text

    def ends(self, key: str, node: Node) -> tuple[float, float]:
        value = plain_value(node)
        values = value if isinstance(value, list) else []
        numbers = [float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(numbers) != 2 or numbers[0] == numbers[1]:
            expected = "two returns, those of scores 0 and 1, as in [0, 100]"
            raise self.source.error(node.at, f"{key}: found {shown(value)}, expected {expected}")
        return numbers[0], numbers[1]


_KEYS: Mapping[str, Callable[[_Reader, str, Node], Any]] = {
    "style": lambda read, key, node: STYLES[read.text(key, node, STYLES)],
    "width": _Reader.width,
    "columns": lambda read, key, node: max(1, int(read.number(key, node))),
    "panels": lambda read, key, node: read.labels(key, node, read.tasks),
    "variants": lambda read, key, node: read.labels(key, node, read.known),
    "colors": lambda read, key, node: {
        name: read.color(f"{key}: {name}", one) for name, one in read.named(key, node, read.known)
    },
    "scores": lambda read, key, node: {
        name: read.ends(f"{key}: {name}", one) for name, one in read.named(key, node, read.tasks)
    },
}

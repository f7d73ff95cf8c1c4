"""Tables of one line a row, with a column per key of the grid, that fit the width of a terminal.

Where the terminal is too narrow, headings are first folded, then prefixes that all values of a key share are
said once above the table, and last the widest keys become headings between rows. Elsewhere, as in a pipe, a
row has all of its values and nothing is folded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from orchestrator.core.formatting import plain

_GAP = "  "
_INDENT = "  "
_HEADING = "cyan"
# A shorter prefix is not worth a line above the table.
_LEAST_PREFIX = 4
# Names are folded to lines of this length, or as long as their longest part.
_LINE = 8
_PIECES = re.compile(r"[^\s_.]+[_.]*|[_.]+")


@dataclass(frozen=True)
class Column:
    """A column; ``key``: it may become headings between rows. Cells are numbers, or ``left`` text."""

    name: str
    cells: Sequence[Text]
    left: bool = False
    key: bool = False

    @property
    def width(self) -> int:
        return max(map(cell_len, (*self.name.split("\n"), *(cell.plain for cell in self.cells))), default=0)

    def folded(self) -> Column:
        """Return the column with its name on several lines, no wider than its cells where that can be."""
        pieces = _PIECES.findall(self.name)
        target = max(_LINE, *map(cell_len, (*pieces, *(cell.plain for cell in self.cells))))
        lines = [""]
        for piece in pieces:
            space = " " if lines[-1] and lines[-1][-1] not in "_." else ""
            if cell_len(lines[-1] + space + piece) <= target:
                lines[-1] += space + piece
            else:
                lines.append(piece)
        return replace(self, name="\n".join(filter(None, lines)))

    def prefix(self) -> str:
        """Return what all values begin with, up to a separator; empty if that saves little."""
        if not self.key or len({cell.plain for cell in self.cells}) < 2:
            return ""
        common = os.path.commonprefix([cell.plain for cell in self.cells])  # noqa: RUF071 (of characters)
        end = max(common.rfind(mark) for mark in "._/-") + 1
        return common[:end] if end >= _LEAST_PREFIX else ""

    def without(self, prefix: str) -> Column:
        return replace(self, cells=[cell[len(prefix) :] for cell in self.cells])


class _Layout(NamedTuple):
    columns: Sequence[Column]
    prefixes: dict[str, str]
    moved: Sequence[Column]

    def fits(self, width: int) -> bool:
        taken = sum(column.width for column in self.columns) + len(_GAP) * (len(self.columns) - 1)
        return taken + len(_INDENT) * bool(self.moved) <= width


class KeyTable:
    """A table with keys of the grid as columns; one without cells is left out if it is no key."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [one for one in columns if one.key or one.left or any(map(len, one.cells))]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self.lines(options.max_width if console.is_terminal else None)

    def lines(self, width: int | None) -> Iterator[Text]:
        """Yield the lines of the table, in as many columns of characters; ``None``: as many as it needs."""
        layout = self._laid_out(width)
        for name, prefix in layout.prefixes.items():
            yield Text(f"{name}: {prefix}…", style="dim")
        widths = [column.width for column in layout.columns]
        indent = _INDENT * bool(layout.moved)
        names = [column.name.split("\n") for column in layout.columns]
        for number in range(depth := max(map(len, names), default=0)):
            line = [Text(lines[at] if (at := number - depth + len(lines)) >= 0 else "") for lines in names]
            yield _line(indent, line, layout.columns, widths, "bold")
        rows = range(len(self._columns[0].cells) if self._columns else 0)
        values = {row: tuple(one.cells[row].plain for one in layout.moved) for row in rows}
        first = {value: number for number, value in reversed([*enumerate(values.values())])}
        for value, alike in groupby(sorted(rows, key=lambda row: first[values[row]]), values.__getitem__):
            heads = [f"{one.name}={text}" for one, text in zip(layout.moved, value, strict=True)]
            yield from (Text(line, style=_HEADING) for line in _packed(heads, width or 0))
            for row in alike:
                yield _line(indent, [one.cells[row] for one in layout.columns], layout.columns, widths)

    def _laid_out(self, width: int | None) -> _Layout:
        if width is None:
            flat = [replace(one, name=one.name.replace("\n", " ")) for one in self._columns]
            return _Layout(flat, {}, ())
        moved: list[Column] = []
        while True:
            stay = [one for one in self._columns if one not in moved]
            layouts = _layouts(stay, [one for one in self._columns if one in moved])
            for layout in layouts:
                if layout.fits(width):
                    return layout
            keys = [one for one in layout.columns if one.key]
            if not keys:
                return layout
            widest = max(keys, key=lambda one: one.width)
            moved.append(stay[layout.columns.index(widest)])


def _layouts(columns: Sequence[Column], moved: Sequence[Column]) -> Iterator[_Layout]:
    """Yield ways to show these columns, from the plainest to the narrowest."""
    yield _Layout(columns, {}, moved)
    folded = [one.folded() for one in columns]
    yield _Layout(folded, {}, moved)
    prefixes = {one.name: prefix for one in columns if (prefix := one.prefix())}
    yield _Layout([one.without(prefixes.get(one.name, "")).folded() for one in columns], prefixes, moved)


def _line(
    indent: str, cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int], style: str = ""
) -> Text:
    line = Text(indent, style=style)
    for cell, column, width in zip(cells, columns, widths, strict=True):
        space = " " * (width - cell_len(cell.plain))
        line.append_text(Text.assemble(cell, space) if column.left else Text.assemble(space, cell))
        line.append(_GAP)
    line.rstrip()
    return line


def _packed(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield the parts side by side on as few lines as hold them; a longer one loses its middle."""
    line = ""
    for part in parts:
        if line and cell_len(line + _GAP + part) > width:
            yield line
            line = ""
        line += _GAP * bool(line) + shortened(part, width)
    if line:
        yield line


def shortened(text: str, width: int) -> str:
    """Return the text without its middle where it is longer."""
    if cell_len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[: width - 1 - half]}…{text[-half:]}" if half else text[:width]


def cell(text: object, style: str = "") -> Text:
    """Return text as a cell, with its control characters escaped."""
    return Text(plain(str(text)), style=style)

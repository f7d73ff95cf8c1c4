"""Tables of one line a row, with a column per key of the grid, that fit the width of a terminal.

Where the terminal is too narrow, headings are first folded, then prefixes that all values of a key share are
said once above the table, and last the widest keys become headings between rows. Where each row would have a
heading of its own, up to half of the figures are left out in the keys' place, and named above the table, as
in a terminal too narrow for the figures alone. Elsewhere, as in a pipe, a row has all of its values and
nothing is folded.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from orchestrator.core.formatting import printable

Parts = tuple[str, ...]

_GAP = "  "
_INDENT = "  "
_HEADING = "cyan"
# A shorter prefix is not worth a line above the table.
_LEAST_PREFIX = 4
# Names are folded to lines of this length, or as long as their longest part.
_LINE = 8
_WORDS, _SYLLABLES = re.compile(r"[^\s_.]+[_.]*|[_.]+"), re.compile(r"[^\s_.-]+[_.-]*|[_.-]+")


@dataclass(frozen=True)
class ScreenColumn:
    """A column; ``key``: it may become headings between rows. Cells are numbers, or ``left`` text.

    ``rank``: figures of the highest are left out first where there is no room, those of rank 0 last.
    """

    name: str
    cells: Sequence[Text]
    left: bool = False
    key: bool = False
    rank: int = 1

    @property
    def needed(self) -> bool:
        return self.key or self.left or self.rank == 0

    @cached_property  # each line asks, and there are as many lines as cells
    def width(self) -> int:
        return max(map(cell_len, (*self.name.split("\n"), *(cell.plain for cell in self.cells))), default=0)

    def folded(self, at: re.Pattern[str] = _WORDS) -> ScreenColumn:
        """Return the column with its name on several lines, no wider than its cells where that can be."""
        pieces = at.findall(self.name)
        target = max(_LINE, *map(cell_len, (*pieces, *(cell.plain for cell in self.cells))))
        lines = [""]
        for piece in pieces:
            space = " " if lines[-1] and lines[-1][-1] not in "_.-" else ""
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

    def without(self, prefix: str) -> ScreenColumn:
        return replace(self, cells=[cell[len(prefix) :] for cell in self.cells])


class _Layout(NamedTuple):
    columns: Sequence[ScreenColumn]
    prefixes: dict[str, str]
    moved: Sequence[ScreenColumn]
    gap: str = _GAP
    left_out: Sequence[str] = ()

    def of(self, some: Sequence[int]) -> _Layout:
        return self._replace(columns=[self.columns[at] for at in some])

    def fits(self, width: int) -> bool:
        return sum(column.width + len(self.gap) for column in self.columns) - len(self.gap) <= width


class KeyTable:
    """A table with keys of the grid as columns; a column of figures without any is left out.

    A key that is named like another column is shown as ``grid.KEY``, as in the files of tables.
    ``heads``: for each row what stands above it and its neighbours with the same, in parts.
    """

    def __init__(self, columns: Sequence[ScreenColumn], heads: Sequence[Sequence[str]] = ()) -> None:
        shown = [column for column in columns if column.key or column.left or any(map(len, column.cells))]
        taken = {column.name.replace("\n", " ") for column in shown if not column.key}
        self._columns = [
            replace(column, name=f"grid.{column.name}") if column.key and column.name in taken else column
            for column in shown
        ]
        self._heads = [tuple(parts) for parts in heads]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self.lines(options.max_width if console.is_terminal else None)

    def lines(self, width: int | None) -> Iterator[Text]:
        """Yield the lines of the table, in as many columns of characters; ``None``: as many as it needs."""
        layout = self._laid_out(width)
        for name, prefix in layout.prefixes.items():
            yield Text(f"{name}: {prefix}…", style="dim")
        if layout.left_out:
            told = f"no room for: {', '.join(layout.left_out)}; a wider terminal or a pipe has all"
            yield from (Text(line, style="dim") for line in _wrapped(told, width))
        yield from _header(layout, self._indent(layout.moved))
        rows = range(len(self._columns[0].cells) if self._columns else 0)
        outer = dict(zip(rows, self._heads, strict=True)) if self._heads else dict.fromkeys(rows, ())
        inner = {row: tuple(_named(one, row) for one in layout.moved if len(one.cells[row])) for row in rows}
        for above, many in _together(rows, outer):
            yield from _headings(above, "", width)
            for below, some in _together(many, inner):
                yield from _headings(below, _INDENT * bool(self._heads), width)
                for row in some:
                    yield _line(
                        layout, self._indent(layout.moved), [column.cells[row] for column in layout.columns]
                    )

    def _indent(self, moved: Sequence[ScreenColumn]) -> str:
        return _INDENT * (bool(self._heads) + bool(moved))

    def _laid_out(self, width: int | None) -> _Layout:
        if width is None:
            return next(_layouts(self._columns, (), narrow=False))
        stay, moved = list(self._columns), list[ScreenColumn]()
        while True:
            room = width - len(self._indent(moved))
            for layout in _layouts(stay, moved, narrow=bool(self._heads)):
                if layout.fits(room):
                    return layout
            keys = {id(one): own.width for one, own in zip(stay, layout.columns, strict=True) if one.key}
            if not keys:  # figures alone are too wide
                return _squeezed(stay, moved, room)
            widest = max(keys, key=keys.__getitem__)
            rest = [column for column in stay if id(column) != widest]
            above = [column for column in self._columns if not any(column is other for other in rest)]
            if self._one_row_each(above):
                squeezed = _squeezed(stay, moved, room)
                if squeezed.fits(room) and _little_is_missing(stay, squeezed.columns):
                    return squeezed
            stay, moved = rest, above

    def _one_row_each(self, moved: Sequence[ScreenColumn]) -> bool:
        """Return whether these keys as headings would stand above a single row each."""
        rows = range(len(self._columns[0].cells))
        heads = {
            ((*self._heads[row],) if self._heads else (), *(column.cells[row].plain for column in moved))
            for row in rows
        }
        return len(heads) == len(rows) > 1


def _together(rows: Iterable[int], parts: Mapping[int, Parts]) -> Iterator[tuple[Parts, list[int]]]:
    """Yield the rows that have the same parts of a heading, in the order of their first row."""
    together: dict[Parts, list[int]] = {}
    for row in rows:
        together.setdefault(parts[row], []).append(row)
    yield from together.items()


def _named(column: ScreenColumn, row: int) -> str:
    return f"{column.name}={column.cells[row].plain}"


def _headings(parts: Parts, indent: str, width: int | None) -> Iterator[Text]:
    room = None if width is None else width - len(indent)
    yield from (Text(indent + line, style=_HEADING) for line in _packed(parts, room))


def _layouts(
    columns: Sequence[ScreenColumn], moved: Sequence[ScreenColumn], *, narrow: bool
) -> Iterator[_Layout]:
    """Yield ways to show these columns, from the plainest to the narrowest.

    ``narrow``: also split the words of headings, and leave a single space between columns.
    """
    yield _Layout([replace(column, name=column.name.replace("\n", " ")) for column in columns], {}, moved)
    yield _Layout(columns, {}, moved)
    yield _Layout([column.folded() for column in columns], {}, moved)
    prefixes = {column.name: prefix for column in columns if (prefix := column.prefix())}
    short = [column.without(prefixes.get(column.name, "")) for column in columns]
    yield _Layout([column.folded() for column in short], prefixes, moved)
    if narrow:
        split = [column.folded(_SYLLABLES) for column in short]
        yield _Layout(split, prefixes, moved)
        yield _Layout(split, prefixes, moved, " ")


def _squeezed(columns: Sequence[ScreenColumn], moved: Sequence[ScreenColumn], room: int) -> _Layout:
    """Return the layout with split words, of the columns for which there is room, what is needed first."""
    *_, two, narrowest = _layouts(columns, moved, narrow=True)
    if two.fits(room):
        return two
    kept: list[int] = []
    for at in sorted(range(len(columns)), key=lambda at: (not columns[at].needed, columns[at].rank)):
        if not kept or narrowest.of(sorted([*kept, at])).fits(room):
            kept.append(at)
    rest = [column.name.replace("\n", " ") for at, column in enumerate(columns) if at not in kept]
    return narrowest.of(sorted(kept))._replace(left_out=rest)


def _little_is_missing(columns: Sequence[ScreenColumn], kept: Sequence[ScreenColumn]) -> bool:
    """Return whether all columns that are needed are kept, and half of the others."""
    needed, left = (sum(column.needed for column in some) for some in (columns, kept))
    return left == needed and 2 * (len(kept) - left) >= len(columns) - needed


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, width, break_on_hyphens=False)


def _header(layout: _Layout, indent: str) -> Iterator[Text]:
    names = [column.name.split("\n") for column in layout.columns]
    depth = max(map(len, names), default=0)
    for lines in zip(*([""] * (depth - len(own)) + own for own in names), strict=True):
        yield _line(layout, indent, [Text(line) for line in lines], "bold")


def _line(layout: _Layout, indent: str, cells: Sequence[Text], style: str = "") -> Text:
    line = Text(indent, style=style)
    for cell, column in zip(cells, layout.columns, strict=True):
        space = " " * (column.width - cell_len(cell.plain))
        line.append_text(Text.assemble(cell, space) if column.left else Text.assemble(space, cell))
        line.append(layout.gap)
    line.rstrip()
    return line


def _packed(parts: Sequence[str], width: int | None) -> Iterator[str]:
    """Yield the parts side by side on as few lines as hold them; a longer one loses its middle."""
    line = ""
    for part in parts:
        if line and width is not None and cell_len(line + _GAP + part) > width:
            yield line
            line = ""
        line += _GAP * bool(line) + (part if width is None else shortened(part, width))
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
    return Text(printable(str(text)), style=style)

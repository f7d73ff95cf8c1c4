"""Fit a page into its room: fewer rows of the longest tables, fewer pictures of the largest galleries.

All that is left out lies in files beside the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from markupsafe import escape

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column, Table
from orchestrator.analysis.report.blocks import (
    Block,
    Chart,
    Details,
    Folded,
    FoldedText,
    Gallery,
    Html,
    PairDetails,
    Points,
    Section,
    Text,
    unfolded,
)

# Bytes of a page, and of these those of styles, scripts and frames of blocks, of all tables but that of runs,
# and of that.
PAGE = 3_000_000
_FRAME = 160_000
_TABLES = 500_000
_RUNS = 600_000
# Bytes of a figure around its picture, without its caption.
_FIGURE = 250


def fitted(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections with as many rows and pictures as there is room for.

    Equal shares: what does not fit is left out of the largest first. At least a row of each table stays.
    """
    tables = [table for section in sections for table in section.tables]
    rows = {id(table): _row_sizes(table) for table in tables}
    long = {id(table) for table in tables if table.most > cells.MOST_ROWS}
    shares = {
        **_shares({key: own for key, own in rows.items() if key not in long}, _TABLES),
        **_shares({key: own for key, own in rows.items() if key in long}, _RUNS),
    }
    cut = [_changed(section, lambda block: _limited(block, shares)) for section in sections]
    blocks = [block for section in cut for block in unfolded(section.blocks)]
    room = PAGE - _FRAME - sum(map(_size, blocks))
    pictures = _with_room([block for block in blocks if isinstance(block, Gallery)], room)
    return tuple(_changed(section, lambda block: _limited(block, pictures)) for section in cut)


def _shares(rows: dict[int, list[int]], room: int) -> dict[int, int]:
    """Return how many of its rows each table may show: all share the room, small ones leave theirs over."""
    level, left = 0, room
    sizes = sorted(sum(own) for own in rows.values())
    for at, size in enumerate(sizes):
        level = left // (len(sizes) - at)
        if size > level:
            break
        left -= size
        level = size
    return {key: max(1, _fitting(own, level)) for key, own in rows.items()}


def _fitting(sizes: Sequence[int], room: int) -> int:
    """Return how many of the first ones fit."""
    return sum(1 for _ in takewhile(lambda total: total <= room, accumulate(sizes)))


def _with_room(galleries: Sequence[Gallery], room: int) -> dict[int, int]:
    """Return how many pictures each gallery may show: the first of each, then the second, while they fit."""
    shown = {id(gallery): 0 for gallery in galleries}
    full: set[int] = set()
    for at in range(max((len(gallery.pictures) for gallery in galleries), default=0)):
        for gallery in galleries:
            if id(gallery) in full or at >= len(gallery.pictures):
                continue
            picture = gallery.pictures[at]
            size = _FIGURE + len(picture.inline.encode()) + len(picture.caption.encode())
            if size > room:
                full.add(id(gallery))
                continue
            room -= size
            shown[id(gallery)] = at + 1
    return shown


def _changed(section: Section, change: Callable[[Block], Block]) -> Section:
    return replace(section, blocks=tuple(_inside(block, change) for block in section.blocks))


def _inside(block: Block, change: Callable[[Block], Block]) -> Block:
    if isinstance(block, Folded):
        return replace(block, blocks=tuple(_inside(inner, change) for inner in block.blocks))
    return change(block)


def _limited(block: Block, most: dict[int, int]) -> Block:
    """Return a table or gallery with no more than so many, by its identity."""
    if isinstance(block, Table | Gallery) and most.get(id(block), block.most) < len(block.shown):
        return replace(block, most=most[id(block)])
    return block


# Bytes of blocks on the page


def _size(block: Block) -> int:
    if isinstance(block, Table):
        return sum(_row_sizes(block))
    if isinstance(block, Chart | Details | PairDetails):
        return len(block.data.encode())
    if isinstance(block, Html):
        return len(block.markup.encode())
    if isinstance(block, Points):
        return sum(30 + _escaped(word) + _escaped(text) for word, text in block.items)
    return _escaped(block.text) if isinstance(block, Text | FoldedText) else 0


def _row_sizes(table: Table) -> list[int]:
    heads = table.columns or (Column(""),) * max(map(len, table.rows), default=0)
    return [
        10 + sum(_cell_size(cell, head.numeric) for cell, head in zip(row, heads, strict=False))
        for row in table.shown
    ]


def _cell_size(cell: Cell, numeric: bool) -> int:
    """Return the bytes of a cell with its attributes, about as the template writes them."""
    place = "" if numeric and cell.plain else cell.place
    facts = (place, cell.ends_text, cell.more_text, cell.title, 2 * cell.state)
    long = 40 if cell.source or len(cell.text) > 300 else 0
    around = 10 + 15 * numeric + 15 * bool(cell.state) + long
    return around + _escaped(cell.text) + sum(13 + _escaped(fact) for fact in facts if fact)


def _escaped(text: str) -> int:
    return len(escape(text).encode())

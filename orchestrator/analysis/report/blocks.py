"""What a page is made of: sections of blocks, which the template knows how to write."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from orchestrator.analysis.report.plotting import Picture

MISSING = "–"


@dataclass(frozen=True)
class Text:
    """A paragraph; ``note``: in small print; ``title``: the head of what follows."""

    text: str
    note: bool = False
    title: bool = False
    kind = "text"


@dataclass(frozen=True)
class Points:
    """A list of sentences, each with a word before it in bold or none."""

    items: tuple[tuple[str, str], ...]
    kind = "points"


@dataclass(frozen=True)
class FoldedText:
    """A file's text, folded until it is asked for."""

    title: str
    text: str
    kind = "source"


@dataclass(frozen=True)
class Gallery:
    """Pictures one below the other, or beside each other where they are small."""

    pictures: tuple[Picture, ...]
    kind = "gallery"

    @property
    def caption(self) -> str:
        """The caption that several pictures share, to be written once."""
        captions = {picture.caption for picture in self.pictures}
        return captions.pop() if len(self.pictures) > 1 and len(captions) == 1 else ""


@dataclass(frozen=True)
class Cell:
    """A table cell: what is shown, what it sorts by if that is a number, what a pointer over it shows.

    ``state``: it names a run's state, by which rows can be chosen. ``source``: commands, to be copied.
    """

    text: str
    sort: float | None = None
    title: str = ""
    state: str = ""
    source: bool = False

    @property
    def key(self) -> str:
        """The number as a browser reads it; nothing if there is none."""
        if self.sort is None or math.isnan(self.sort):
            return ""
        if math.isinf(self.sort):
            return "Infinity" if self.sort > 0 else "-Infinity"
        return repr(self.sort)


@dataclass(frozen=True)
class Column:
    name: str
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, which the reader can sort and filter. ``name`` says in a word or two what the rows are.

    ``states``: by which rows can be chosen, with how many rows each. ``headed``: a row's first cell is its
    head, and there is no order but this one.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    states: tuple[tuple[str, int], ...] = ()
    headed: bool = False
    kind = "table"


Block = Text | Points | FoldedText | Gallery | Table


@dataclass(frozen=True)
class Section:
    """A part of the page: ``id`` is its address in it."""

    id: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(
            picture for block in self.blocks if isinstance(block, Gallery) for picture in block.pictures
        )


def columns(*names: str) -> tuple[Column, ...]:
    """Columns of these names; one that begins with ``#`` holds numbers."""
    return tuple(Column(name.removeprefix("#"), name.startswith("#")) for name in names)


# Values as cells and text


def number(value: float | None) -> Cell:
    return Cell(shown(value), value)


def shown(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def cell(value: Any) -> Cell:
    """A value of a grid's key."""
    if value is None:
        return Cell(MISSING)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), value)
    return Cell(word(value))


def word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def point_text(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={word(value)}" for key, value in point.items())


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None

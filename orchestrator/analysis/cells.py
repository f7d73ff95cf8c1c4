"""Tables: cells with their numbers, columns, rows. A renderer each: the page, CSV, LaTeX, a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

MISSING = "–"

# Rows of a table that are read on a page and leave room for the others.
MOST_ROWS = 300


@dataclass(frozen=True)
class Cell:
    """A table cell: its text, a number to sort by, and a text on hover.

    ``state``: the run state that it names, for choosing rows. ``source``: commands to be copied. ``ends``: of
    the interval around the number. ``bound``: what the number, or an end, is more than where it is infinite.
    ``more``: other facts in the text, by the names that their columns of a CSV file end with.
    """

    text: str
    sort: float | None = None
    title: str = ""
    state: str = ""
    source: bool = False
    ends: tuple[float, float] | None = None
    bound: float | None = None
    more: tuple[tuple[str, float | str], ...] = ()

    @property
    def more_text(self) -> str:
        """The bound and the other facts as a page has them: ``bound:20000;of:5``."""
        bound = [] if self.bound is None or math.isinf(self.bound) else [("bound", self.bound)]
        told = (*bound, *self.more)
        return ";".join(f"{name}:{fact if isinstance(fact, str) else f'{fact:.9g}'}" for name, fact in told)

    @property
    def key(self) -> str:
        """The number as a browser reads it; empty if there is none."""
        return number_text(self.sort)

    @property
    def ends_text(self) -> str:
        """The ends as a page has them, with nine digits."""
        return " ".join(f"{end:.9g}" for end in self.ends or ())

    @property
    def place(self) -> str:
        """The number as a page sorts by it, with nine digits; empty if there is none."""
        if isinstance(self.sort, float) and math.isfinite(self.sort):
            return f"{self.sort:.9g}"
        return self.key

    @property
    def plain(self) -> bool:
        """Whether the text is that number, with or without commas."""
        return self.text.replace(",", "") == self.place


@dataclass(frozen=True)
class Column:
    """A column's heading; ``numeric`` for a column of numbers. ``unit``: of its numbers in a CSV file."""

    name: str
    numeric: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells that the reader can sort and filter. ``name``: a noun for the rows.

    ``states``: states by which rows can be chosen, with their numbers of rows. ``headed``: the first cell of
    a row is its heading, and the order is fixed. ``most``: rows on the page; its CSV file has all.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    states: tuple[tuple[str, int], ...] = ()
    headed: bool = False
    most: int = MOST_ROWS
    kind = "table"

    @property
    def shown(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows on the page."""
        return self.rows[: self.most]


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns of these names: with ``#`` before it of numbers, with ``~`` of times, in seconds."""
    return tuple(
        Column(name[name[:1] in _UNITS :], name[:1] in _UNITS, _UNITS.get(name[:1], "")) for name in names
    )


# Units in a CSV file, by what stands before the name of a column of numbers.
_UNITS = {"#": "", "~": "s"}


def table(
    name: str, rows: Iterable[Mapping[str, Cell]], *, headed: bool = False, if_any: Collection[str] = ()
) -> Table:
    """Return a table of rows by :func:`columns`; of ``if_any`` it has those that some row has a value of."""
    every = list(rows)
    known = {key for row in every for key, cell in row.items() if cell.text != MISSING}
    heads = [key for row in every[:1] for key in row if key in known or key not in if_any]
    told = (tuple(map(row.__getitem__, heads)) for row in every)
    return Table(name, columns(*heads), tuple(told), headed=headed)


def safe_json(value: Any) -> str:
    """Return JSON that ends no script element of a page."""
    told = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return told.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def clipped(text: str, most: int = 120) -> str:
    """Return a text with at most so many letters: both of its ends."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[1 - most // 2 :]}"


class Interval(Protocol):
    """A value with the ends of its interval, if it has one."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def part(number: float, of: float) -> Cell:
    """Return a number of so many as a cell: ``2 of 5``."""
    return Cell(f"{number} of {of}", number, more=(("of", of),))


def number(value: float | None, show: Callable[[float], str] | None = None) -> Cell:
    """Return a number as a cell, by default as :func:`shown`."""
    return Cell(MISSING if value is None else (show or shown)(value), value)


def shown(value: float | None) -> str:
    """Format a number with four digits, or all before the point."""
    if value is None or math.isnan(value):
        return MISSING
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def number_text(value: float | None) -> str:
    """Return a number with all digits, as browsers and readers of CSV know it; empty if there is none."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def estimated(interval: Interval | None, show: Callable[[float], str] = "{:.4g}".format) -> Cell:
    """Return a value with its interval as a cell."""
    if interval is None:
        return Cell(MISSING)
    value, low, high = interval.value, interval.low, interval.high
    if low is None or high is None:
        return Cell(show(value), float(value))
    return Cell(f"{show(value)} [{show(low)}, {show(high)}]", float(value), ends=(float(low), float(high)))


def share(value: float | None) -> Cell:
    """Return a part of 1 as a cell, in percent."""
    return number(value, "{:.1%}".format)


def cell(value: Any) -> Cell:
    """Return a value of a grid's key as a cell."""
    if value is None:
        return Cell(MISSING)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), value)
    return Cell(text(value))


def text(value: Any) -> str:
    """Format a value: text as it is, everything else as JSON; ``unset`` where a run does not have the key."""
    if value is None:
        return "unset"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

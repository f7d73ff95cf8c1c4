"""A list as a person has chosen to see it: which rows, in which order, and what is said of one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.core.formatting import duration, moment, plain, since
from orchestrator.ui.top.model import FleetState, JobRow, RunRow, SweepSnapshot

Row = RunRow | JobRow | SweepSnapshot


@dataclass(frozen=True)
class ListColumn:
    """``draw``: the text of a row's cell and its style. ``order``: what rows are sorted by.

    A ``width`` of 0 is what the other columns leave. ``room``: shown on screens of so many columns or more.
    ``several``: shown where the rows are of several sweeps.
    """

    title: str
    width: int
    draw: Callable[[Any, float], tuple[str, str]]
    order: Callable[[Any], Any]
    right: bool = False
    room: int = 0
    several: bool = False


@dataclass(frozen=True)
class View:
    """A list that can be chosen. ``urgency`` is the order that it has until somebody chooses a column.

    ``text`` is what a filter searches.
    """

    name: str
    rows: Callable[[FleetState], list[Any]]
    columns: tuple[ListColumn, ...]
    urgency: Callable[[Any], Any]
    text: Callable[[Any], str]


@dataclass(frozen=True)
class Choice:
    """What a person has chosen to see: words to be found, a column to sort by, the runs of a sweep or job."""

    words: str = ""
    column: int | None = None
    backwards: bool = False
    sweep: str | None = None
    runs_of: JobRow | None = None

    @property
    def narrowed(self) -> bool:
        return bool(self.words) or self.sweep is not None

    def sorted_by_next(self, view: View) -> Choice:
        """The next column, and after the last one the order that the view has by itself."""
        column = 0 if self.column is None else self.column + 1
        return replace(self, column=column if column < len(view.columns) else None, backwards=False)


def chosen(view: View, picture: FleetState, choice: Choice) -> list[Any]:
    """The rows that are to be shown, in order."""
    rows = view.rows(picture)
    if choice.sweep is not None:
        rows = [row for row in rows if sweep_of(row) == choice.sweep]
    if choice.runs_of is not None:
        run_ids = set(choice.runs_of.run_ids)
        rows = [row for row in rows if not isinstance(row, RunRow) or row.run_id in run_ids]
    for word in choice.words.lower().split():
        rows = [row for row in rows if word in view.text(row).lower()]
    order = view.urgency if choice.column is None else view.columns[choice.column].order
    return sorted(rows, key=order, reverse=choice.backwards)


def key_of(row: Row) -> tuple[str, str]:
    """What a row is found by in the next picture."""
    if isinstance(row, RunRow):
        return row.sweep, row.run_id
    return (row.sweep, row.token) if isinstance(row, JobRow) else (row.name, "")


def about(row: Row, now: float) -> tuple[str, str]:
    """Two lines about a row: what it is, and how it is."""
    if isinstance(row, RunRow):
        status = row.status
        heard = f"  heard of at {moment(status.since, now)}" if status.since else ""
        what = f"{row.sweep} {row.run_id}  {plain(row.label)}"
        how = plain(status.why) or (f"unknown{since(row.unanswered, now)}" if row.unanswered else "")
        return what, how or f"{status.state.value}{heard}"
    if isinstance(row, JobRow):
        what = f"{row.sweep} {row.token}  {plain(row.job_id)}"
        return what, f"{row.state.value}{since(row.unanswered, now)}  {plain(row.said)}".rstrip()
    left = f"{duration(row.eta)} to go at the present speed" if row.eta is not None else ""
    return row.name, plain(row.problem) if row.problem else left


def sweep_of(row: Row) -> str:
    """The name of the sweep that a row is of."""
    return row.name if isinstance(row, SweepSnapshot) else row.sweep

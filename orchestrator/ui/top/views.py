"""Choose the rows of a list and their order, and describe a row. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.core.formatting import duration, moment, printable, since
from orchestrator.ui.top.model import FleetState, JobRow, RunRow, SweepSnapshot

Row = RunRow | JobRow | SweepSnapshot


@dataclass(frozen=True)
class ListColumn:
    """A column. ``draw``: the text of a row's cell and its style. ``order``: the key to sort rows by.

    A ``width`` of 0 takes the room that other columns leave. ``room``: shown on screens of at least so many
    columns. ``several``: shown where the rows are of several sweeps. ``fitted``: texts that are too long are
    cut so that rows stay different, and what all share is in the title.
    """

    title: str
    width: int
    draw: Callable[[Any, float], tuple[str, str]]
    order: Callable[[Any], Any]
    right: bool = False
    room: int = 0
    several: bool = False
    fitted: bool = False


@dataclass(frozen=True)
class View:
    """A list. ``urgency``: its order until the user chooses a column; ``text``: searched by filters."""

    name: str
    rows: Callable[[FleetState], list[Any]]
    columns: tuple[ListColumn, ...]
    urgency: Callable[[Any], Any]
    text: Callable[[Any], str]


@dataclass(frozen=True)
class Choice:
    """The user's choice: words to find, a column to sort by, the runs of a sweep or job."""

    words: str = ""
    column: int | None = None
    backwards: bool = False
    sweep: str | None = None
    runs_of: JobRow | None = None

    @property
    def narrowed(self) -> bool:
        """Whether some rows may be hidden."""
        return bool(self.words) or self.sweep is not None

    def sorted_by_next(self, view: View) -> Choice:
        """Sort by the next column, and after the last one by urgency."""
        column = 0 if self.column is None else self.column + 1
        return replace(self, column=column if column < len(view.columns) else None, backwards=False)


def chosen(view: View, picture: FleetState, choice: Choice) -> list[Any]:
    """Return the rows to show, in order."""
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
    """Return the key that identifies a row in the next state."""
    if isinstance(row, RunRow):
        return row.sweep, row.run_id
    return (row.sweep, row.token) if isinstance(row, JobRow) else (row.name, "")


def about(row: Row, now: float) -> tuple[str, str]:
    """Return two lines about a row: its names, and its state."""
    if isinstance(row, RunRow):
        status = row.status
        as_of = f"  as of {moment(status.since, now)}" if status.since else ""
        what = f"{row.sweep} {row.run_id}  {printable(row.label)}"
        how = printable(status.why) or (f"unknown{since(row.unanswered, now)}" if row.unanswered else "")
        return what, how or f"{status.state.value}{as_of}"
    if isinstance(row, JobRow):
        what = f"{row.sweep} {row.token}  {printable(row.job_id)}"
        return what, f"{row.state.value}{since(row.unanswered, now)}  {printable(row.said)}".rstrip()
    left = f"{duration(row.eta)} to go at the present speed" if row.eta is not None else ""
    return row.name, printable(row.problem) if row.problem else left


def sweep_of(row: Row) -> str:
    """Return the name of a row's sweep."""
    return row.name if isinstance(row, SweepSnapshot) else row.sweep


def runs_in(row: Row, picture: FleetState) -> list[RunRow]:
    """Return the runs of a row."""
    if isinstance(row, RunRow):
        return [row]
    snapshot = picture.sight(sweep_of(row))
    meant = set(row.run_ids) if isinstance(row, JobRow) else None
    return [run for run in (snapshot.runs if snapshot else ()) if meant is None or run.run_id in meant]

"""Print in the width of a terminal; elsewhere, as in a pipe, each line is as long as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core.formatting import printable
from orchestrator.core.types import JobState, RunState

_Item = TypeVar("_Item")
# Colours of states.
STYLES: Mapping[RunState | JobState, str] = {
    RunState.PENDING: "dim",
    RunState.QUEUED: "dim",
    RunState.RUNNING: "cyan",
    RunState.STALLED: "yellow",
    RunState.INTERRUPTED: "yellow",
    RunState.DONE: "green",
    RunState.FAILED: "bold red",
    RunState.SKIPPED: "dim",
    RunState.CANCELLED: "dim",
    RunState.STALE: "magenta",
    RunState.UNKNOWN: "yellow",
    JobState.RUNNING: "cyan",
    JobState.UNKNOWN: "yellow",
}
# Colours of the words before lines.
_COLOURS = {"note": "yellow", "missing": "yellow", "problem": "red", "answer": "bold"}


def console(*, errors: bool = False) -> Console:
    """Return standard output, or the error stream."""
    return Console(highlight=False, stderr=errors)


def show(*what: RenderableType, errors: bool = False) -> None:
    """Print tables and texts."""
    to = console(errors=errors)
    for part in what:
        to.print(part, soft_wrap=not to.is_terminal)


def say(text: object, word: str = "", *, style: str = "", errors: bool = False) -> None:
    """Print a line, with a coloured word before it if there is one."""
    line = Text.assemble((word, _COLOURS.get(word, "")), " " * bool(word), (printable(str(text)), style))
    show(line, errors=errors)


def table(*left: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table: columns of text that may be folded, then columns of numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in left:
        made.add_column(Text(name), overflow="fold")
    for name in right:
        made.add_column(Text(name), justify="right", no_wrap=True)
    return made


def with_bar(items: Iterable[_Item], total: int, *, least: int = 1, title: str = "") -> Iterator[_Item]:
    """Iterate with a progress bar on a terminal, from ``least`` items on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    live = sys.stdout.isatty() and total >= least
    about = [TextColumn("{task.description}")] if title else []
    columns = (*about, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(), disable=not live, transient=True) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            bar.advance(task)
            yield item

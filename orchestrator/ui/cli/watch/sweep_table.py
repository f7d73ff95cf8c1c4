"""Draw a sweep's state, a :class:`Survey`, in a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from orchestrator.core.formatting import count, duration, number
from orchestrator.core.labels import key_columns
from orchestrator.core.types import URGENT_FIRST, RunState
from orchestrator.planning.ordering import sweep_eta
from orchestrator.rundir import IndexRow
from orchestrator.status.ledger import accepted_changes
from orchestrator.status.survey import RunStatus, Survey
from orchestrator.ui.terminal.screen import STYLES, console
from orchestrator.ui.terminal.table import KeyTable, ScreenColumn, cell

# What differs from run to run in messages of one cause: addresses, numbers of processes, amounts of memory.
_OF_ONE_RUN = re.compile(r"0x[0-9a-f]+|\bpid[ =:]*\d+|\b[\d.,]+ ?(?:[KMGT]i?B|bytes)\b")
# Rows of a sweep on a live screen.
ROWS = 24


class SweepScreen:
    """Progress of a sweep: redrawn on a terminal, elsewhere a line whenever the counts change."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self._name, self._quiet, self._console = name, quiet, console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last: dict[RunState, int] | None = None
        self._noted: set[str] = set()

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print a permanent line, each text once."""
        if not self._quiet and text not in self._noted:
            self._noted.add(text)
            self._console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def show(self, seen: Survey) -> None:
        if self._live.is_started:
            self._live.update(sweep_view(self._name, seen, ROWS), refresh=True)
        elif not self._quiet and seen.active and seen.counts() != self._last:
            self._last = seen.counts()
            self._console.print(sweep_line(self._name, seen), soft_wrap=True)


def sweep_view(name: str, survey: Survey, limit: int | None = None) -> Group:
    """Draw a sweep: a summary line, a row per run (the ``limit`` most urgent ones), reasons below."""
    rows = [row for row in survey.rows if row.in_grid]
    shown = _most_urgent(rows, survey.statuses, limit)
    several = len({target for row in rows if (target := survey.target(row.run_id))}) > 1
    states = [survey.statuses[row.run_id] for row in shown]
    table = KeyTable(
        [
            ScreenColumn("run", [cell(row.run_id[:8], "dim") for row in shown], left=True),
            *run_keys(rows, shown),
            *(
                [ScreenColumn("target", [cell(survey.target(row.run_id) or "") for row in shown], rank=2)]
                if several
                else []
            ),
            ScreenColumn("state", [cell(one.state.value, STYLES[one.state]) for one in states], left=True),
            ScreenColumn("frames", [cell(frames(status)) for status in states]),
            ScreenColumn(
                "end-to-end\nframes/s", [cell(number(status.end_to_end_fps)) for status in states], rank=3
            ),
            ScreenColumn("return", [cell(number(status.value)) for status in states], rank=0),
            ScreenColumn("ETA", [cell(duration(status.eta)) for status in states], rank=2),
        ]
    )
    parts: list[Any] = [sweep_line(name, survey), table]
    if len(shown) < len(rows):
        parts.append(Text(f"… and {len(rows) - len(shown)} more", style="dim"))
    parts += _reasons(_by_urgency(rows, survey.statuses), survey.statuses, limit)
    if _why_stale(survey):
        parts.append(Text(stale_step(name, survey), style=STYLES[RunState.STALE]))
    parts += [Text(line, style="dim") for line in accepted_changes(survey.ledger)]
    parts += [Text(note, style="yellow") for note in survey.remarks]
    outside = len(survey.rows) - len(rows)
    if outside:
        note = "kept but not counted: from earlier versions of this grid"
        parts.append(Text(f"{count(outside, 'run')} {note}", style="dim"))
    return Group(*parts)


def run_keys(rows: Sequence[IndexRow], shown: Sequence[IndexRow]) -> list[ScreenColumn]:
    """Return a column for each key that varies between the runs of a sweep, with the values of some."""
    points = [row.point for row in shown]
    return [
        ScreenColumn(column.name, [cell(value) for value in column.values], left=True, key=True)
        for column in key_columns([row.point for row in rows], of=points)
    ]


def sweep_line(name: str, survey: Survey) -> Text:
    counts = survey.counts()
    total = sum(counts.values()) - counts.get(RunState.SKIPPED, 0)
    line = Text()
    line.append(name, style="bold")
    line.append(f"  {counts.get(RunState.DONE, 0)}/{total} done")
    for state, runs in counts.items():
        if state is not RunState.DONE:
            line.append("  ")
            line.append(f"{runs} {state.value}", style=STYLES[state])
    eta = sweep_eta(survey)
    if eta is not None:
        line.append(f"  ETA {duration(eta)}", style="cyan")
    return line


def _why_stale(survey: Survey) -> Counter[str]:
    """Count the stale runs of the grid by reason."""
    statuses = (survey.statuses[row.run_id] for row in survey.rows if row.in_grid)
    return Counter(status.why for status in statuses if status.state is RunState.STALE)


def stale_step(name: str, survey: Survey) -> str:
    """Return what to do about stale runs: look, then accept the change or train again."""
    run = survey.first(RunState.STALE)[:8]
    return (
        f"stale runs: orchestrate status {name} --why {run} shows the change; then orchestrate accept {name} "
        f"if it is harmless, or orchestrate retry {name}"
    )


def stale_line(name: str, survey: Survey) -> Text:
    """Say in one line why runs of a sweep are stale, and what shows the change; empty if none is."""
    reasons = _why_stale(survey)
    if not reasons:
        return Text()
    (why, most), *others = reasons.most_common()
    left = sum(number for _, number in others)
    more = f", and {count(left, 'run')} for {count(len(others), 'other reason')}" if others else ""
    told = f"  {count(most, 'run')} {'is' if most == 1 else 'are'} stale, {why}{more}"
    run = survey.first(RunState.STALE)[:8]
    return Text(f"{told}; see orchestrate status {name} --why {run}", style=STYLES[RunState.STALE])


def frames(status: RunStatus) -> str:
    if status.frames is None:
        return ""
    if not status.total or status.frames == status.total:
        return f"{status.frames:,}"
    return f"{100 * status.frames // status.total}% of {status.total:,}"


def _by_urgency(rows: Sequence[IndexRow], statuses: Mapping[str, RunStatus]) -> list[IndexRow]:
    return sorted(rows, key=lambda row: URGENT_FIRST.index(statuses[row.run_id].state))


def _most_urgent(
    rows: Sequence[IndexRow], statuses: Mapping[str, RunStatus], limit: int | None
) -> list[IndexRow]:
    if limit is None or len(rows) <= limit:
        return list(rows)
    return _by_urgency(rows, statuses)[:limit]


def _reasons(
    rows: Sequence[IndexRow], statuses: Mapping[str, RunStatus], limit: int | None = None
) -> list[Text]:
    """One line per distinct reason, with its number of runs; at most ``limit`` lines."""
    by_reason: dict[tuple[RunState, str], list[RunStatus]] = {}
    for row in rows:
        status = statuses[row.run_id]
        if status.why and status.why != status.state.value:
            by_reason.setdefault((status.state, _OF_ONE_RUN.sub("", status.why)), []).append(status)
    lines = []
    for (state, _), alike in islice(by_reason.items(), limit):
        who = alike[0].run_id[:8] if len(alike) == 1 else f"{len(alike)} runs"
        lines.append(Text.assemble((f"{state.value} ", STYLES[state]), f"{who}: {alike[0].why}"))
    if more := len(by_reason) - len(lines):
        lines.append(Text(f"… and {more} more reasons", style="dim"))
    return lines

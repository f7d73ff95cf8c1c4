"""Texts above and below the list, and the questions. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import duration, moment, number, printable, sparkline
from orchestrator.core.types import JobState, RunState
from orchestrator.ui.terminal.screen import STYLES
from orchestrator.ui.top.model import SAID_SINCE, FleetState, JobRow, RunRow, SweepSnapshot
from orchestrator.ui.top.views import Choice, Row


def totals(picture: FleetState, width: int) -> Text:
    """Return two lines about the fleet: runs by state and the time; throughput, cost, time to go and jobs."""
    counts = Text(" ")
    for state, count in picture.counts.items():
        counts.append(f"{count:,} {state.value}", style=STYLES.get(state, ""))
        counts.append("  ")
    jobs = ", ".join(f"{count:,} {state.value}" for state, count in picture.jobs.items())
    left = max((snapshot.eta for snapshot in picture.sights if snapshot.eta is not None), default=None)
    speed = Text(f" {number(picture.throughput[-1]) if picture.throughput else 0} e2e fps ")
    speed.append(sparkline(picture.throughput, max(10, width // 4)), style="cyan")
    speed.append(f"  cost {picture.cost}")
    if left is not None:
        speed.append(f"  ETA {duration(left)}")
    speed.append(f"  jobs: {jobs}" if jobs else "  no jobs", style="" if jobs else "dim")
    return Text("\n").join([_with_clock(counts, picture.at, width), fitting(speed, width)])


def fitting(line: Text | str, width: int) -> Text:
    """Cut the line to the width of the screen; "…" marks a cut."""
    line = Text(f" {line}") if isinstance(line, str) else line
    line.truncate(width - 1, overflow="ellipsis")
    return line


def _with_clock(line: Text, at: float | None, width: int) -> Text:
    """Return the line with the time of the last refresh at its right end."""
    clock = "looking …" if at is None else time.strftime("%H:%M:%S", time.localtime(at))
    line.rstrip()
    line.truncate(max(0, width - len(clock) - 3), overflow="ellipsis", pad=True)
    return line.append(f"  {clock}", style="dim")


def trouble(picture: FleetState, now: float) -> str:
    """Return the problems of the last refresh and of backends as one line; empty if there are none."""
    lines: list[str] = []
    if picture.problem:
        seen = max((snapshot.seen for snapshot in picture.sights if snapshot.seen), default=None)
        lines.append(f"as of {moment(seen, now)}: {picture.problem}" if seen else picture.problem)
    for snapshot in picture.sights:
        if snapshot.problem:
            old = f" as of {moment(snapshot.seen, now)}" if snapshot.seen else ""
            lines.append(f"{snapshot.name}{old}: {snapshot.problem}")
    lines += filter(None, (_unknown(snapshot, now) for snapshot in picture.sights))
    more = f" … and {len(lines) - 1} more" if len(lines) > 1 else ""
    return printable(lines[0]) + more if lines else ""


def _unknown(snapshot: SweepSnapshot, now: float) -> str:
    """Return how many of a sweep's jobs are unknown to their backends, since when and why; empty if none."""
    jobs = [job for job in snapshot.jobs if job.state is JobState.UNKNOWN]
    if not jobs:
        return ""
    count = f"{len(jobs):,} job" if len(jobs) == 1 else f"{len(jobs):,} jobs"
    said = jobs[0].said
    if said.startswith(SAID_SINCE):
        return f"{snapshot.name}: {count} {said}"
    since = min(job.unanswered or now for job in jobs)
    return f"{snapshot.name}: {count} unknown since {moment(since, now)}: {said}"


def nothing(picture: FleetState, choice: Choice) -> str:
    """Return why there is no row."""
    if picture.at is None:
        return "looking …"
    if choice.narrowed:
        return "no matching rows: esc shows all again"
    if not picture.sights:
        return "no sweep yet; begin with: orchestrate sweep --grid GRID"
    return "nothing here"


def name_of(row: Row) -> str:
    """Return a row's name for a sentence."""
    if isinstance(row, RunRow):
        return f"run {row.run_id[:8]} of {row.sweep}"
    return f"job {printable(row.token)} of {row.sweep}" if isinstance(row, JobRow) else f"sweep {row.name}"


def question(what: str, row: Row, runs: Sequence[RunRow]) -> str:
    """Return the question to confirm a cancel or a retry."""
    if isinstance(row, RunRow):
        asked = f"{what.capitalize()} {name_of(row)}?\n{printable(row.label)}"
    else:
        count = f"{len(runs):,} run" if len(runs) == 1 else f"{len(runs):,} runs"
        asked = f"{what.capitalize()} {count} of {name_of(row)}?"
    if what == "cancel":
        return f"{asked}\n\nCheckpoints stay; a retry goes on from them."
    if any(run.status.state is RunState.DONE for run in runs):
        return f"{asked}\n\nIt is done: it is trained anew, and its old result is kept."
    return f"{asked}\n\nSubmitted at once, with the code of this folder."


def error_line(error: Exception) -> str:
    """Format an error and its hint as one line.

    Any error is shown and none ends the screen, which may be up for days.
    """
    hint = getattr(error, "hint", None)
    said = str(error) if isinstance(error, OrchestrateError) else f"{type(error).__name__}: {error}"
    return f"{said} ({hint})" if hint else said

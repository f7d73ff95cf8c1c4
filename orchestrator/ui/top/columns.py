"""The lists of the screen, their columns, and their order by urgency. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.core.formatting import duration, moment, number, printable, since, sparkline
from orchestrator.core.types import URGENT_FIRST, JobState, RunState
from orchestrator.ui.terminal.screen import STYLES
from orchestrator.ui.top.model import FleetState, JobRow, RunRow, SweepSnapshot
from orchestrator.ui.top.views import ListColumn, View

_URGENT_JOBS = (JobState.RUNNING, JobState.UNKNOWN, JobState.QUEUED, JobState.ENDED)
_URGENCY = {state: place for place, state in enumerate((*URGENT_FIRST, *_URGENT_JOBS))}
_SPEED = 12


def _words(title: str, width: int, text: Callable[[Any], str], style: str = "", **rest: Any) -> ListColumn:
    """Make a column of text, left-aligned and in alphabetical order."""
    return ListColumn(title, width, lambda row, _: (printable(text(row)), style), text, **rest)


def _count(
    title: str, width: int, count: Callable[[Any], float | None], text: Callable[[Any], str], **rest: Any
) -> ListColumn:
    """Make a column of numbers, the highest first."""
    return ListColumn(
        title, width, lambda row, _: (text(row), ""), lambda row: -(count(row) or 0), right=True, **rest
    )


def _time(title: str, at: Callable[[Any], float | None], room: int = 0) -> ListColumn:
    """Make a column of moments, the latest first."""

    def draw(row: Any, now: float) -> tuple[str, str]:
        return moment(at(row), now), ""

    return ListColumn(title, 6, draw, lambda row: -(at(row) or 0), right=True, room=room)


def _eta(width: int, left: Callable[[Any], float | None]) -> ListColumn:
    """Make a column of times to go, the shortest first and unknown ones last."""

    def order(row: Any) -> float:
        seconds = left(row)
        return float("inf") if seconds is None else seconds

    return ListColumn("ETA", width, lambda row, _: (duration(left(row)), ""), order, right=True)


def _state(width: int, state: Callable[[Any], RunState | JobState]) -> ListColumn:
    """Make a column of states, the most urgent first."""
    return ListColumn(
        "state",
        width,
        lambda row, _: (state(row).value, STYLES.get(state(row), "")),
        lambda row: _URGENCY[state(row)],
    )


# Runs


def _runs(picture: FleetState) -> list[RunRow]:
    return [row for snapshot in picture.sights for row in snapshot.runs]


def _failed(picture: FleetState) -> list[RunRow]:
    return [row for row in _runs(picture) if row.status.state is RunState.FAILED]


def _text_of_run(row: RunRow) -> str:
    return f"{row.sweep} {row.run_id} {row.label} {row.target} {row.status.state.value} {row.status.why}"


def _progress(row: RunRow) -> float:
    status = row.status
    if status.state is RunState.DONE:
        return 1.0
    return (status.frames or 0) / status.total if status.total else 0.0


def _frames(row: RunRow) -> str:
    status = row.status
    if status.total or status.state is RunState.DONE:
        return f"{100 * _progress(row):.0f}%"
    frames = status.frames or 0
    return (f"{frames:,}" if frames < 1e6 else f"{frames / 1e6:,.1f}M") if frames else ""


_SWEEP = _words("sweep", 12, lambda row: row.sweep, several=True)
_RUN = _words("run", 8, lambda row: row.run_id[:8], style="dim")
_LABEL = _words("", 0, lambda row: row.label, fitted=True)
_TRY = _count("try", 3, lambda row: row.status.attempt, lambda row: str(row.status.attempt or ""), room=100)
_SPEEDS = ListColumn(
    " speed",
    _SPEED + 1,
    lambda row, _: (f" {sparkline(row.speeds, _SPEED)}", "cyan"),
    lambda row: -(row.status.end_to_end_fps or 0.0),
    room=120,
)

RUNS = View(
    "runs",
    _runs,
    (
        _SWEEP,
        _RUN,
        _LABEL,
        _words("target", 10, lambda row: row.target, room=130),
        _state(11, lambda row: row.status.state),
        _TRY,
        _count("frames", 7, _progress, _frames),
        _count(
            "e2e fps", 8, lambda row: row.status.end_to_end_fps, lambda row: number(row.status.end_to_end_fps)
        ),
        _SPEEDS,
        _count("return", 8, lambda row: row.status.value, lambda row: number(row.status.value), room=110),
        _eta(8, lambda row: row.status.eta),
    ),
    urgency=lambda row: _URGENCY[row.status.state],
    text=_text_of_run,
)
FAILURES = View(
    "failures",
    _failed,
    (
        _SWEEP,
        _RUN,
        replace(_LABEL, width=18),
        _TRY,
        _words("why", 0, lambda row: row.status.why, style="red"),
        _time("at", lambda row: row.status.since),
    ),
    urgency=lambda row: -(row.status.since or 0.0),
    text=_text_of_run,
)


# Jobs


def _jobs(picture: FleetState) -> list[JobRow]:
    return [row for snapshot in picture.sights for row in snapshot.jobs]


def _text_of_job(row: JobRow) -> str:
    return f"{row.sweep} {row.token} {row.target} {row.job_id} {row.state.value} {row.said}"


def _said(row: JobRow, now: float) -> tuple[str, str]:
    return (
        f"{since(row.unanswered, now)} {printable(row.said)}".strip(),
        "yellow" if row.unanswered else "dim",
    )


def _share(row: JobRow) -> str:
    return f"{row.done:,}/{len(row.run_ids):,}"


_COST = _count("cost", 10, lambda row: row.cost.dollars, lambda row: str(row.cost))

JOBS = View(
    "jobs",
    _jobs,
    (
        _SWEEP,
        _words("job", 14, lambda row: row.token.rpartition("/")[2], room=100),
        _words("target", 10, lambda row: row.target),
        _state(8, lambda row: row.state),
        ListColumn("", 0, _said, lambda row: row.said),
        _count("done", 9, lambda row: row.done, _share),
        _count("slots", 5, lambda row: row.slots, lambda row: str(row.slots or ""), room=110),
        _time("since", lambda row: row.since, room=90),
        _count("worked", 8, lambda row: row.seconds, lambda row: duration(row.seconds or None)),
        _COST,
    ),
    urgency=lambda row: (_URGENCY[row.state], -(row.since or 0.0)),
    text=_text_of_job,
)


# Sweeps


def _done(row: SweepSnapshot) -> str:
    wanted = sum(row.counts.values()) - row.counts.get(RunState.SKIPPED, 0)
    return f"{row.counts.get(RunState.DONE, 0):,}/{wanted:,}"


def _in_state(state: RunState, room: int = 0) -> ListColumn:
    return ListColumn(
        state.value,
        7,
        lambda row, _: (f"{row.counts[state]:,}" if row.counts.get(state) else "", STYLES.get(state, "")),
        lambda row: -row.counts.get(state, 0),
        right=True,
        room=room,
    )


SWEEPS = View(
    "sweeps",
    lambda picture: list(picture.sights),
    (
        _words("sweep", 0, lambda row: row.name, style="bold"),
        _count("done", 13, lambda row: row.counts.get(RunState.DONE), _done),
        _in_state(RunState.RUNNING),
        _in_state(RunState.QUEUED, room=90),
        _in_state(RunState.FAILED),
        _count("e2e fps", 8, lambda row: row.end_to_end_fps, lambda row: number(row.end_to_end_fps or None)),
        _eta(9, lambda row: row.eta),
        _COST,
        _time("as of", lambda row: row.seen, room=100),
    ),
    urgency=lambda row: row.name,
    text=lambda row: f"{row.name} {row.problem or ''}",
)

VIEWS: Sequence[View] = (RUNS, JOBS, SWEEPS, FAILURES)

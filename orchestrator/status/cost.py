"""What jobs have cost so far: their time by their workers' journals, and the prices of profiles. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core.types import JobState
from orchestrator.rundir import WorkerLog
from orchestrator.status.survey import Survey

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Cost:
    """US dollars for the jobs with a price, and how many jobs have worked with one and without.

    The sum of nothing costs nothing and knows nothing: only where ``priced`` is above zero is there a sum.
    """

    dollars: float = 0.0
    priced: int = 0
    unpriced: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.dollars + other.dollars, self.priced + other.priced, self.unpriced + other.unpriced)

    def __str__(self) -> str:
        """``$1.20``; ``$1.20+`` if other jobs have no price; ``–`` if none has one."""
        if not self.priced:
            return "–"
        return f"${self.dollars:,.2f}{'+' if self.unpriced else ''}"


def job_state(token: str, seen: Survey, log: WorkerLog | None) -> JobState:
    """A job's state by its backend, or, where none was asked, by what was written."""
    if token in seen.jobs:
        return seen.jobs[token].state
    if token not in seen.live:
        return JobState.ENDED
    return JobState.QUEUED if log is None or log.exited else JobState.RUNNING


def worked(seen: Survey, logs: Iterable[WorkerLog], now: float) -> dict[str, float]:
    """How long each job that ever began has worked, in seconds, by token."""

    def lives(log: WorkerLog) -> bool:
        return not log.exited and job_state(log.token, seen, log) is JobState.RUNNING

    return {log.token: job_seconds(log, lives=lives(log), now=now) for log in logs}


def job_seconds(log: WorkerLog, *, lives: bool, now: float) -> float:
    """How long a job has had its machine, to its worker's last event, or while it lives until ``now``.

    Of a worker that was killed counts what is on record: it may have lived on for as long as it is silent
    between two events. ``now`` and the result are in seconds.
    """
    return log.worked(now if lives else None)


def job_cost(seconds: float, price_per_hour: float | None) -> Cost:
    """The cost of one job that has worked so long; nothing of one that has not begun."""
    if seconds <= 0:
        return Cost()
    if price_per_hour is None:
        return Cost(unpriced=1)
    return Cost(seconds / _HOUR_S * price_per_hour, priced=1)

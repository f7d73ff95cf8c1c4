"""Jobs so far: their states, working times and costs, by their journals and profiles' prices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.core.types import JobState
from orchestrator.rundir import WorkerLog
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import Survey

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Cost:
    """US dollars of jobs with a price, and the numbers of jobs with and without a price.

    The sum is unknown while ``priced`` is zero.
    """

    dollars: float = 0.0
    priced: int = 0
    unpriced: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.dollars + other.dollars, self.priced + other.priced, self.unpriced + other.unpriced)

    def __str__(self) -> str:
        """Format as ``$1.20``; ``$1.20+`` if some jobs have no price; ``–`` if none has one."""
        if not self.priced:
            return "–"
        return f"${self.dollars:,.2f}{'+' if self.unpriced else ''}"


def job_state(token: str, seen: Survey, log: WorkerLog | None) -> JobState:
    """Return a job's state from its backend, or from its journal if the backend was not queried."""
    if token in seen.jobs:
        return seen.jobs[token].state
    if token not in seen.live:
        return JobState.ENDED
    return JobState.QUEUED if log is None or log.exited else JobState.RUNNING


def worked(seen: Survey, logs: Iterable[WorkerLog], now: float) -> dict[str, float]:
    """Return the seconds each started job has worked, by token."""

    def lives(log: WorkerLog) -> bool:
        return not log.exited and job_state(log.token, seen, log) is JobState.RUNNING

    return {log.token: job_seconds(log, lives=lives(log), now=now) for log in logs}


def job_seconds(log: WorkerLog, *, lives: bool, now: float) -> float:
    """Return the seconds a job has had its machine: to its last event, or to ``now`` while it lives.

    A killed worker counts to its last event, although it may have lived until its next one was due. ``now``
    is in epoch seconds.
    """
    return log.worked(now if lives else None)


def job_cost(seconds: float, price_per_hour: float | None) -> Cost:
    """Return the cost of a job that has worked for so many seconds; nothing before its start."""
    if seconds <= 0:
        return Cost()
    if price_per_hour is None:
        return Cost(unpriced=1)
    return Cost(seconds / _HOUR_S * price_per_hour, priced=1)


def job_facts(seen: Survey) -> dict[str, dict[str, Any]]:
    """Return jobs that ever began or that a backend was asked about, by token, for `status --json`.

    Each with the backend's id, its state and wording, the runs, and the seconds of its work.
    """
    ids, runs = job_ids(seen.ledger), {job.token: job.run_ids for _, job in jobs_of(seen.ledger)}
    times, logs = worked(seen, seen.logs, time.time()), {log.token: log for log in seen.logs}
    return {
        token: {
            "id": ids.get(token),
            "state": job_state(token, seen, logs.get(token)).value,
            "text": seen.jobs[token].text if token in seen.jobs else "",
            "runs": runs.get(token, []),
            "seconds": times.get(token),
        }
        for token in dict.fromkeys((*seen.jobs, *logs))
    }

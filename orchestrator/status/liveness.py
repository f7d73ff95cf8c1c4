"""Judge workers and jobs: alive, silent for too long, able to return. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.core.types import JobState, JobStatus
from orchestrator.rundir import Holder, LedgerEntry, WorkerLog
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, jobs_of

Alive = Callable[[Holder], bool | None]


@dataclass(frozen=True)
class Moment:
    """When a sweep is surveyed, in epoch seconds, and how workers are judged then: by their process, and by
    their ``lease`` in seconds.
    """

    alive: Alive
    now: float
    lease: float


# A run is shown as stalled after this many of its own longest silences, and never within a lease.
_SILENCES = 5
# A worker counts as active for this many seconds, or two of its silences, after its last line.
_RECENT_S = 30.0


def is_stalled(times: Sequence[float], now: float, lease: float) -> bool:
    """Return whether the silence after the last of these times (epoch seconds) is unusually long."""
    return now - times[-1] > max(lease, _SILENCES * _longest_gap(times))


def is_active(times: Sequence[float], now: float, lease: float) -> bool:
    """Return whether the last of these times is recent enough for an active worker; at most a lease ago."""
    return now - times[-1] <= min(lease, max(_RECENT_S, 2 * _longest_gap(times)))


def _longest_gap(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


def is_alive(log: WorkerLog, job: JobStatus | None, alive: Alive) -> bool | None:
    """Return whether a worker lives, by its journal, its backend, its process; None if unknown.

    Where the process itself is visible, the backend's word about a running job is no proof of it.
    """
    holder = log.holder
    if holder is None or log.exited:
        return False
    if job is not None and job.state in (JobState.QUEUED, JobState.ENDED):
        return False
    seen = alive(holder)
    return True if seen is None and job is not None and job.state is JobState.RUNNING else seen


def outlived(log: WorkerLog, job: JobStatus | None) -> bool:
    """Return whether the worker may survive in a requeued job: a node's daemon died, and not the node."""
    return not log.exited and job is not None and job.state is JobState.QUEUED


def live_tokens(
    ledger: Iterable[LedgerEntry],
    logs: Iterable[WorkerLog],
    living: Mapping[str, bool | None],
    jobs: Mapping[str, JobStatus],
) -> frozenset[str]:
    """Return the jobs that provably work, that have not started, or that may return to the queue.

    A job without a recorded id counts: it may start until its token is revoked. So does one that its backend
    reports, even with a dead process: it may be requeued. So does one in a queue that did not answer.
    """
    submitted = {job.token: entry for entry, job in jobs_of(ledger)}
    queued = {token for token, entry in submitted.items() if _outlives_command(entry)}
    began = {log.token for log in logs if log.holder is not None}
    waiting = {token for token in submitted if token not in living}
    working = {token for token, lives in living.items() if lives}
    back = {log.token for log in logs if log.returning}
    back |= {token for token, job in jobs.items() if job.state in (JobState.QUEUED, JobState.RUNNING)}
    back |= {token for token in queued & began if token in jobs and jobs[token].state is JobState.UNKNOWN}
    ended = {token for token, job in jobs.items() if job.state.final}
    revoked = {log.token for log in logs if log.revoked}  # its backend may report the job for a while yet
    return frozenset((waiting | working | back) - ended - revoked)


def working_tokens(living: Mapping[str, bool | None], jobs: Mapping[str, JobStatus]) -> frozenset[str]:
    """Return the jobs with a worker at work."""
    running = {token for token, job in jobs.items() if job.state is JobState.RUNNING}
    return frozenset({token for token, lives in living.items() if lives} | running)


def _outlives_command(submission: SubmissionEntry) -> bool:
    """Return whether its jobs go on without the submitting machine's command; local processes just end."""
    return submission.backend != "local"

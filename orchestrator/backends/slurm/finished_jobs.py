"""Find out how jobs ended that left the queue, from accounting and the controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass

from orchestrator.backends.slurm.parse import ACCOUNTING_FIELDS, LISTED, array_of, queue_entries, sacct_jobs
from orchestrator.core.types import JobState, JobStatus, RunCommand

# Accounting follows the queue within seconds, or not at all: seconds until the next query, at first ...
_FIRST_REST_S = 2.0
# ... and at most. After a failure: this long, or this multiple of the time that the failure took.
_LONGEST_REST_S = 30.0
_REST = 10


@dataclass
class _Doubt:
    """The status of a job without a known end; reused for ``rest`` seconds, until ``until``."""

    status: JobStatus
    rest: float
    until: float


class FinishedJobs:
    """Remembers how jobs ended. Accounting may be slow, broken or absent, and is queried rarely."""

    def __init__(self, ask: RunCommand, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._ends: dict[str, JobStatus] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._accounting_from = 0.0

    @property
    def settled(self) -> Set[str]:
        """Jobs with a known end."""
        return self._ends.keys()

    def statuses(self, job_ids: Set[str]) -> dict[str, JobStatus]:
        """Return the status of jobs that are missing in the queue."""
        unsettled = job_ids - self._ends.keys()
        if any(one not in self._doubts or self._clock() >= self._doubts[one].until for one in unsettled):
            self._ends |= self._accounting(unsettled)
            for one, status in self._absent(unsettled - self._ends.keys()).items():
                before = self._doubts.get(one)
                rest = min(_LONGEST_REST_S, 2 * before.rest if before else _FIRST_REST_S)
                self._doubts[one] = _Doubt(status, rest, self._clock() + rest)
        return {one: self._ends[one] if one in self._ends else self._doubts[one].status for one in job_ids}

    def _accounting(self, job_ids: Set[str]) -> dict[str, JobStatus]:
        """Return the ends found in accounting."""
        began = self._clock()
        if began < self._accounting_from:
            return {}
        named = ",".join(sorted(set(map(array_of, job_ids))))
        answer = self._ask(["sacct", "-n", "-P", "-X", "-j", named, f"--format={ACCOUNTING_FIELDS}"])
        if answer.code != 0:
            now = self._clock()
            self._accounting_from = now + max(_LONGEST_REST_S, _REST * (now - began))
            return {}
        told = sacct_jobs(answer.output)
        return {one: status for one, status in told.items() if one in job_ids and status.state.final}

    def _absent(self, job_ids: Set[str]) -> dict[str, JobStatus]:
        """Return the status of jobs that are missing in the user's queue, with no end in accounting.

        A job id unknown to the controller has ended, in an unknown way.
        """
        if not job_ids:
            return {}
        named = ",".join(sorted({array_of(one) for one in job_ids}))
        answer = self._ask(["squeue", *LISTED, "-j", named])
        if answer.code != 0 and "invalid job id" not in answer.complaint.lower():
            return dict.fromkeys(job_ids, JobStatus(JobState.UNKNOWN, f"squeue: {answer.complaint}"))
        there = {entry.job_id: entry.status for entry in queue_entries(answer.output)}
        over = JobStatus(JobState.ENDED, "left the queue")
        return {one: there.get(one, over) for one in job_ids}

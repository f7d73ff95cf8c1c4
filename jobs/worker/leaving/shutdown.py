"""Why and when a worker leaves, how long its runs are given, and whether it comes back."""

from __future__ import annotations

import signal
import time

from jobs.worker.scheduler_job import SchedulerJob
from jobs.worker.signals import grace_seconds
from orchestrator.core.types import Reason

# Warnings ahead of time: the runs go on in another job, or in this one after a requeue.
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
# Seconds for runs to save and leave once the budget is used up.
_UNPAID_S = 60.0
# Sent by people. Schedulers send SIGTERM as well, when they preempt a job or its time is over.
_ORDERS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """The worker's decision to leave. ``why`` is empty until there is a reason.

    ``unpaid``: the job's share of a budget is used up.
    """

    def __init__(self, scheduler_job: SchedulerJob) -> None:
        self._scheduler_job = scheduler_job
        self.why = ""
        self.kill_at = float("inf")
        self._warned = False
        self._ordered = False
        self.unpaid = False
        self._urgent_signals = 0
        self._signalled = False
        self._letters_read = 0
        self._answer: tuple[Reason | None] | None = None

    def on_signal(self, number: int, *, relayed: bool = False) -> None:
        """Take a stop signal. A second urgent one means at once; a relayed one may be the same again."""
        self._signalled = True
        if not self.why:
            self.why = f"received {signal.Signals(number).name}"
            self._warned = number in _WARNINGS and self._scheduler_job.job_id is not None
        self.kill_at = min(self.kill_at, time.monotonic() + grace_seconds(number))
        self._ordered |= number in _ORDERS
        if number in _ORDERS and not relayed:
            self._urgent_signals += 1
        if self._urgent_signals > 1:
            self.kill_at = 0.0

    @property
    def warned(self) -> bool:
        """Whether the job's end came near, and the job may come back."""
        return self._warned and not self.stopped

    @property
    def preempted(self) -> bool:
        """Whether the scheduler ended the job for the sake of other jobs."""
        return self._ordered and not self._warned and self._cause() is Reason.PREEMPTED

    @property
    def stopped(self) -> bool:
        """Whether a person ended the job or its budget is used up: it does not come back, nor submit more."""
        return self.unpaid or (self._ordered and self._cause() is None)

    @property
    def out_of_time(self) -> bool:
        """Whether the job was warned of its end, and not preempted."""
        return self.warned and self._scheduler_job.nears_end()

    @property
    def for_good(self) -> bool:
        """Whether the scheduler refuses to requeue the job."""
        return self._scheduler_job.ends_for_good()

    def _cause(self) -> Reason | None:
        """Return why the scheduler ends the job, if it does. The scheduler is queried once."""
        if self._answer is None:
            self._answer = (self._scheduler_job.ended_by_scheduler(),)
        return self._answer[0]

    def unpaid_for_more(self, why: str) -> None:
        """Begin no further run, for want of budget; the runs at work go on."""
        self.why, self.unpaid = self.why or why, True

    def unpaid_altogether(self, why: str) -> int:
        """End the runs at work, too, with the grace of a warning; return its signal."""
        self.unpaid_for_more(why)
        self.kill_at = min(self.kill_at, time.monotonic() + _UNPAID_S)
        return signal.SIGUSR1

    def no_time_for_more(self) -> None:
        """Leave because no time is left for another run, with runs still to do."""
        if not self.why:
            self.why, self._warned = "no time is left for another run", True

    def lost_nodes(self, why: str) -> None:
        """Leave because agents of other nodes are gone; the scheduler may give the job others."""
        if not self.why:
            self.why, self._warned = why, self._scheduler_job.job_id is not None

    def letters(self) -> list[int]:
        """Return new signals relayed by the job's script, or SIGUSR1 when the job's own end is near."""
        letters = self._scheduler_job.letters()[self._letters_read :]
        self._letters_read += len(letters)
        if not self._signalled and not letters and not self._scheduler_job.has_time_for(0.0):
            letters = [signal.SIGUSR1]
        return letters

"""Leaving: who asked the worker to go, how long its runs are given, and whether it is to come back."""

from __future__ import annotations

import signal
import time

from jobs.worker.scheduler_job import Allocation
from jobs.worker.signals import grace_seconds
from orchestrator.core.types import Reason

# Warnings ahead of time: what is left is to go on in another job, or in this one begun again.
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
# Seconds for which runs may go on, to save and leave, when nobody pays any more.
_UNPAID_S = 60.0
# By people. Schedulers send the first as well, when they preempt a job or its time is over.
_ORDERS = (signal.SIGTERM, signal.SIGINT)


class Leaving:
    """The worker's way out. ``why`` is empty while nobody asked it to go."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self.why = ""
        self.kill_at = float("inf")
        self._warned = False
        self._ordered = False
        self._unpaid = False
        self._urgent_signals = 0
        self._signalled = False
        self._letters_read = 0
        self._answer: tuple[Reason | None] | None = None

    def asked_by(self, number: int, *, relayed: bool = False) -> None:
        """A signal came. Who asks urgently twice wants it at once; a relayed one may be the same again."""
        self._signalled = True
        if not self.why:
            self.why = f"asked to leave by {signal.Signals(number).name}"
            self._warned = number in _WARNINGS and self._allocation.job_id is not None
        self.kill_at = min(self.kill_at, time.monotonic() + grace_seconds(number))
        self._ordered |= number in _ORDERS
        if number in _ORDERS and not relayed:
            self._urgent_signals += 1
        if self._urgent_signals > 1:
            self.kill_at = 0.0

    @property
    def warned(self) -> bool:
        """Whether the job's end came near, and nobody wants an end of it altogether."""
        return self._warned and not self.stopped

    @property
    def preempted(self) -> bool:
        """Whether it was the scheduler that asked, and for the sake of others."""
        return self._ordered and not self._warned and self._cause() is Reason.PREEMPTED

    @property
    def stopped(self) -> bool:
        """Whether a person asked, or pays no more: it is not to come back, nor to submit what is left."""
        return self._unpaid or (self._ordered and self._cause() is None)

    @property
    def out_of_time(self) -> bool:
        """Whether it was warned of the job's end, and not of being preempted."""
        return self.warned and self._allocation.nears_end()

    def _cause(self) -> Reason | None:
        """Why the scheduler wants an end of the job, if it does. It is asked once."""
        if self._answer is None:
            self._answer = (self._allocation.ended_by_scheduler(),)
        return self._answer[0]

    @property
    def unpaid(self) -> bool:
        """Whether the job's share of a budget is used up."""
        return self._unpaid

    def unpaid_for_more(self, why: str) -> None:
        """No further run is paid for; those at work go on."""
        self.why, self._unpaid = self.why or why, True

    def unpaid_altogether(self, why: str) -> int:
        """Nor are the runs at work paid for any longer: they have the time of a warning. Its signal."""
        self.unpaid_for_more(why)
        self.kill_at = min(self.kill_at, time.monotonic() + _UNPAID_S)
        return signal.SIGUSR1

    def no_time_for_more(self) -> None:
        """Runs are left, and the job has no time for another one."""
        if not self.why:
            self.why, self._warned = "no time is left for another run", True

    def letters(self) -> list[int]:
        """Signals that others got in this worker's place, its own end coming near among them."""
        letters = self._allocation.letters()[self._letters_read :]
        self._letters_read += len(letters)
        if not self._signalled and not letters and not self._allocation.has_time_for(0.0):
            letters = [signal.SIGUSR1]
        return letters

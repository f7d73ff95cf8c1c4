"""A job's share of a budget, as time that it may work. The worker counts it by itself, whoever else lives."""

from __future__ import annotations

import time

from orchestrator.core.types import BUDGET_REACHED

# So much of the time is left for runs to save and leave, though no more than that.
_TO_LEAVE_SHARE, _TO_LEAVE_S = 0.05, 30.0


class Allowance:
    """``seconds`` that the job may work, ``worked`` already, before it was given back to the queue.

    Without ``seconds`` it may work as long as it can.
    """

    def __init__(self, seconds: float | None, worked: float = 0.0) -> None:
        self._seconds = seconds
        left = float("inf") if seconds is None else seconds - worked
        to_leave = 0.0 if seconds is None else min(_TO_LEAVE_S, _TO_LEAVE_SHARE * seconds)
        self._ends = time.monotonic() + left - to_leave

    def has_time_for(self, seconds: float) -> bool:
        """Whether so much work is paid for."""
        return time.monotonic() + seconds < self._ends

    @property
    def why(self) -> str:
        """Why the job leaves when it is used up."""
        return f"{BUDGET_REACHED}: its share paid for {self._seconds or 0.0:,.0f} s of this job"

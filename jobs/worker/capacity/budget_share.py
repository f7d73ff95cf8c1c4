"""A job's share of a budget, as working time. The worker counts it without help from outside."""

from __future__ import annotations

import time

# So much of the time is left for runs to save and leave, though no more than that.
_TO_LEAVE_SHARE, _TO_LEAVE_S = 0.05, 30.0


class BudgetShare:
    """``seconds`` that the job may work, less those ``worked`` before: until it was requeued, or since its
    machine was rented.

    Without ``seconds`` there is no limit.
    """

    def __init__(self, seconds: float | None, worked: float = 0.0) -> None:
        self._began = time.monotonic() - worked
        self.limit(seconds)

    def limit(self, seconds: float | None) -> None:
        """Set the share anew: its machine is dearer than planned."""
        self._seconds = seconds
        left = float("inf") if seconds is None else seconds - min(_TO_LEAVE_S, _TO_LEAVE_SHARE * seconds)
        self._ends = self._began + left

    def has_time_for(self, seconds: float) -> bool:
        """Whether this many seconds of work are paid for."""
        return time.monotonic() + seconds < self._ends

    @property
    def why(self) -> str:
        """Why the job leaves when the share is used up."""
        return f"the job's share of the budget paid for {self._seconds or 0.0:,.0f} s"

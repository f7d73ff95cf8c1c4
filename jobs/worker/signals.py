"""Which signals ask a worker and its runs to leave, and how long each gives them."""

from __future__ import annotations

import os
import signal
import time

from jobs.worker.scheduler_job import ENDS_VARIABLE

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

# Schedulers send SIGTERM shortly before SIGKILL; SIGUSR1 and SIGUSR2 are early warnings asked for on purpose.
_URGENT_GRACE_S, _WARNING_GRACE_S = 30.0, 60.0
# Of the time that a warning leaves, what the worker and the job's script need for themselves.
_LAST_S = 10.0


def grace_seconds(number: int) -> float:
    """Seconds from the signal until what is left is killed; ``ORCHESTRATE_GRACE`` replaces them.

    A warning in a job whose end is known leaves almost all of the time up to there.
    """
    if chosen := os.environ.get("ORCHESTRATE_GRACE"):
        return float(chosen)
    if number not in (signal.SIGUSR1, signal.SIGUSR2):
        return _URGENT_GRACE_S
    ends = os.environ.get(ENDS_VARIABLE)
    return max(_LAST_S, float(ends) - time.time() - _LAST_S) if ends else _WARNING_GRACE_S

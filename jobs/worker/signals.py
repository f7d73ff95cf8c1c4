"""The signals that stop a worker and its runs, and the grace of each."""

from __future__ import annotations

import os
import signal
import time

from jobs.worker.scheduler_job import ENDS_VARIABLE
from orchestrator.core import environment

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

# Schedulers send SIGTERM shortly before SIGKILL; SIGUSR1 and SIGUSR2 are early warnings requested by a job.
_URGENT_GRACE_S, _WARNING_GRACE_S = 30.0, 60.0
# The part of the grace that the worker and the job's script need for themselves.
_LAST_S = 10.0


def grace_seconds(number: int) -> float:
    """Return the seconds from the signal until the kill; ``ORCHESTRATE_GRACE`` replaces them.

    A warning in a job with a known end leaves almost all of the time up to it.
    """
    if chosen := environment.seconds(environment.GRACE):
        return chosen
    if number not in (signal.SIGUSR1, signal.SIGUSR2):
        return _URGENT_GRACE_S
    ends = os.environ.get(ENDS_VARIABLE)
    return max(_LAST_S, float(ends) - time.time() - _LAST_S) if ends else _WARNING_GRACE_S

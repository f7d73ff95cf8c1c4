"""Which signals ask a worker and its runs to leave, and how long each gives them."""

from __future__ import annotations

import os
import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

# Schedulers send SIGTERM shortly before SIGKILL; SIGUSR1 and SIGUSR2 are early warnings asked for on purpose.
_URGENT_GRACE_S, _WARNING_GRACE_S = 30.0, 60.0


def grace_seconds(number: int) -> float:
    """Seconds from the signal until what is left is killed; ``ORCHESTRATE_GRACE`` replaces them."""
    default = _WARNING_GRACE_S if number in (signal.SIGUSR1, signal.SIGUSR2) else _URGENT_GRACE_S
    return float(os.environ.get("ORCHESTRATE_GRACE", default))

"""Environment variables that a user sets, each parsed and refused in this place."""

from __future__ import annotations

import math
import os
import sys

from orchestrator.core.errors import OrchestrateError

# Seconds without renewal after which a claim may be taken over; seconds from SIGTERM to SIGKILL.
LEASE, GRACE = "ORCHESTRATE_LEASE", "ORCHESTRATE_GRACE"
_OPTIMIZE = "PYTHONOPTIMIZE"


def seconds(name: str) -> float | None:
    """Return the variable's seconds; ``None`` if it is not set. Raises :class:`OrchestrateError`."""
    text = os.environ.get(name, "").strip()
    try:
        found = float(text) if text else None
    except ValueError:
        found = math.nan
    if found is not None and not 0 < found < math.inf:
        raise OrchestrateError(
            f"the environment variable {name} is {text!r}; expected seconds above 0, such as 60",
            hint=f"unset {name}",
        )
    return found


def require_usable() -> None:
    """Check the variables as a program begins. Raises :class:`OrchestrateError`.

    Hydra's parser and training libraries have effects in assertions, which PYTHONOPTIMIZE leaves out: then
    the program is started again without it.
    """
    for name in (LEASE, GRACE):
        seconds(name)
    if sys.flags.optimize and os.environ.pop(_OPTIMIZE, ""):
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 (this very program, by its own arguments)

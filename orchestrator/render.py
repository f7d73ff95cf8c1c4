"""Plan → script text: the exact text that a backend runs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from orchestrator.types import Job


def worker_argv(results: Path, job: Job) -> list[str]:
    """The worker of a job, as an argument vector."""
    # -P: a jobs/ of the user's own in the folder of the call must not stand in for ours.
    return [sys.executable, "-P", "-m", "jobs.worker", str(results.absolute()), job.sweep, job.token]


def local_script(results: Path, job: Job) -> str:
    """The one command of a local job, quoted for reading and pasting."""
    return shlex.join(worker_argv(results, job))

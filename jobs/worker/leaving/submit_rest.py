"""Submit the rest of a sweep from a job that ends, so that no process has to wait on a login node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from jobs.worker.scheduler_job import SchedulerJob
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.journal import ENDED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, submissions

# Set by the job's script where the site lets jobs submit jobs.
_VARIABLE = "ORCHESTRATE_FEED"
_PATIENCE_S = 600.0

# After this many failed attempts of the latest submission the control plane looks for a bad machine.
_MANY_FAILURES = 3


def submit_remaining(sweep: SweepDir, job: str, scheduler_job: SchedulerJob, *, wanted: bool) -> None:
    """Submit to the target of ``job`` (a token) what the queue had no room for, and runs to be redone.

    ``wanted``: there are runs to redo. Runs that failed because of their machine count, too, which the
    control plane finds out. It is started as a program: none of it is loaded into workers.
    """
    if scheduler_job.job_id is None or os.environ.get(_VARIABLE) != "1":
        return
    if not wanted and not _something_is_left(sweep, job):
        return
    argv = [
        sys.executable,
        "-P",
        "-m",
        "orchestrator.control.continue_from_job",
        str(sweep.results),
        sweep.name,
        job,
    ]
    _open_to_signals()
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"could not submit what is left: {error}\n")


def _open_to_signals() -> None:
    """Unblock the stop signals for the program, which inherits blocked and ignored ones.

    Handled ones it does not inherit, and this process is to outlast them.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _something_is_left(sweep: SweepDir, job: str) -> bool:
    """Whether the latest submission to the job's target has waiting runs, or many failed attempts."""
    made = submissions(sweep.read_ledger(strict=False))
    own = next(entry for entry in made if job in {one.token for one in entry.jobs})
    latest = next(entry for entry in reversed(made) if entry.on == own.on)
    return latest.waiting or _many_failed(sweep, latest)


def _many_failed(sweep: SweepDir, submission: SubmissionEntry) -> bool:
    tokens = {job.token for job in submission.jobs}
    logs = [log for log in sweep.read_journals() if log.token in tokens]
    ends = [event.end.outcome for log in logs for event in log.events if event.kind == ENDED]
    return ends.count(RunState.FAILED) >= _MANY_FAILURES

"""Submit the waiting runs of a sweep from a job that ends.

Started as ``python -m orchestrator.control.continue_from_job RESULTS SWEEP JOB``. Without it a sweep
larger than the queue's room would need a process on the login node.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.control import submit
from orchestrator.control.last_submission import LastSubmission, latest_target
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import OrchestrateError, QueueFullError, RefusedError
from orchestrator.core.formatting import count
from orchestrator.core.types import Capacity, Plan
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir

# Seconds between the ends of waiting of jobs that end together.
_TURN_S = 5.0
_LONGEST_WAIT_S = 60.0
_INTERVAL_S = 1.0


def proceed(results: Path, name: str, job: str) -> str:
    """Submit as many runs as the queue takes at the target of ``job`` (a token); a line for the log."""
    sweep_dir = SweepDir.existing(results, name)
    latest = latest_target(sweep_dir, job)
    assert latest is not None, "a job runs this"
    began = time.monotonic()
    while (plan := _submit(sweep_dir, latest)) is None:
        if time.monotonic() - began >= _patience(sweep_dir, job):
            return "the queue has no room now; jobs that end later submit what is left, or the same command"
        time.sleep(_INTERVAL_S)  # without a lock, so that other jobs can end
    if not plan.jobs:
        return "nothing more to submit now"
    said = f"submitted {count(len(plan.jobs), 'more job')} for {count(len(plan.run_ids), 'run')}"
    return f"{said}, {len(plan.waiting)} wait" if plan.waiting else said


def _submit(sweep_dir: SweepDir, latest: LastSubmission) -> Plan | None:
    """The submitted plan; ``None`` if runs are left that the queue has no room for."""
    backend, options = latest.backend, SubmitOptions(latest.slots, latest.canary)

    def room() -> Capacity:
        """The queue's room. The profile's limits count only jobs that still have work."""
        capacity = backend.capacity()
        limits = [limit for limit in (capacity.at_once, capacity.most) if limit is not None]
        if capacity.no_feed is not None and capacity.room == 0:
            raise RefusedError(
                f"the queue has no room: {capacity.no_feed}",
                hint="the same sweep command submits what is left",
            )
        if not limits:
            return capacity
        seen = poll_sweep(sweep_dir)
        working = seen.live - _through(sweep_dir).keys()
        there = [token for token in working if seen.targets.get(token) == capacity.target]
        free = max(0, min(limits) - len(there))
        room = free if capacity.room is None else min(free, capacity.room)
        return replace(capacity, room=room, most=None)

    sweep = submit.latest_sweep(sweep_dir)
    try:
        done = submit.resubmit(sweep, sweep_dir, backend, options, room, latest.assignment)
    except QueueFullError:
        return None
    return None if done.full else done.plan


def _through(sweep_dir: SweepDir) -> dict[str, float]:
    """Workers that have ended, as the caller's has: time of the end by token."""
    logs = sweep_dir.read_journals()
    return {log.token: log.events[-1].time for log in logs if log.exited and not log.returning and log.events}


def _patience(sweep_dir: SweepDir, job: str) -> float:
    """Seconds to wait for room in the queue.

    0 while another job of the target works: that job submits the rest. The queue counts jobs until they have
    left it, so jobs that end together block each other: they stop waiting one after the other.
    """
    seen, through = poll_sweep(sweep_dir), _through(sweep_dir)
    target = seen.targets.get(job)
    if any(seen.targets.get(token) == target for token in seen.live - through.keys() - {job}):
        return 0.0
    lately = time.time() - 2 * _LONGEST_WAIT_S
    others = [token for token, at in through.items() if token != job and at > lately]
    if all(token < job for token in others):
        return _LONGEST_WAIT_S  # the last one: no later job submits the rest
    return min(_LONGEST_WAIT_S, _TURN_S * (1 + sum(token < job for token in others)))


def main(arguments: list[str]) -> int:
    try:
        sys.stderr.write(proceed(Path(arguments[0]), *arguments[1:]) + "\n")
        return 0
    except OrchestrateError as error:
        sys.stderr.write(f"could not submit what is left: {error}\n  {error.hint or ''}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

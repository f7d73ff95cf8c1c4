"""``python -m orchestrator.proceed RESULTS SWEEP JOB``: submits what a sweep has left, from a job that ends.

So a sweep that the queue had no room for goes on without anything waiting on the login node.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from orchestrator import control
from orchestrator.control import Wish
from orchestrator.errors import OrchestrateError
from orchestrator.observe import job_ids, look
from orchestrator.plan import Capacity
from orchestrator.rundir import SweepDir
from orchestrator.submitted import latest_target


def proceed(results: Path, name: str, job: str) -> str:
    """Submit as much as the queue takes at the target of ``job`` (a token); what was done, in a line."""
    sweep_dir = SweepDir.existing(results, name)
    sweep = control.latest_sweep(sweep_dir)
    latest = latest_target(sweep_dir, job)
    assert latest is not None, "a job runs this"
    backend, wish = latest.backend, Wish(latest.slots, latest.canary)

    def room() -> Capacity:
        """What the queue takes; jobs that are through with their work, as this one, do not count."""
        gone = {log.token for log in sweep_dir.read_journals() if log.exited and not log.returning}
        ids = job_ids(sweep_dir.read_ledger())
        capacity = backend.capacity(leaving={ids[token] for token in gone if token in ids})
        limits = [limit for limit in (capacity.at_once, capacity.most) if limit is not None]
        if not limits:
            return capacity
        seen = look(sweep_dir)
        there = [token for token in seen.live - gone if seen.targets.get(token) == capacity.target]
        free = max(0, min(limits) - len(there))
        room = free if capacity.room is None else min(free, capacity.room)
        return replace(capacity, room=room, most=None)

    done = control.submit_sweep(
        sweep, sweep_dir, backend, wish, define=False, capacity=room, deal=latest.deal
    )
    plan = done.plan
    if not plan.jobs:
        return "nothing more to submit now"
    said = f"submitted {len(plan.jobs)} more jobs for {len(plan.run_ids)} runs"
    return f"{said}, {len(plan.waiting)} wait" if plan.waiting else said


def main(arguments: list[str]) -> int:
    try:
        sys.stderr.write(proceed(Path(arguments[0]), *arguments[1:]) + "\n")
        return 0
    except OrchestrateError as error:
        sys.stderr.write(f"could not submit what is left: {error}\n  {error.hint or ''}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Choose failed runs to retry automatically: with more memory, or on another machine. Pure."""

from __future__ import annotations

from orchestrator.core.types import Capacity, Reason, RunState, Sweep
from orchestrator.planning.plan import can_have_more_memory
from orchestrator.status.survey import RunStatus, Survey, decided


def second_chances(sweep: Sweep, seen: Survey, capacity: Capacity) -> dict[str, dict[str, int]]:
    """Return the failed attempts to retry, by run, by kind of ledger entry.

    "memory": the run was out of memory and the target has more. "retry": its machine fails runs that finish
    elsewhere, and can be avoided. Each at most once per run.
    """
    memory, retry = {}, {}
    roomy = can_have_more_memory(sweep, capacity)
    for run in sweep.runs:
        status = seen.statuses[run.run_id]
        if status.state is not RunState.FAILED or status.attempt <= status.forgiven:
            continue
        if status.reason == Reason.OUT_OF_MEMORY.value and roomy and not status.more_memory:
            memory[run.run_id] = status.attempt
        elif capacity.can_avoid and not status.forgiven and _failed_on_a_bad_machine(status, seen):
            retry[run.run_id] = status.attempt
    return {kind: runs for kind, runs in (("memory", memory), ("retry", retry)) if runs}


def _failed_on_a_bad_machine(status: RunStatus, seen: Survey) -> bool:
    return any(runs.get(status.run_id) == status.attempt for runs in seen.bad_machines.values())


def with_second_chances(seen: Survey, chances: dict[str, dict[str, int]]) -> Survey:
    """Return the survey with these retries applied."""
    for kind, runs in chances.items():
        seen = decided(seen, kind, runs)
    return seen

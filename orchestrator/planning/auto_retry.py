"""Choose failed runs to retry automatically: with more memory, or on another machine. Pure."""

from __future__ import annotations

from orchestrator.core.types import Capacity, Reason, RunState, Sweep
from orchestrator.planning.plan import can_have_more_memory
from orchestrator.rundir.records.ledger_entries import AttemptsEntry, MemoryEntry, RetryEntry
from orchestrator.status.survey import RunStatus, Survey

_WHY = "second chance"


def second_chances(sweep: Sweep, seen: Survey, capacity: Capacity) -> list[AttemptsEntry]:
    """Return ledger entries that retry failed attempts, at most once per run.

    :class:`MemoryEntry`: the run was out of memory and the target has more. :class:`RetryEntry`: its machine
    fails runs that finish elsewhere, and can be avoided.
    """
    memory, retry = {}, {}
    roomy = can_have_more_memory(sweep, capacity)
    for run in sweep.runs:
        status = seen.statuses[run.run_id]
        if status.state is not RunState.FAILED or status.attempt <= status.forgiven:
            continue
        if status.reason is Reason.OUT_OF_MEMORY and roomy and not status.more_memory:
            memory[run.run_id] = status.attempt
        elif capacity.can_avoid and not status.forgiven and _failed_on_a_bad_machine(status, seen):
            retry[run.run_id] = status.attempt
    # `why` keeps such a run from the workers of earlier submissions, which would fail it again.
    chances = (MemoryEntry(runs=memory, why=_WHY), RetryEntry(runs=retry, why=_WHY))
    return [entry for entry in chances if entry.runs]


def _failed_on_a_bad_machine(status: RunStatus, seen: Survey) -> bool:
    return any(runs.get(status.run_id) == status.attempt for runs in seen.bad_machines.values())

"""What is still to do, as jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.state import DAMAGED_RESULT, Survey
from orchestrator.trainers import get_trainer
from orchestrator.types import Job, Plan, Run, RunState, Sweep

# Work for a new job. Everything else is finished, waits for a person, or is a live job's.
_TO_DO = (RunState.PENDING, RunState.INTERRUPTED, RunState.SKIPPED)


@dataclass(frozen=True)
class Capacity:
    """What a target offers to one job: ``cores``, ``gpus``, and why a GPU run cannot be placed there."""

    target: str
    cores: int
    gpus: int
    no_gpu: str = "needs a GPU, and this machine has none that can be used"


def make_plan(
    sweep: Sweep,
    survey: Survey,
    capacity: Capacity,
    *,
    submission: int,
    slots: int | None = None,
) -> Plan:
    """Assign every run that is to do, and that the target can run, to one job.

    ``slots``: runs at once; by default as many as have cores of their own, those of live jobs taken off.
    ``submission`` numbers the ledger entry that the plan will become, and so its token.
    """
    skipped: dict[str, str] = {}
    todo: list[Run] = []
    for run in sweep.runs:
        if survey.statuses[run.run_id].state not in _TO_DO:
            continue
        why = _cannot_place(run, sweep, capacity)
        if why is None:
            todo.append(run)
        else:
            skipped[run.run_id] = why
    statuses = [survey.statuses[run.run_id] for run in sweep.runs]
    states = {status.run_id: status.state for status in statuses}
    problems = {status.run_id: status.message or "" for status in statuses if status.reason == DAMAGED_RESULT}
    if not todo:
        return Plan(sweep, capacity.target, (), skipped, problems, states)
    job = Job(
        token=f"{submission:04d}-0001",
        sweep=sweep.name,
        target=capacity.target,
        run_ids=tuple(run.run_id for run in todo),
        slots=min(len(todo), slots or default_slots(sweep, capacity, survey)),
        resources=sweep.resources,
    )
    return Plan(sweep, capacity.target, (job,), skipped, problems, states)


def default_slots(sweep: Sweep, capacity: Capacity, survey: Survey) -> int:
    """Runs at once: one per ``cpus_per_task`` cores, less those that already run; at least one."""
    busy = sum(status.state is RunState.RUNNING for status in survey.statuses.values())
    slots = capacity.cores // sweep.resources.cpus_per_task
    if sweep.resources.gpus:
        slots = min(slots, capacity.gpus // sweep.resources.gpus)
    return max(1, slots - busy)


def _cannot_place(run: Run, sweep: Sweep, capacity: Capacity) -> str | None:
    if run.target is not None and run.target != capacity.target:
        return f"belongs to target {run.target}"
    needed = sweep.resources.gpus or int(get_trainer(run.trainer).needs_gpu(run))
    if needed > capacity.gpus:
        return capacity.no_gpu if not capacity.gpus else f"needs {needed} GPUs, found {capacity.gpus}"
    return None

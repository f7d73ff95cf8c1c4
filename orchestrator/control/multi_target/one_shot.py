"""Submissions of a shared sweep at once: checks, a submission without following, a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from orchestrator.config.check import CheckProblem, check_sweep
from orchestrator.control import submit
from orchestrator.control.exchange import Tell, quietly
from orchestrator.control.forecast import forecasts
from orchestrator.control.multi_target.scheduler import TargetScheduler
from orchestrator.control.multi_target.targets import SharedSweep, TargetHandle, abilities
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Sweep, TargetAssignment
from orchestrator.planning.distribute import assign_runs, split
from orchestrator.planning.plan import to_do


def check(shared: SharedSweep, targets: Sequence[TargetHandle]) -> tuple[CheckProblem, ...]:
    """Check the runs to do; return the warnings.

    Raises :class:`ChecksFailedError`, and :class:`OrchestrateError` where a target lacks what its profile
    requires.
    """
    todo = _checkable(shared, targets)
    if todo.runs and (blocking := next((one.blocked for one in targets if one.blocked is not None), None)):
        raise OrchestrateError(blocking.text, hint=blocking.hint)
    return _warnings(todo)


def _checkable(shared: SharedSweep, targets: Sequence[TargetHandle]) -> Sweep:
    """The part of the sweep that is to do and that a target can train."""
    sweep, (_, skipped) = shared.sweep, abilities(shared.sweep, targets)
    seen = poll_sweep(shared.sweep_dir, submit.rows_of(sweep, shared.sweep_dir))
    return replace(sweep, runs=tuple(run for run in to_do(sweep, seen) if run.run_id not in skipped))


def _warnings(todo: Sweep) -> tuple[CheckProblem, ...]:
    return check_sweep(todo).require_passed() if todo.runs else ()


def submit_all(shared: SharedSweep, targets: Sequence[TargetHandle], tell: Tell) -> int:
    """Assign and submit all runs at once. Others get the part of a target that takes none.

    Return the exit code of what keeps runs from being submitted, 0 if nothing does.
    """
    scheduler = TargetScheduler(shared, targets, tell)
    scheduler.open()
    speeds = _speeds(shared, targets)
    while True:
        snapshot = scheduler.take_snapshot()
        loads = scheduler.loads(snapshot)
        assigned = split(scheduler.todo(snapshot), loads, speeds)
        if not assigned:
            left = scheduler.todo(snapshot)
            return max((error.exit_code for error in scheduler.refusals if left), default=0)
        for load in loads:
            if run_ids := assigned.get(load.name):
                scheduler.submit(load, run_ids, snapshot)


def rehearse(shared: SharedSweep, targets: Sequence[TargetHandle], *, detach: bool) -> Mapping[str, Any]:
    """Plan the first submissions, or with ``detach`` all, in the form of :func:`dry_run.planned`.

    Each array has its target. Runs that would be assigned later count as waiting. Writes nothing. Raises
    :class:`ChecksFailedError`.
    """
    warnings = _warnings(_checkable(shared, targets))
    scheduler = TargetScheduler(shared, targets, quietly)
    snapshot = scheduler.take_snapshot()
    todo, loads = scheduler.todo(snapshot), scheduler.loads(snapshot)
    assigned = split(todo, loads, _speeds(shared, targets)) if detach else assign_runs(todo, loads)
    arrays: list[Mapping[str, Any]] = []
    notes = list(map(str, warnings))
    waiting, later = len(todo), 0
    for load, target in zip(loads, targets, strict=True):
        if run_ids := assigned.get(load.name):
            plan = target.rehearse(TargetAssignment(frozenset(run_ids)), load.free, later)
            arrays += [{**array, "target": target.name} for array in plan["arrays"]]
            notes += [f"{target.name}: {note}" for note in plan.get("notes", ())]
            waiting, later = waiting - len(run_ids) + plan["waiting"], later + 1
    names = ", ".join(target.name for target in targets)
    return {
        "target": names,
        "arrays": arrays,
        "skipped": scheduler.skipped,
        "waiting": waiting,
        "notes": notes,
    }


def _speeds(shared: SharedSweep, targets: Sequence[TargetHandle]) -> dict[str, float] | None:
    """Predicted runs per second and slot by target; ``None`` if one is unknown."""
    try:
        found = forecasts(shared.sweep, shared.sweep_dir, [target.address for target in targets], shared.wish)
    except OrchestrateError:
        return None
    speeds = {}
    for target, one in zip(targets, found, strict=True):
        times = [run.seconds.mid for run in one.runs if run.seconds is not None and run.seconds.mid > 0]
        if not times or len(times) < len(one.runs):
            return None
        speeds[target.name] = 1 / fmean(times)
    return speeds

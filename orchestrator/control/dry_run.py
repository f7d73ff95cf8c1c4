"""Plan a submission without writing anything, in a form that other machines can send and print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.config.check import check_plan
from orchestrator.config.code.snapshot import key_notes
from orchestrator.control import submit
from orchestrator.control.submit import AS_USUAL, SubmitOptions
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import Capacity, Plan, Sweep, TargetAssignment
from orchestrator.rundir import FrozenCode, SweepDir

# Note of a plan made without the limits of the cluster.
UNASKED = "the cluster was not asked for its limits, so that arrays may be cut differently when submitted"
# Note of a plan for a machine that does not have this code of the project yet.
UNCHECKED = "the configurations are checked there, when they are submitted"


def rehearse(
    sweep: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    options: SubmitOptions = AS_USUAL,
    *,
    code: FrozenCode | None = None,
    assignment: TargetAssignment | None = None,
    later: int = 0,
) -> Mapping[str, Any]:
    """Check and plan a submission, to the byte, in the form of :func:`planned`.

    Reads the target's limits as a submission does; a note says if it does not answer. A part of a sweep that
    targets share (``assignment``) is not checked: the whole was, before. The arguments are those of
    :func:`submit.plan_sweep` and :func:`submit.render_plan`. Raises :class:`ChecksFailedError`.
    """
    capacity, notes = capacity_now(backend)
    prospect = submit.plan_sweep(submit.inspect_sweep(sweep, sweep_dir), capacity, options, assignment, later)
    plan = prospect.plan
    warnings = _warnings(plan, code) if assignment is None else ()
    concerns = backend.concerns(plan, ask=not notes)
    scripts = submit.render_plan(plan, sweep_dir, backend, code)
    keys = key_notes(Path.cwd()) if code is None and assignment is None else ()
    return planned(plan, scripts, (*notes, *prospect.seen.damaged, *map(str, (*warnings, *concerns)), *keys))


def _warnings(plan: Plan, code: FrozenCode | None) -> Iterable[object]:
    if code is not None and not code.cwd.is_dir():
        return (UNCHECKED,)
    return check_plan(plan, code.cwd if code else None).require_passed()


def capacity_now(backend: Backend) -> tuple[Capacity, tuple[str, ...]]:
    """The target's limits; if it does not answer, those of the profile and a note."""
    try:
        return backend.capacity(), ()
    except BackendUnavailableError as error:
        return backend.capacity(ask=False), (f"{UNASKED}: {error}",)


def planned(plan: Plan, scripts: Mapping[str, str], notes: Iterable[str] = ()) -> dict[str, Any]:
    """A plan with its scripts, by array, as JSON values. ``notes``: remarks before the submission."""
    arrays = [
        {
            "token": array.token,
            "jobs": plain(array.jobs),
            "run_ids": list(array.run_ids),
            "slots": array.jobs[0].slots,
            "script": scripts[array.token],
        }
        for array in plan.arrays
    ]
    skipped, waiting = dict(plan.skipped), len(plan.waiting)
    told = {"skipped": skipped, "waiting": waiting, "notes": list(notes)}
    return {"target": plan.target, "arrays": arrays, **told}


def said_before(backend: Backend, plan: Plan) -> tuple[str, ...]:
    """Warnings about the plan's jobs before the submission.

    Raises :class:`OrchestrateError` for jobs that must not be submitted.
    """
    found = backend.concerns(plan) if plan.jobs else ()
    if blocking := next((one for one in found if one.blocks), None):
        raise OrchestrateError(blocking.text, hint=blocking.hint)
    return tuple(map(str, found))

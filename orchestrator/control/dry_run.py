"""Plan a submission without writing anything, in a form that other machines can send and print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.config.check import check_plan
from orchestrator.config.code.snapshot import key_notes
from orchestrator.control import submit
from orchestrator.control.submit import SubmissionPlan, SweepState
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import Plan, TargetAssignment
from orchestrator.planning.plan import AS_USUAL, SubmitOptions
from orchestrator.rundir import FrozenCode

# Note of a plan made without the limits of the cluster.
UNASKED = "the cluster was not asked for its limits, so that arrays may be cut differently when submitted"
# Note of a plan for a machine that does not have this code of the project yet.
UNCHECKED = "the configurations are checked there, when they are submitted"


def rehearse(
    prospect: SubmissionPlan,
    backend: Backend,
    unasked: Sequence[str] = (),
    warnings: Iterable[object] = (),
    code: FrozenCode | None = None,
) -> dict[str, Any]:
    """Return a planned submission with its scripts, to the byte, as JSON values.

    ``unasked``: why the cluster was not asked for its limits, as of :func:`plan_now`. ``warnings``: those of
    :func:`warnings_of`. ``code`` as for :func:`submit.render_plan`. Raises :class:`BudgetError`.
    """
    plan = prospect.plan
    if prospect.options.budget is not None:
        plan = submit.budgeted(prospect, plan, backend, launch=True).plan
    concerns = backend.concerns(plan, ask=not unasked)
    scripts = submit.render_plan(plan, prospect.state.sweep_dir, backend, code)
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
    notes = [*unasked, *prospect.state.seen.damaged, *map(str, (*warnings, *concerns))]
    waiting = len(set(plan.waiting).difference(prospect.state.reuse.prefixes.waiting))
    skipped, forks = dict(plan.skipped), [prospect.forks] if prospect.forks else []
    about = {"reused": [*prospect.reused, *forks], "notes": notes}
    return {"target": plan.target, "arrays": arrays, "skipped": skipped, "waiting": waiting, **about}


def warnings_of(plan: Plan, code: FrozenCode | None = None) -> Iterable[object]:
    """Check the planned runs with this code, by default of the folder of the call; return the warnings.

    Raises :class:`ChecksFailedError`.
    """
    if code is None:
        return (*check_plan(plan).require_passed(), *key_notes(Path.cwd()))
    return check_plan(plan, code.cwd).require_passed() if code.cwd.is_dir() else (UNCHECKED,)


def plan_now(
    state: SweepState,
    backend: Backend,
    options: SubmitOptions = AS_USUAL,
    assignment: TargetAssignment | None = None,
) -> tuple[SubmissionPlan, tuple[str, ...]]:
    """Plan with the target's limits; without an answer by its profile, with a note that says so."""
    unasked: tuple[str, ...] = ()
    try:
        capacity = backend.capacity()
    except BackendUnavailableError as error:
        capacity, unasked = backend.capacity(ask=False), (f"{UNASKED}: {error}",)
    return submit.plan_sweep(state, capacity, options, assignment), unasked


def said_before(backend: Backend, plan: Plan) -> tuple[str, ...]:
    """Warnings about the plan's jobs before the submission.

    Raises :class:`OrchestrateError` for jobs that must not be submitted.
    """
    found = backend.concerns(plan) if plan.jobs else ()
    if blocking := next((one for one in found if one.blocks), None):
        raise OrchestrateError(blocking.text, hint=blocking.hint)
    return tuple(map(str, found))

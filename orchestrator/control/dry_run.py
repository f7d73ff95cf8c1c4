"""What would be submitted, as another machine can be told it; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.config.code.snapshot import FrozenCode
from orchestrator.control import submit
from orchestrator.control.submit import AS_USUAL, SubmitOptions
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError
from orchestrator.core.types import Capacity, Plan, Sweep, TargetAssignment
from orchestrator.rundir import SweepDir

# Of a rehearsal whose arrays may be cut differently when they are submitted.
UNASKED = "the cluster was not asked for its limits, so that arrays may be cut differently when submitted"


def rehearse(
    sweep: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    wish: SubmitOptions = AS_USUAL,
    *,
    code: FrozenCode | None = None,
    deal: TargetAssignment | None = None,
    later: int = 0,
) -> Mapping[str, Any]:
    """What a submission now would submit, to the byte, as :func:`planned` tells it.

    The target is asked for its limits as then. Where it does not answer, the notes say so. The arguments are
    those of :func:`submit.plan_sweep` and :func:`submit.render_plan`.
    """
    capacity, notes = capacity_now(backend)
    prospect = submit.plan_sweep(sweep, sweep_dir, capacity, wish, deal, later)
    plan = prospect.plan
    concerns = backend.concerns(plan, ask=not notes)
    scripts = submit.render_plan(plan, sweep_dir, backend, code)
    return planned(plan, scripts, (*notes, *prospect.seen.damaged, *map(str, concerns)))


def capacity_now(backend: Backend) -> tuple[Capacity, tuple[str, ...]]:
    """The target's limits as a submission finds them; if it does not answer, a note that they are unknown."""
    try:
        return backend.capacity(), ()
    except BackendUnavailableError as error:
        return backend.capacity(ask=False), (f"{UNASKED}: {error}",)


def planned(plan: Plan, scripts: Mapping[str, str], notes: Iterable[str] = ()) -> dict[str, Any]:
    """A plan and its scripts (by array). ``notes``: what a person is to know before it is submitted."""
    arrays = [
        {
            "token": array.token,
            "jobs": [job.to_json() for job in array.jobs],
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
    """What a person is to know of the plan's jobs before they are queued.

    Raises :class:`OrchestrateError` where they are not to be.
    """
    found = backend.concerns(plan) if plan.jobs else ()
    if blocking := next((one for one in found if one.blocks), None):
        raise OrchestrateError(blocking.text, hint=blocking.hint)
    return tuple(map(str, found))

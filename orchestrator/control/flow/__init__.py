"""One way to work through a sweep, for commands and from Python: on one target, behind ssh, or on several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from orchestrator.backends.registry import behind_ssh, make_backend, target_of
from orchestrator.control.cloud.exchange import Tell
from orchestrator.control.flow.base import Flow
from orchestrator.control.flow.over_ssh import TargetOverSsh
from orchestrator.control.flow.several_targets import SeveralTargets
from orchestrator.control.flow.this_tree import OwnTarget
from orchestrator.control.last_submission import latest_target
from orchestrator.control.multi_target import SharedSweep, targets_of
from orchestrator.control.remote.delegate import Delegation
from orchestrator.control.remote.delegated import Assignment, take_up
from orchestrator.control.submission import Started
from orchestrator.core.types import Sweep
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir

__all__ = ["Flow", "Started", "Tell", "again_flow", "assigned_flow", "flow_of"]


def flow_of(
    sweep: Sweep,
    sweep_dir: SweepDir,
    options: SubmitOptions,
    on: str | None = None,
    scheduler_options: Sequence[str] = (),
    *,
    adopt: bool = False,
) -> Flow:
    """The flow of a sweep ``on`` targets, separated by commas; by default on the grid's own.

    ``scheduler_options``: of a scheduler's own command. ``adopt``: go on with a sweep of this name that
    another tree submitted behind ssh. Raises :class:`ProfileError`, :class:`GridError`.
    """
    names = tuple(on.split(",")) if on is not None else sweep.targets
    if len(names) > 1:
        shared = SharedSweep(sweep, sweep_dir, options, adopt)
        return SeveralTargets(shared, targets_of(shared, names, scheduler_options, asked=on is not None))
    if profile := behind_ssh(sweep, on):
        asked = Delegation(sweep, sweep_dir, profile, options, scheduler_options, adopt=adopt)
        return TargetOverSsh(asked)
    return OwnTarget(
        sweep, sweep_dir, options, target_of(sweep, on, scheduler_options), take_back=on is not None
    )


def again_flow(
    sweep: Sweep, sweep_dir: SweepDir, options: SubmitOptions, on: str | None, run_ids: Collection[str]
) -> Flow:
    """The flow of runs to be done again ``on`` a target; by default where they were submitted last."""
    if on is None and len(sweep.targets) > 1:
        return flow_of(sweep, sweep_dir, options)
    if profile := behind_ssh(sweep, on):
        return TargetOverSsh(Delegation(sweep, sweep_dir, profile, options, only=run_ids))
    latest = latest_target(sweep_dir) if on is None else None
    backend = latest.backend if latest else target_of(sweep, on)
    return OwnTarget(sweep, sweep_dir, options, backend)


def assigned_flow(
    assignment: bytes,
    results: Path,
    options: SubmitOptions,
    scheduler_options: Sequence[str] = (),
    *,
    dry: bool,
) -> Flow:
    """The flow of runs that another tree assigns to this one. With ``dry`` nothing is written."""
    given = take_up(Assignment.from_bytes(assignment), results, dry=dry)
    backend = make_backend(given.profile, scheduler_options)
    return OwnTarget(given.sweep, given.sweep_dir, options, backend, code=given.code)

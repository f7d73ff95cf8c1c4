"""Targets that share a sweep: their capacity and active jobs, submissions to them, reassignments."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import AllBackends, behind_ssh, find_target
from orchestrator.config.backends import get_backend
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.control.dry_run import rehearse
from orchestrator.control.poll import give_up, poll_sweep
from orchestrator.control.remote import delegate
from orchestrator.control.remote.delegate import Delegation
from orchestrator.control.remote.queries import assigned_of
from orchestrator.control.submit import SubmitOptions, submit_sweep
from orchestrator.core.errors import GridError, OrchestrateError, ProfileError
from orchestrator.core.types import (
    Capacity,
    Concern,
    JobState,
    Plan,
    RunState,
    Sweep,
    TargetAssignment,
    number_of,
)
from orchestrator.planning.auto_retry import second_chances
from orchestrator.planning.distribute import ActiveJob
from orchestrator.planning.plan import at_once, cannot_place
from orchestrator.rundir import LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.ledger_entries import jobs_of
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import Survey

# Jobs assumed to run at once in a queue without a known limit: at first, then twice those that run.
_JOBS_AT_FIRST = 16

# Workers kill what does not leave within its grace, half a minute; then something holds them up.
_STOP_PATIENCE_S = 60.0
_STOP_REFRESH_S = 0.1

_WAITS = (RunState.QUEUED, RunState.PENDING)


@dataclass(frozen=True)
class SharedSnapshot:
    """A sweep's state on all targets at one moment (``now``, seconds since the epoch)."""

    seen: Survey
    ledger: Sequence[LedgerEntry]
    logs: Mapping[str, WorkerLog]
    now: float


@dataclass(frozen=True)
class SharedSweep:
    """A sweep that several targets share, its tree here, and the options of the submission.

    ``adopt``: go on with a sweep of this name behind ssh that another tree submitted.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    wish: SubmitOptions
    adopt: bool = False


@dataclass(frozen=True)
class TargetSubmission:
    """A submission to one target; ``waiting``: runs that its queue has no room for."""

    submitted: bool
    waiting: Collection[str] = ()
    notes: tuple[str, ...] = ()


class TargetHandle(Protocol):
    """One of several targets. ``address`` identifies its profile.

    ``has_options``: further options of the submission apply to it. ``begins_at_once``: it has no queue.
    ``patience``: seconds that one of its jobs may wait. ``blocked``: why nothing can be submitted to it, as
    far as known here.
    """

    name: str
    address: str
    capacity: Capacity
    has_options: bool
    begins_at_once: bool
    patience: float
    blocked: Concern | None

    def places(self, snapshot: SharedSnapshot) -> int:
        """Runs that it can train at once."""
        ...

    def active_jobs(self, snapshot: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """Its jobs with unfinished runs."""
        ...

    def to_resubmit(self, snapshot: SharedSnapshot) -> list[str]:
        """Runs that its own tree has, and that have no job there: submit them again."""
        ...

    def has_second_chances(self, snapshot: SharedSnapshot) -> bool:
        """Whether it can train failed runs with more resources, which any submission arranges."""
        ...

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        """Submit the assigned runs. ``define``: the grid becomes the sweep's latest.

        ``places``: how many of them can begin now. Raises :class:`OrchestrateError`.
        """
        ...

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        """Plan a submission after ``later`` others, in the form of :func:`dry_run.planned`."""
        ...

    def take(self, one: ActiveJob) -> None:
        """Cancel a queued job; one that has begun meanwhile stays. Raises :class:`OrchestrateError`."""
        ...


def targets_of(
    shared: SharedSweep, names: Sequence[str], options: Sequence[str], *, asked: bool
) -> list[TargetHandle]:
    """The targets of these names, in order; ``asked``: the command line named them, not the grid.

    Raises :class:`ProfileError`, :class:`GridError`.
    """
    found: list[TargetHandle] = []
    for name in names:
        try:
            found.append(_handle(shared, name, options))
        except ProfileError as error:
            if asked:
                raise
            raise GridError(f"targets: {error}", file=shared.sweep.source, hint=error.hint) from None
        if found[-1].name in [one.name for one in found[:-1]]:
            raise OrchestrateError(
                f"found the target {found[-1].name} twice, expected each once", hint="name it once"
            )
    if options and not any(one.has_options for one in found):
        raise OrchestrateError(
            f"found {' '.join(options)} after `--`, and none of {', '.join(names)} passes options on",
            hint="options after `--` are for a scheduler: leave them away",
        )
    return found


def _handle(shared: SharedSweep, name: str, options: Sequence[str]) -> LocalTarget | RemoteTarget:
    if (profile := behind_ssh(shared.sweep, name)) is not None:
        return RemoteTarget(shared, profile, options)
    takes_options = get_backend(find_profile(name).backend).options
    return LocalTarget(shared, find_target(name, options if takes_options else ()))


class LocalTarget:
    """A target that this tree submits to; results of its jobs are written here or fetched."""

    def __init__(self, shared: SharedSweep, backend: Backend) -> None:
        self._shared, self.backend, spec = shared, backend, get_backend(backend.kind)
        self.capacity = backend.capacity(ask=False)
        self.name, self.address = self.capacity.target, backend.address
        self.begins_at_once, self.has_options = not backend.queues, bool(spec.options)
        self.patience = spec.patience
        self._in_a_job = shared.wish.slots or at_once(shared.sweep, self.capacity)
        no_jobs = Plan(shared.sweep, self.name, (), {}, {}, {})  # concerns about the profile itself
        self.blocked = next((one for one in backend.concerns(no_jobs, ask=False) if one.blocks), None)

    def places(self, snapshot: SharedSnapshot) -> int:
        if self.capacity.array_size is None:
            return self._in_a_job
        limits = [limit for limit in (self.capacity.at_once, self.capacity.most) if limit is not None]
        working = sum(
            job.state is JobState.RUNNING and snapshot.seen.targets.get(token) == self.name
            for token, job in snapshot.seen.jobs.items()
        )
        return self._in_a_job * (min(limits) if limits else max(_JOBS_AT_FIRST, 2 * working))

    def active_jobs(self, snapshot: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """Active jobs; a chain of jobs for the same runs counts as one."""
        statuses, live = snapshot.seen.statuses, snapshot.seen.live
        chains: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        slots: dict[str, int] = {}
        submitted: dict[str, float] = {}
        for entry, job in jobs_of(snapshot.ledger):
            token = job.token
            if token in live and snapshot.seen.targets.get(token) == self.name:
                chains.setdefault((number_of(token), job.run_ids), []).append(token)
                slots[token], submitted[token] = job.slots, entry.time
        found = []
        for (_, run_ids), tokens in chains.items():
            own = (run_id for run_id in run_ids if run_id in statuses)
            left = [one for one in own if statuses[one].token in tokens and not statuses[one].state.final]
            if left:
                waited = self._waited({token: submitted[token] for token in tokens}, snapshot)
                found.append(ActiveJob(tuple(tokens), tuple(left), slots[tokens[0]], waited))
        return tuple(found)

    def _waited(self, submitted: Mapping[str, float], snapshot: SharedSnapshot) -> float | None:
        """Seconds since the last of these jobs was queued; ``None`` if one of them has begun."""
        if self.begins_at_once:
            return None
        since = []
        for token, at in submitted.items():
            job, log = snapshot.seen.jobs.get(token), snapshot.logs.get(token)
            if job is None or job.state is not JobState.QUEUED or (log is not None and not log.returning):
                return None
            since.append(log.events[-1].time if log is not None and log.events else at)
        return max(0.0, snapshot.now - max(since))

    def to_resubmit(self, snapshot: SharedSnapshot) -> list[str]:
        return []

    def has_second_chances(self, snapshot: SharedSnapshot) -> bool:
        return bool(second_chances(self._shared.sweep, snapshot.seen, self.capacity))

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        sweep, sweep_dir, wish = self._shared.sweep, self._shared.sweep_dir, self._wish
        deal = self._with_places(deal, places)
        done = submit_sweep(sweep, sweep_dir, self.backend, wish, define=define, deal=deal)
        return TargetSubmission(bool(done.plan.jobs), done.plan.waiting, done.notes)

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        sweep, sweep_dir, wish = self._shared.sweep, self._shared.sweep_dir, self._wish
        deal = self._with_places(deal, places)
        return rehearse(sweep, sweep_dir, self.backend, wish, deal=deal, later=later)

    @property
    def _wish(self) -> SubmitOptions:
        return replace(self._shared.wish, canary=False)

    def _with_places(self, deal: TargetAssignment, places: int) -> TargetAssignment:
        """Limit a job on this machine to the slots that are free."""
        return replace(deal, places=max(1, places)) if self.begins_at_once else deal

    def take(self, one: ActiveJob) -> None:
        """Revoke the token of a job that never began; cancel one that was requeued.

        A machine with a file system of its own does not see its token: terminate it. Its runs are
        unassigned once the backend reports its end.
        """
        sweep_dir = self._shared.sweep_dir
        if self.capacity.apart:
            known = job_ids(sweep_dir.read_ledger())
            AllBackends().cancel([known[token] for token in one.tokens if token in known])
            return
        with sweep_dir.lock():
            begun = {log.token for log in sweep_dir.read_journals()}
            known = job_ids(sweep_dir.read_ledger())
            back = [known[token] for token in one.tokens if token in begun and token in known]
            new = [token for token in one.tokens if token not in begun]
            ids = give_up(sweep_dir, new, "assigned to another target")
        AllBackends().cancel([*back, *ids])


class RemoteTarget:
    """A target behind ssh with a tree of its own; runs are given to that tree and requested back."""

    begins_at_once, has_options = False, True
    blocked: Concern | None = None  # it knows itself, and refuses

    def __init__(self, shared: SharedSweep, profile: Profile, options: Sequence[str]) -> None:
        self._shared, self._profile, self._options = shared, profile, tuple(options)
        self.patience = get_backend(profile.backend).patience
        self.capacity = delegate.capacity_there(profile, options)
        self.name, self.address = self.capacity.target, profile.address
        self._in_a_job = shared.wish.slots or at_once(shared.sweep, self.capacity)
        self._waiting_since: dict[str, float] = {}

    def places(self, snapshot: SharedSnapshot) -> int:
        limits = [limit for limit in (self.capacity.at_once, self.capacity.most) if limit is not None]
        working = sum(snapshot.seen.statuses[one].state is RunState.RUNNING for one in self._given(snapshot))
        return max(self._in_a_job * min(limits, default=_JOBS_AT_FIRST), 0 if limits else 2 * working)

    def active_jobs(self, snapshot: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """A job for each run: the tree there decides which runs share a job."""
        found = []
        for run_id in self._given(snapshot):
            status = snapshot.seen.statuses[run_id]
            if status.state in _WAITS and not status.attempt:
                since = self._waiting_since.setdefault(run_id, snapshot.now)
                found.append(ActiveJob((run_id,), (run_id,), waited=snapshot.now - since))
            else:
                self._waiting_since.pop(run_id, None)
                found.append(ActiveJob((run_id,), (run_id,)))
        return tuple(found)

    def to_resubmit(self, snapshot: SharedSnapshot) -> list[str]:
        left = {*snapshot.seen.left}
        return [run_id for run_id in self._given(snapshot) if run_id in left]

    def has_second_chances(self, snapshot: SharedSnapshot) -> bool:
        return False  # its own jobs arrange them

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        done = delegate.send(self._delegation(deal))
        if problems := done.answer.problems:
            raise OrchestrateError("; ".join(problems))
        submitted = not done.answer.settled
        return TargetSubmission(submitted, notes=(*done.notes, *done.answer.notes))

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        return delegate.rehearse(self._delegation(deal))

    def _delegation(self, deal: TargetAssignment) -> Delegation:
        shared, wish = self._shared, replace(self._shared.wish, canary=False)
        options, only, adopt = self._options, deal.run_ids, shared.adopt
        return Delegation(shared.sweep, shared.sweep_dir, self._profile, wish, options, only, adopt)

    def take(self, one: ActiveJob) -> None:
        delegate.take_back(self._shared.sweep, self._shared.sweep_dir, one.run_ids, waiting=True)

    def _given(self, snapshot: SharedSnapshot) -> Iterable[str]:
        """Its unfinished runs of this sweep."""
        statuses = snapshot.seen.statuses
        for one in assigned_of(self._shared.sweep_dir):
            if one.place.address == self.address:
                yield from (run for run in one.run_ids if run in statuses and not statuses[run].state.final)


def abilities(
    sweep: Sweep, targets: Sequence[TargetHandle]
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Runs that each target can train, by its name; and why none can train a run, by run id."""
    able: dict[str, frozenset[str]] = {}
    whys: dict[str, list[str]] = {}
    for target in targets:
        cannot = {run.run_id: cannot_place(run, sweep, target.capacity) for run in sweep.runs}
        able[target.name] = frozenset(run_id for run_id, why in cannot.items() if why is None)
        for run in sweep.runs:
            # With `compare: true` a run belongs to one target: the others give no reason of their own.
            if (why := cannot[run.run_id]) is not None and run.target in (None, target.name):
                whys.setdefault(run.run_id, []).append(f"{target.name}: {why}")
    doable = frozenset().union(*able.values())
    names = ", ".join(able)
    return able, {
        run.run_id: "; ".join(whys.get(run.run_id, [f"belongs to target {run.target}, and not to {names}"]))
        for run in sweep.runs
        if run.run_id not in doable
    }


def take_from_others(shared: SharedSweep, targets: Sequence[TargetHandle]) -> dict[str, str]:
    """Request queued runs back from trees behind ssh that are no targets now; why they keep a run, by id."""
    own = {target.address for target in targets}
    places = [one for one in assigned_of(shared.sweep_dir) if one.place.address not in own]
    runs = {run_id for one in places for run_id in one.run_ids}
    return delegate.take_back(shared.sweep, shared.sweep_dir, runs, waiting=True) if runs else {}


def stop_here(shared: SharedSweep, targets: Sequence[TargetHandle]) -> bool:
    """Stop workers on this machine and wait for them; ``False`` if some do not end in time."""
    names = {target.name for target in targets if target.begins_at_once}
    deadline = time.monotonic() + _STOP_PATIENCE_S
    asked: set[str] = set()
    while True:
        seen = poll_sweep(shared.sweep_dir)
        there = {token for token in seen.live if seen.targets.get(token) in names}
        ids = job_ids(shared.sweep_dir.read_ledger())
        AllBackends().cancel([ids[token] for token in there - asked if token in ids])
        asked |= there
        if not there or time.monotonic() > deadline:
            return not there
        time.sleep(_STOP_REFRESH_S)


def elsewhere(sweep_dir: SweepDir) -> Collection[str]:
    """Ids of runs that trees behind ssh have."""
    return {run_id for one in assigned_of(sweep_dir) for run_id in one.run_ids}

"""Targets that share a sweep: what each can train and has, submissions to it, runs taken from it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import AllBackends, behind_ssh, find_target
from orchestrator.config.backends import get_backend
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.control.dry_run import plan_now, rehearse
from orchestrator.control.poll import give_up
from orchestrator.control.remote import delegate
from orchestrator.control.remote.delegate import Delegation
from orchestrator.control.remote.places import assigned_of
from orchestrator.control.submit import SweepState, plan_sweep, submit_checked
from orchestrator.core.errors import GridError, OrchestrateError, ProfileError
from orchestrator.core.types import Concern, JobState, Plan, RunState, Sweep, TargetAssignment
from orchestrator.planning.distribute import TargetLoad, places_of
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import AssignedEntry, RetryEntry, jobs_of
from orchestrator.status.ledger import job_ids
from orchestrator.status.ownership import assigned
from orchestrator.status.survey import RunStatus, Survey

_AT_WORK = (RunState.RUNNING, RunState.STALLED, RunState.UNKNOWN)
_TAKEN = "taken by another target"


@dataclass(frozen=True)
class SharedSweep:
    """A sweep that several targets share, its tree here, and the options of the submission.

    ``adopt``: go on with a sweep of this name behind ssh that another tree submitted.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    options: SubmitOptions
    adopt: bool = False


@dataclass(frozen=True)
class TargetSubmission:
    """A submission to one target. ``waiting``: runs that its queue has no room for; ``state``: the sweep's
    afterwards.
    """

    submitted: bool
    state: SweepState
    waiting: Collection[str] = ()
    notes: tuple[str, ...] = ()


class LocalTarget:
    """A target that this tree submits to; results of its jobs are written here or fetched.

    ``address`` identifies its profile. ``takes_options``: further options of the submission apply to it.
    ``begins_at_once``: it has no queue. ``blocked``: why nothing can be submitted to it, as far as known
    here. ``own_tree``: its runs are in a tree behind ssh.
    """

    own_tree = False

    def __init__(self, shared: SharedSweep, backend: Backend) -> None:
        self._shared, self._backend, spec = shared, backend, get_backend(backend.kind)
        self._options = replace(shared.options, canary=False)
        self.capacity, self._patience = backend.capacity(ask=False), spec.patience
        self.name, self.address = self.capacity.target, backend.address
        self.begins_at_once, self.takes_options = not backend.queues, bool(spec.options)
        no_jobs = Plan(shared.sweep, self.name, (), {}, {}, {})  # concerns about the profile itself
        self.blocked = next((one for one in backend.concerns(no_jobs, ask=False) if one.blocks), None)

    def load(self, seen: Survey, can: frozenset[str]) -> TargetLoad:
        """Return its unfinished runs, beside what it ``can`` train."""
        own = [one for run_id, one in seen.statuses.items() if seen.target(run_id) == self.name]
        queued = [one for one in own if one.state is RunState.QUEUED]
        busy = sum(one.state in _AT_WORK for one in own)
        places = places_of(self._shared.sweep, self.capacity, self._shared.options.slots, busy)
        if self.begins_at_once:
            accepts = places > busy + len(queued)
            return TargetLoad(self.name, places, can, busy, _ids(queued), open=accepts)
        waited = self._waited(seen)
        if self.capacity.apart:  # a claim there cannot be seen from here: only jobs that wait are taken
            free = [one for one in queued if waited.get(one.token or "", 0.0) >= self._patience]
            busy, queued = busy + len(queued) - len(free), free
        wait = max(self._patience, *waited.values()) if waited else self._patience
        return TargetLoad(self.name, places, can, busy, _ids(queued), wait=wait)

    def _waited(self, seen: Survey) -> dict[str, float]:
        """Seconds since each of its queued jobs was submitted, or came back to the queue, by token."""
        since = {job.token: entry.time for entry, job in jobs_of(seen.ledger)}
        since |= {log.token: log.events[-1].time for log in seen.logs if log.events}
        own = [token for token in seen.live - seen.working if seen.targets.get(token) == self.name]
        queued = [one for one in own if one in seen.jobs and seen.jobs[one].state is JobState.QUEUED]
        return {token: max(0.0, time.time() - since[token]) for token in queued}

    def without_job(self, seen: Survey) -> list[str]:
        """Return runs that its own tree has and that have no job there: submit them again."""
        return []

    def submit(self, state: SweepState, assignment: TargetAssignment, *, define: bool) -> TargetSubmission:
        """Submit the assigned runs. ``define``: the grid becomes the sweep's latest.

        Raises :class:`OrchestrateError`.
        """
        prospect = plan_sweep(state, self._backend.capacity(), self._options, assignment)
        done = submit_checked(prospect, self._backend, define=define)
        notes = (*done.planned.reused, *done.notes)
        return TargetSubmission(bool(done.plan.jobs), done.state, done.plan.waiting, notes)

    def rehearse(
        self, state: SweepState, assignment: TargetAssignment
    ) -> tuple[Mapping[str, Any], SweepState]:
        """Return the submission as of :func:`dry_run.rehearse`, and the sweep's state afterwards."""
        prospect, unasked = plan_now(state, self._backend, self._options, assignment)
        return rehearse(prospect, self._backend, unasked), state.after(prospect.plan)

    def take(self, run_ids: Collection[str], seen: Survey) -> None:
        """Enter in the ledger that jobs submitted so far leave queued runs alone; cancel jobs without others.

        A worker that did not read that yet may still claim one, which then stays there. A job without runs
        loses its right to begin. A machine with a file system of its own sees no ledger: it is terminated,
        and its runs are unassigned once the backend reports its end.
        """
        sweep_dir, apart = self._shared.sweep_dir, self.capacity.apart
        with sweep_dir.lock():
            if run_ids and not apart:
                newest = {run_id: sweep_dir.run(run_id).newest_attempt() for run_id in run_ids}
                sweep_dir.add_to_ledger(RetryEntry(runs=newest, why=_TAKEN))
            # By the survey: a job that has begun since it was queued there stays.
            waiting, begun = self._waited(seen), {log.token for log in seen.logs}
            ledger = sweep_dir.read_ledger()
            own = {run_id for run_id, one in seen.statuses.items() if not one.state.final}
            left = {run_id for run_id in own.difference(run_ids) if seen.target(run_id) == self.name}
            jobs = [job for _, job in jobs_of(ledger) if job.token in waiting]
            empty = [job.token for job in jobs if left.isdisjoint(job.run_ids)]
            back, ids = [token for token in empty if apart or token in begun], job_ids(ledger)
            new = give_up(sweep_dir, [token for token in empty if token not in back], _TAKEN)
        AllBackends().cancel([*(ids[token] for token in back), *new])


class RemoteTarget:
    """A target behind ssh with a tree of its own; runs are given to that tree and requested back."""

    begins_at_once, takes_options, own_tree = False, True, True
    blocked: Concern | None = None  # it knows itself, and refuses

    def __init__(self, shared: SharedSweep, profile: Profile, scheduler_options: Sequence[str]) -> None:
        options = replace(shared.options, canary=False)
        sweep, sweep_dir, adopt = shared.sweep, shared.sweep_dir, shared.adopt
        self._shared = shared
        self._asked = Delegation(sweep, sweep_dir, profile, options, scheduler_options, adopt=adopt)
        self._patience = get_backend(profile.backend).patience
        self.capacity = delegate.capacity_there(profile, scheduler_options)
        self.name, self.address = self.capacity.target, profile.address

    def load(self, seen: Survey, can: frozenset[str]) -> TargetLoad:
        own = self._given(seen)
        queued = [one for one in own if one.state not in _AT_WORK and not one.attempt]
        busy = sum(one.state in _AT_WORK for one in own)
        places = places_of(self._shared.sweep, self.capacity, self._shared.options.slots, busy)
        waited = time.time() - self._given_at() if queued else 0.0
        wait, free = max(waited, self._patience), queued if waited >= self._patience else []
        return TargetLoad(self.name, places, can, len(own) - len(free), _ids(free), wait=wait)

    def _given(self, seen: Survey) -> list[RunStatus]:
        """Its unfinished runs of this sweep."""
        given = [one for one in assigned_of(self._shared.sweep_dir) if one.place.address == self.address]
        own = {run_id for one in given for run_id in one.run_ids}
        return [one for run_id, one in seen.statuses.items() if run_id in own and not one.state.final]

    def _given_at(self) -> float:
        """When runs were last given to it, in epoch seconds."""
        ledger = self._shared.sweep_dir.read_ledger()
        given = (
            one for one in ledger if isinstance(one, AssignedEntry) and one.place.address == self.address
        )
        return max((one.time for one in given), default=0.0)

    def without_job(self, seen: Survey) -> list[str]:
        left = {*seen.left}
        return [one.run_id for one in self._given(seen) if one.run_id in left]

    def submit(self, state: SweepState, assignment: TargetAssignment, *, define: bool) -> TargetSubmission:
        done = delegate.send(replace(self._asked, only=assignment.run_ids))
        return TargetSubmission(not done.over, state, notes=done.notes)

    def rehearse(
        self, state: SweepState, assignment: TargetAssignment
    ) -> tuple[Mapping[str, Any], SweepState]:
        return delegate.rehearse(replace(self._asked, only=assignment.run_ids)), state

    def take(self, run_ids: Collection[str], seen: Survey) -> None:
        if run_ids:
            delegate.take_back(self._shared.sweep, self._shared.sweep_dir, run_ids, waiting=True)


# One of several targets.
TargetHandle = LocalTarget | RemoteTarget


def targets_of(
    shared: SharedSweep, names: Sequence[str], scheduler_options: Sequence[str], *, asked: bool
) -> list[TargetHandle]:
    """The targets of these names, in order; ``asked``: the command line named them, not the grid.

    Raises :class:`ProfileError`, :class:`GridError`.
    """
    found: list[TargetHandle] = []
    for name in names:
        try:
            found.append(_handle(shared, name, scheduler_options))
        except ProfileError as error:
            if asked:
                raise
            raise GridError(f"targets: {error}", file=shared.sweep.source, hint=error.hint) from None
        if found[-1].name in [one.name for one in found[:-1]]:
            raise OrchestrateError(
                f"found the target {found[-1].name} twice, expected each once", hint="name it once"
            )
    if scheduler_options and not any(one.takes_options for one in found):
        raise OrchestrateError(
            f"found {' '.join(scheduler_options)} after `--`; none of {', '.join(names)} passes options on",
            hint="options after `--` are for a scheduler: leave them away",
        )
    return found


def _handle(shared: SharedSweep, name: str, scheduler_options: Sequence[str]) -> TargetHandle:
    if (profile := behind_ssh(shared.sweep, name)) is not None:
        return RemoteTarget(shared, profile, scheduler_options)
    takes_options = get_backend(find_profile(name).backend).options
    return LocalTarget(shared, find_target(name, scheduler_options if takes_options else ()))


def _ids(statuses: Sequence[RunStatus]) -> tuple[str, ...]:
    return tuple(one.run_id for one in statuses)


def elsewhere(seen: Survey) -> Collection[str]:
    """Ids of runs that trees behind ssh have."""
    return {run_id for one in assigned(seen.ledger) for run_id in one.run_ids}

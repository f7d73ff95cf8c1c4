"""The targets that share a sweep: what each can do and has, how it is given runs, how they are taken away."""

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
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import Survey

# Jobs that a queue may work on at once, where nobody says: so many at first, then twice those that it does.
_JOBS_AT_FIRST = 16

# Workers kill what does not leave within its grace, half a minute; then something holds them up.
_STOP_PATIENCE_S = 60.0
_STOP_REFRESH_S = 0.1

_WAITS = (RunState.QUEUED, RunState.PENDING)


@dataclass(frozen=True)
class SharedSnapshot:
    """A sweep at one moment (``now``, seconds since the epoch), wherever its runs are."""

    seen: Survey
    ledger: Sequence[LedgerEntry]
    logs: Mapping[str, WorkerLog]
    now: float


@dataclass(frozen=True)
class SharedSweep:
    """What is shared: a sweep, its tree here, and how a person wants it submitted.

    ``adopt``: behind ssh too where somebody else gave a sweep of this name.
    """

    sweep: Sweep
    sweep_dir: SweepDir
    wish: SubmitOptions
    adopt: bool = False


@dataclass(frozen=True)
class TargetSubmission:
    """What came of a submission; ``waiting`` are runs that the queue has no room for."""

    submitted: bool
    waiting: Collection[str] = ()
    notes: tuple[str, ...] = ()


class TargetHandle(Protocol):
    """One of several targets. ``address`` leads to its profile.

    ``has_options``: further options of a submission are for it. ``begins_at_once``: it has no queue.
    ``patience``: how many seconds a job of it may wait. ``blocked``: why nothing is to be submitted to it, as
    far as that is known here.
    """

    name: str
    address: str
    capacity: Capacity
    has_options: bool
    begins_at_once: bool
    patience: float
    blocked: Concern | None

    def places(self, sight: SharedSnapshot) -> int:
        """How many runs it can work on at once."""
        ...

    def held(self, sight: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """What it has to do."""
        ...

    def again(self, sight: SharedSnapshot) -> list[str]:
        """Runs that it was given for good, that nothing there works on, and that it is to be reminded of."""
        ...

    def has_chances(self, sight: SharedSnapshot) -> bool:
        """Whether runs failed for want of something that it can give them: any submission will do that."""
        ...

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        """Have it take up runs. ``define``: the grid becomes the sweep's latest.

        ``places``: how many of them it can begin now. Raises :class:`OrchestrateError`.
        """
        ...

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        """What would be submitted after so many others (``later``), as :func:`dry_run.planned` tells it."""
        ...

    def take(self, one: ActiveJob) -> None:
        """Take away what only waits. What has begun meanwhile stays. Raises :class:`OrchestrateError`."""
        ...


def parties_of(
    matter: SharedSweep, names: Sequence[str], options: Sequence[str], *, asked: bool
) -> list[TargetHandle]:
    """The targets of these names, in order; ``asked``: a person named them, and not the grid.

    Raises :class:`ProfileError`, :class:`GridError`.
    """
    found: list[TargetHandle] = []
    for name in names:
        try:
            found.append(_party(matter, name, options))
        except ProfileError as error:
            if asked:
                raise
            raise GridError(f"targets: {error}", file=matter.sweep.source, hint=error.hint) from None
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


def _party(matter: SharedSweep, name: str, options: Sequence[str]) -> LocalTarget | RemoteTarget:
    if (profile := behind_ssh(matter.sweep, name)) is not None:
        return RemoteTarget(matter, profile, options)
    takes_options = get_backend(find_profile(name).backend).options
    return LocalTarget(matter, find_target(name, options if takes_options else ()))


class LocalTarget:
    """A target that this tree submits to: its jobs write here, or what they wrote is brought here."""

    def __init__(self, matter: SharedSweep, backend: Backend) -> None:
        self._matter, self.backend, spec = matter, backend, get_backend(backend.kind)
        self.capacity = backend.capacity(ask=False)
        self.name, self.address = self.capacity.target, backend.address
        self.begins_at_once, self.has_options = not backend.queues, bool(spec.options)
        self.patience = spec.patience
        self._in_a_job = matter.wish.slots or at_once(matter.sweep, self.capacity)
        no_jobs = Plan(matter.sweep, self.name, (), {}, {}, {})  # what is amiss with the profile itself
        self.blocked = next((one for one in backend.concerns(no_jobs, ask=False) if one.blocks), None)

    def places(self, sight: SharedSnapshot) -> int:
        if self.capacity.array_size is None:
            return self._in_a_job
        limits = [limit for limit in (self.capacity.at_once, self.capacity.most) if limit is not None]
        working = sum(
            job.state is JobState.RUNNING and sight.seen.targets.get(token) == self.name
            for token, job in sight.seen.jobs.items()
        )
        return self._in_a_job * (min(limits) if limits else max(_JOBS_AT_FIRST, 2 * working))

    def held(self, sight: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """Jobs that follow each other for the same runs are one work."""
        statuses, live = sight.seen.statuses, sight.seen.live
        chains: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        slots: dict[str, int] = {}
        submitted: dict[str, float] = {}
        for entry in sight.ledger:
            for job in entry.data["jobs"] if entry.kind == "submission" else ():
                token = job["token"]
                if token in live and sight.seen.targets.get(token) == self.name:
                    chains.setdefault((number_of(token), tuple(job["run_ids"])), []).append(token)
                    slots[token], submitted[token] = job["slots"], entry.data["time"]
        found = []
        for (_, run_ids), tokens in chains.items():
            own = (run_id for run_id in run_ids if run_id in statuses)
            left = [one for one in own if statuses[one].token in tokens and not statuses[one].state.final]
            if left:
                waited = self._waited({token: submitted[token] for token in tokens}, sight)
                found.append(ActiveJob(tuple(tokens), tuple(left), slots[tokens[0]], waited))
        return tuple(found)

    def _waited(self, submitted: Mapping[str, float], sight: SharedSnapshot) -> float | None:
        """For how long all these jobs have been in a queue, and nowhere else."""
        if self.begins_at_once:
            return None
        since = []
        for token, at in submitted.items():
            job, log = sight.seen.jobs.get(token), sight.logs.get(token)
            if job is None or job.state is not JobState.QUEUED or (log is not None and not log.returning):
                return None
            since.append(log.events[-1].time if log is not None and log.events else at)
        return max(0.0, sight.now - max(since))

    def again(self, sight: SharedSnapshot) -> list[str]:
        return []

    def has_chances(self, sight: SharedSnapshot) -> bool:
        return bool(second_chances(self._matter.sweep, sight.seen, self.capacity))

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        sweep, sweep_dir, wish = self._matter.sweep, self._matter.sweep_dir, self._wish(deal, places)
        done = submit_sweep(sweep, sweep_dir, self.backend, wish, define=define, deal=deal)
        return TargetSubmission(bool(done.plan.jobs), done.plan.waiting, done.notes)

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        sweep, sweep_dir, wish = self._matter.sweep, self._matter.sweep_dir, self._wish(deal, places)
        return rehearse(sweep, sweep_dir, self.backend, wish, deal=deal, later=later)

    def _wish(self, deal: TargetAssignment, places: int) -> SubmitOptions:
        """As a person wishes it; no job on this machine has more slots than there are places left."""
        wish = replace(self._matter.wish, canary=False)
        return replace(wish, slots=max(1, min(places, len(deal.run_ids)))) if self.begins_at_once else wish

    def take(self, one: ActiveJob) -> None:
        """A job that never began loses its token, and so never will; one that was given back is cancelled.

        A machine with a file system of its own does not see that its token is gone: it is taken down, and
        its runs are nobody's once its backend says that it is.
        """
        sweep_dir = self._matter.sweep_dir
        if self.capacity.apart:
            known = job_ids(sweep_dir.read_ledger())
            AllBackends().cancel([known[token] for token in one.tokens if token in known])
            return
        with sweep_dir.lock():
            begun = {log.token for log in sweep_dir.read_journals()}
            known = job_ids(sweep_dir.read_ledger())
            back = [known[token] for token in one.tokens if token in begun and token in known]
            new = [token for token in one.tokens if token not in begun]
            ids = give_up(sweep_dir, new, "dealt to another target")
        AllBackends().cancel([*back, *ids])


class RemoteTarget:
    """A target behind ssh, with a tree of its own: runs are given to it, and asked back."""

    begins_at_once, has_options = False, True
    blocked: Concern | None = None  # it knows itself, and refuses

    def __init__(self, matter: SharedSweep, profile: Profile, options: Sequence[str]) -> None:
        self._matter, self._profile, self._options = matter, profile, tuple(options)
        self.patience = get_backend(profile.backend).patience
        self.capacity = delegate.capacity_there(profile, options)
        self.name, self.address = self.capacity.target, profile.address
        self._in_a_job = matter.wish.slots or at_once(matter.sweep, self.capacity)
        self._waiting_since: dict[str, float] = {}

    def places(self, sight: SharedSnapshot) -> int:
        limits = [limit for limit in (self.capacity.at_once, self.capacity.most) if limit is not None]
        working = sum(sight.seen.statuses[one].state is RunState.RUNNING for one in self._given(sight))
        return max(self._in_a_job * min(limits, default=_JOBS_AT_FIRST), 0 if limits else 2 * working)

    def held(self, sight: SharedSnapshot) -> tuple[ActiveJob, ...]:
        """Every run by itself: which of them share a job there is that tree's business."""
        found = []
        for run_id in self._given(sight):
            status = sight.seen.statuses[run_id]
            if status.state in _WAITS and not status.attempt:
                since = self._waiting_since.setdefault(run_id, sight.now)
                found.append(ActiveJob((run_id,), (run_id,), waited=sight.now - since))
            else:
                self._waiting_since.pop(run_id, None)
                found.append(ActiveJob((run_id,), (run_id,)))
        return tuple(found)

    def again(self, sight: SharedSnapshot) -> list[str]:
        left = {*sight.seen.left}
        return [run_id for run_id in self._given(sight) if run_id in left]

    def has_chances(self, sight: SharedSnapshot) -> bool:
        return False  # its own jobs see to that

    def submit(self, deal: TargetAssignment, places: int, *, define: bool) -> TargetSubmission:
        sweep, sweep_dir = self._matter.sweep, self._matter.sweep_dir
        wish = replace(self._matter.wish, canary=False)
        only, adopt = deal.run_ids, self._matter.adopt
        done = delegate.send(sweep, sweep_dir, self._profile, wish, self._options, only=only, adopt=adopt)
        if problems := done.answer["problems"]:
            raise OrchestrateError("; ".join(problems))
        submitted = not done.answer["settled"]
        return TargetSubmission(submitted, notes=(*done.notes, *done.answer.get("notes", ())))

    def rehearse(self, deal: TargetAssignment, places: int, later: int) -> Mapping[str, Any]:
        sweep, sweep_dir = self._matter.sweep, self._matter.sweep_dir
        wish, only = replace(self._matter.wish, canary=False), deal.run_ids
        return delegate.rehearse(sweep, sweep_dir, self._profile, wish, self._options, only)

    def take(self, one: ActiveJob) -> None:
        delegate.take_back(self._matter.sweep, self._matter.sweep_dir, one.run_ids, waiting=True)

    def _given(self, sight: SharedSnapshot) -> Iterable[str]:
        """Its runs of this sweep that are not over."""
        statuses = sight.seen.statuses
        for one in assigned_of(self._matter.sweep_dir):
            if one.place.address == self.address:
                yield from (run for run in one.run_ids if run in statuses and not statuses[run].state.final)


def abilities(
    sweep: Sweep, parties: Sequence[TargetHandle]
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """The runs that each party, by name, is able to do; and of those that none is, why, party by party."""
    able: dict[str, frozenset[str]] = {}
    whys: dict[str, list[str]] = {}
    for party in parties:
        cannot = {run.run_id: cannot_place(run, sweep, party.capacity) for run in sweep.runs}
        able[party.name] = frozenset(run_id for run_id, why in cannot.items() if why is None)
        for run in sweep.runs:
            # With `compare: true` a run is one target's, and all others have the same to say about it.
            if (why := cannot[run.run_id]) is not None and run.target in (None, party.name):
                whys.setdefault(run.run_id, []).append(f"{party.name}: {why}")
    doable = frozenset().union(*able.values())
    names = ", ".join(able)
    return able, {
        run.run_id: "; ".join(whys.get(run.run_id, [f"belongs to target {run.target}, and not to {names}"]))
        for run in sweep.runs
        if run.run_id not in doable
    }


def take_from_others(matter: SharedSweep, parties: Sequence[TargetHandle]) -> dict[str, str]:
    """Have trees behind ssh that are no party give back what waits there; what they keep, and why."""
    own = {party.address for party in parties}
    places = [one for one in assigned_of(matter.sweep_dir) if one.place.address not in own]
    runs = {run_id for one in places for run_id in one.run_ids}
    return delegate.take_back(matter.sweep, matter.sweep_dir, runs, waiting=True) if runs else {}


def stop_here(matter: SharedSweep, parties: Sequence[TargetHandle]) -> bool:
    """Ask workers on this machine to save and leave, and wait for them; ``False`` if some do not."""
    names = {party.name for party in parties if party.begins_at_once}
    deadline = time.monotonic() + _STOP_PATIENCE_S
    asked: set[str] = set()
    while True:
        seen = poll_sweep(matter.sweep_dir)
        there = {token for token in seen.live if seen.targets.get(token) in names}
        ids = job_ids(matter.sweep_dir.read_ledger())
        AllBackends().cancel([ids[token] for token in there - asked if token in ids])
        asked |= there
        if not there or time.monotonic() > deadline:
            return not there
        time.sleep(_STOP_REFRESH_S)


def elsewhere(sweep_dir: SweepDir) -> Collection[str]:
    """Runs that trees behind ssh have."""
    return {run_id for one in assigned_of(sweep_dir) for run_id in one.run_ids}

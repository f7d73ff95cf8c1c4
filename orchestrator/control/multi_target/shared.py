"""Deal the runs of a sweep to its targets, and submit each target's share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.backends.local import LocalBackend
from orchestrator.config.check import CheckProblem, check_sweep
from orchestrator.control import fleet
from orchestrator.control.cloud.exchange import Tell
from orchestrator.control.forecast import mean_seconds
from orchestrator.control.multi_target.targets import SharedSweep, TargetHandle, elsewhere
from orchestrator.control.poll import poll_sweep
from orchestrator.control.remote import delegate
from orchestrator.control.remote.places import assigned_of
from orchestrator.control.submit import (
    SweepState,
    as_submitted,
    inspect_sweep,
    plan_sweep,
    rows_of,
    submit_checked,
)
from orchestrator.core.errors import OrchestrateError, RefusedError
from orchestrator.core.types import Run, RunState, TargetAssignment
from orchestrator.planning.auto_retry import second_chances
from orchestrator.planning.distribute import TargetLoad, abilities, deal
from orchestrator.planning.ordering import canaries, in_turns
from orchestrator.planning.plan import can_have_more_memory, to_do
from orchestrator.rundir.records.ledger_entries import AttemptsEntry
from orchestrator.status.disk_check import proved_ended
from orchestrator.status.survey import Survey


@dataclass(frozen=True)
class SharedState:
    """The state of a sweep on several targets; ``seen``: the states with those in trees behind ssh.

    ``seconds``: the predicted mean time of a run by target, as far as it is known and runs are to do.
    """

    state: SweepState
    seen: Survey
    seconds: Mapping[str, float]


class SharedTargets:
    """The targets of one sweep, as a :class:`~orchestrator.control.follow.Submitter`.

    ``skipped``: why no target can train a run, by run id. ``dealt``: how many runs each target took in the
    last submission. ``refusals``: why targets took none. ``tell`` gets lines for the person at the terminal.
    """

    queues = True

    def __init__(self, shared: SharedSweep, targets: Sequence[TargetHandle], tell: Tell) -> None:
        self.sweep, self.sweep_dir, self.options = shared.sweep, shared.sweep_dir, shared.options
        self.apart = any(target.capacity.apart for target in targets)
        # Targets without a queue come last: they can get the share of one that refuses, but no second job.
        self._targets = sorted(targets, key=lambda target: target.begins_at_once)
        self.tell, self._told = tell, set[str]()
        self._able, self.skipped = abilities(shared.sweep, [target.capacity for target in targets])
        self.dealt: dict[str, int] = {}
        self.refusals: list[OrchestrateError] = []

    def survey(self) -> Survey:
        """The sweep's state now, on all targets."""
        sweep_dir = self.sweep_dir
        return fleet.present(sweep_dir, poll_sweep(sweep_dir, rows_of(self.sweep, sweep_dir)))

    def inspect(self, *, define: bool = True) -> SharedState:
        """The sweep's state as a plan takes it: corrected by the files, after second chances.

        ``define`` as for :meth:`submit`.
        """
        sweep = self.sweep if define else as_submitted(self.sweep, self.sweep_dir)
        state = inspect_sweep(sweep, self.sweep_dir, self.options.reuse)
        state = state.with_chances(self.second_chances(state.seen))
        seen, seconds = fleet.present(self.sweep_dir, state.seen), dict[str, float]()
        if self.todo(seen):
            addresses = [target.address for target in self._targets]
            seconds = mean_seconds(replace(state, seen=seen), addresses, self.options)
        return SharedState(state, seen, seconds)

    def todo(self, seen: Survey) -> list[str]:
        """Runs without a target, the most urgent first: those begun before, then the others interleaved."""
        runs = [run for run in to_do(self.sweep, seen) if run.run_id not in self.skipped]
        runs = [run for run in runs if not seen.statuses[run.run_id].waits]
        apart = {run_id for run_ids in self._forks_apart(seen).values() for run_id in run_ids}
        runs = [run for run in runs if run.run_id not in apart]
        if self.options.canary:
            runs, _ = canaries(runs, self.sweep.runs, seen)
        runs = in_turns(self._own(runs, seen), self.sweep.runs, seen)
        runs.sort(key=lambda run: seen.statuses[run.run_id].attempt == 0)
        return [run.run_id for run in runs]

    def _own(self, runs: Sequence[Run], seen: Survey) -> list[Run]:
        """Leave out the runs that trees behind ssh have."""
        given = elsewhere(seen)
        return [run for run in runs if run.run_id not in given]

    def _forks_apart(self, seen: Survey, dealt: Mapping[str, str] | None = None) -> dict[str, set[str]]:
        """Return the forks for trees behind ssh that have their trunks or are ``dealt`` them, by target."""
        if not self.sweep.trunks:
            return {}
        addresses = {target.address: target.name for target in self._targets if target.own_tree}
        has = {
            run_id: addresses[one.place.address]
            for one in assigned_of(self.sweep_dir)
            if one.place.address in addresses
            for run_id in one.run_ids
        }
        has |= {run_id: name for run_id, name in (dealt or {}).items() if name in addresses.values()}
        apart: dict[str, set[str]] = {}
        for run in self._own(to_do(self.sweep, seen), seen):
            if run.run_id not in self.skipped and (name := has.get(self.sweep.trunks.get(run.run_id, ""))):
                apart.setdefault(name, set()).add(run.run_id)
        return apart

    def second_chances(self, seen: Survey) -> list[AttemptsEntry]:
        """Return the failed runs to train again; trees behind ssh arrange their own."""
        sweep = replace(self.sweep, runs=tuple(self._own(self.sweep.runs, seen)))
        own = [target.capacity for target in self._targets if not target.own_tree]
        return [entry for capacity in own for entry in second_chances(sweep, seen, capacity)]

    def waits_for_lost(self, seen: Survey) -> bool:
        """Whether workers that cannot be reached may still have runs."""
        given = elsewhere(seen)
        proofs = [run not in given and proved_ended(self.sweep_dir.run(run)) for run in seen.unknown]
        return bool(proofs) and not any(proofs)

    def check(self, seen: Survey) -> tuple[CheckProblem, ...]:
        """Check the runs to do; return the warnings.

        Raises :class:`ChecksFailedError`, and :class:`OrchestrateError` where a target lacks what its profile
        requires.
        """
        runs = tuple(run for run in to_do(self.sweep, seen) if run.run_id not in self.skipped)
        if not runs:
            return ()
        if blocking := next((one.blocked for one in self._targets if one.blocked is not None), None):
            raise OrchestrateError(blocking.text, hint=blocking.hint)
        return check_sweep(replace(self.sweep, runs=runs)).require_passed()

    def take_from_others(self) -> dict[str, str]:
        """Request queued runs back from trees behind ssh that are no targets now; return why any is kept."""
        own, given = {target.address for target in self._targets}, assigned_of(self.sweep_dir)
        others = {run for one in given if one.place.address not in own for run in one.run_ids}
        return delegate.take_back(self.sweep, self.sweep_dir, others, waiting=True) if others else {}

    def submit(self, now: SharedState | None = None, *, define: bool = False) -> str | None:
        """Deal all runs that have not begun, and submit them; a temporary obstacle as text, or ``None``.

        ``now``: the sweep's state, if it was inspected before. ``define``: the grid becomes the sweep's
        latest. Other targets get the share of one that refuses; if no target takes a run, raise its error.
        """
        now = self._open(now or self.inspect(define=define), define=define)
        moves = self._to_take(now)
        for target, run_ids in moves:
            self._take(target, run_ids, now.seen)
        # After the entry in the ledger: a worker that claimed one before that has it.
        taken = {run for _, run_ids in moves for run in run_ids}
        claimed = {run for run in taken if not proved_ended(self.sweep_dir.run(run))}
        self.dealt, self.refusals, waiting = {}, [], set(claimed)
        if taken:
            now = self.inspect(define=define)
        accepting = list(self._targets)
        while refusing := self._submit(now, accepting, waiting, define=define and not self.dealt):
            accepting.remove(refusing)
            now = self.inspect(define=define)
        if self.refusals and not self.dealt:
            raise min(self.refusals, key=lambda error: isinstance(error, RefusedError))
        full = waiting > claimed and not self.dealt
        return "the queues take no more jobs of yours now" if full else None

    def _open(self, now: SharedState, *, define: bool) -> SharedState:
        """Record the grid, skipped runs and second chances; return the sweep's state afterwards."""
        here, nothing = LocalBackend(), TargetAssignment(frozenset(), self.skipped)
        while True:
            prospect = plan_sweep(now.state, here.capacity(ask=False), self.options, nothing)
            done = submit_checked(prospect, here, define=define)
            if done.planned is prospect:
                return replace(now, state=done.state)
            now = self.inspect(define=define)  # another command has decided meanwhile

    def _to_take(self, now: SharedState) -> list[tuple[TargetHandle, list[str]]]:
        """Return each target with its queued runs that another one is predicted to finish earlier."""
        loads = self._loads(now, self._targets)
        dealt = deal(self.todo(now.seen), loads)
        return [
            (target, [run for run in load.queued if dealt[run] != load.name])
            for target, load in zip(self._targets, loads, strict=True)
        ]

    def _take(self, target: TargetHandle, run_ids: Collection[str], seen: Survey) -> None:
        try:
            target.take(run_ids, seen)
        except OrchestrateError as error:
            self.tell_once(f"{target.name}: {error}")

    def _submit(
        self, now: SharedState, accepting: Sequence[TargetHandle], waiting: set[str], *, define: bool
    ) -> TargetHandle | None:
        """Deal the unassigned runs and submit each share; return the first target that refuses."""
        state, todo = now.state, [run for run in self.todo(now.seen) if run not in waiting]
        for target, assignment in self._shares(now, todo, accepting):
            try:
                done = target.submit(state, assignment, define=define)
            except OrchestrateError as error:
                self.refusals.append(error)
                self.tell_once(f"{target.name}: {error}{f'; {error.hint}' if error.hint else ''}")
                return target
            state, define = done.state, define and not done.submitted
            waiting.update(done.waiting)
            if done.submitted:
                self.dealt[target.name] = self.dealt.get(target.name, 0) + len(assignment.run_ids)
            for note in done.notes:
                self.tell_once(f"{target.name}: {note}", note)  # notes about the code are equal for all
        return None

    def _shares(
        self, now: SharedState, todo: Sequence[str], accepting: Sequence[TargetHandle]
    ) -> list[tuple[TargetHandle, TargetAssignment]]:
        """Deal unassigned runs; return each target with what is to be submitted to it, if anything is."""
        loads = [
            replace(load, busy=load.busy + len(load.queued), queued=())
            for load in self._loads(now, accepting)
        ]
        dealt, found = deal(todo, loads), []
        apart = self._forks_apart(now.seen, dealt)
        for target, load in zip(accepting, loads, strict=True):
            run_ids = {run for run, name in dealt.items() if name == load.name}.union(
                target.without_job(now.seen), apart.get(load.name, ())
            )
            places = max(1, load.free) if target.begins_at_once else None
            if run_ids:
                found.append((target, TargetAssignment(frozenset(run_ids), places=places)))
        return found

    def _loads(self, now: SharedState, targets: Sequence[TargetHandle]) -> list[TargetLoad]:
        """Return what the targets can train and have. Where some have more memory, these get who lacks it."""
        seen = now.seen
        roomy = {one.name for one in self._targets if can_have_more_memory(self.sweep, one.capacity)}
        starved = {run for run, status in seen.statuses.items() if roomy and status.more_memory}
        loads = []
        for target in targets:
            can = self._able[target.name] - (set() if target.name in roomy else starved)
            load = target.load(seen, can - self.sweep.trunks.keys() if target.own_tree else can)
            if target.own_tree:  # trunks and their forks stay together
                kept = {*self.sweep.trunks, *self.sweep.trunks.values()}.intersection(load.queued)
                queued = tuple(run for run in load.queued if run not in kept)
                load = replace(load, busy=load.busy + len(kept), queued=queued)
            loads.append(replace(load, seconds=now.seconds.get(target.address)))
        return loads

    def forks(self, now: SharedState) -> str:
        """Describe the forks that wait in this tree, as of :meth:`Prefixes.forks`."""
        own = self._own(to_do(self.sweep, now.seen), now.seen)
        return now.state.reuse.prefixes.forks(run.run_id for run in own)

    def rehearse(self) -> Mapping[str, Any]:
        """Check and plan the submission, in the form of :func:`dry_run.rehearse`; each array has its target.

        Writes nothing. Raises :class:`ChecksFailedError`.
        """
        now = self.inspect()
        notes = list(map(str, self.check(now.seen)))
        taken = {run for target, runs in self._to_take(now) if not target.capacity.apart for run in runs}
        state = replace(now.state, seen=_freed(now.state.seen, taken))
        now = replace(now, state=state, seen=_freed(now.seen, taken))
        todo, arrays, waiting = self.todo(now.seen), list[Mapping[str, Any]](), 0
        reused = list[str]()
        for target, assignment in self._shares(now, todo, self._targets):
            plan, state = target.rehearse(state, assignment)
            arrays += [{**array, "target": target.name} for array in plan["arrays"]]
            notes += [f"{target.name}: {note}" for note in plan["notes"]]
            reused += plan["reused"]
            waiting += plan["waiting"]
            todo = [run for run in todo if run not in assignment.run_ids]
        reused += filter(None, [self.forks(now)])
        names, waiting = ", ".join(target.name for target in self._targets), waiting + len(todo)
        return {
            "target": names,
            "arrays": arrays,
            "skipped": self.skipped,
            "waiting": waiting,
            "reused": list(dict.fromkeys(reused)),
            "notes": notes,
        }

    def tell_once(self, text: str, what: str | None = None) -> None:
        """Print a text once, or once per ``what``: obstacles recur in every turn."""
        if (what or text) not in self._told:
            self._told.add(what or text)
            self.tell(text)


def _freed(seen: Survey, taken: Collection[str]) -> Survey:
    """Return the survey with these queued runs without a job."""
    free = {run: replace(seen.statuses[run], state=RunState.PENDING) for run in taken}
    return replace(seen, statuses={**seen.statuses, **free})

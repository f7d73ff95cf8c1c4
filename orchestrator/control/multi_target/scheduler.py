"""Assign runs of a shared sweep to its targets while the sweep is followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.registry import AllBackends
from orchestrator.control import fleet
from orchestrator.control.exchange import Tell, drain_instances, exchange_with_instances
from orchestrator.control.follow import out_of_budget, rest
from orchestrator.control.multi_target.history import TargetHealth, TargetHistory
from orchestrator.control.multi_target.targets import (
    SharedSnapshot,
    SharedSweep,
    TargetHandle,
    abilities,
    elsewhere,
)
from orchestrator.control.poll import leave_queue, poll_sweep, settle_submissions
from orchestrator.control.submit import rows_of, submit_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import JobState, Reason, Run, TargetAssignment
from orchestrator.planning.budget import worth_going_on
from orchestrator.planning.distribute import Assignments, TargetLoad, assign_runs, reassign
from orchestrator.planning.ordering import canaries, in_turns
from orchestrator.planning.plan import can_have_more_memory, to_do
from orchestrator.rundir.journal import EXITED
from orchestrator.status.disk_check import proved_ended
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import RunStatus, Survey


class TargetScheduler:
    """Follow a sweep that several targets share.

    ``skipped``: why no target can train a run, by run id. ``refusals``: why targets took no runs.
    ``tell`` gets lines for the person at the terminal.
    """

    def __init__(self, shared: SharedSweep, targets: Sequence[TargetHandle], tell: Tell) -> None:
        self._shared, self._tell = shared, tell
        self._targets = {target.name: target for target in targets}
        self._able, self.skipped = abilities(shared.sweep, targets)
        self._past = TargetHistory({target.name: TargetHealth() for target in targets}, self._stands)
        self._began = time.time()
        self._told: set[str] = set()
        self._submitted = False
        self.refusals: list[OrchestrateError] = []

    def follow(self) -> Iterator[Survey]:
        """Yield the sweep's state again and again and assign its runs, until none is left to wait for."""
        self.open()
        sweep_dir, more = self._shared.sweep_dir, True
        while more:
            exchange_with_instances(sweep_dir, self._tell, orphans=True)
            began = time.process_time()
            snapshot = self.take_snapshot()
            took = time.process_time() - began  # CPU time here; trees behind ssh answer at their own pace
            yield snapshot.seen
            if more := self.turn(snapshot):
                rest(sweep_dir, took, snapshot.seen)
        for note in leave_queue(sweep_dir, snapshot.seen):
            self._tell(note)
        for _ in drain_instances(sweep_dir, self._tell):
            yield self.take_snapshot().seen
        fleet.fetch_from_trees(sweep_dir, self._tell)

    def open(self) -> None:
        """Record the grid and skipped runs; complete cancellations that a killed command had begun."""
        sweep_dir, nothing = self._shared.sweep_dir, TargetAssignment(frozenset(), self.skipped)
        submit_sweep(self._shared.sweep, sweep_dir, LocalBackend(), self._shared.wish, deal=nothing)
        revoked = {log.token for log in sweep_dir.read_journals() if log.revoked}
        ids = job_ids(sweep_dir.read_ledger())
        answers = AllBackends().poll([ids[token] for token in sorted(revoked & ids.keys())])
        at_large = (JobState.QUEUED, JobState.RUNNING)
        there = [job_id for job_id, job in answers.items() if job.state in at_large]
        self._try(lambda: AllBackends().cancel(there))

    def take_snapshot(self) -> SharedSnapshot:
        """The sweep's state now, on all targets."""
        sweep, sweep_dir = self._shared.sweep, self._shared.sweep_dir
        seen = fleet.present(sweep_dir, poll_sweep(sweep_dir, rows_of(sweep, sweep_dir)))
        logs = {log.token: log for log in sweep_dir.read_journals()}
        return SharedSnapshot(seen, sweep_dir.read_ledger(), logs, time.time())

    def turn(self, snapshot: SharedSnapshot) -> bool:
        """Reassign and assign runs once; whether there is a reason to go on following."""
        self._close_left_targets(snapshot)
        if self._mend(snapshot):
            return True
        todo, loads = self.todo(snapshot), self.loads(snapshot)
        if todo and self._is_spent(snapshot.seen):
            return snapshot.seen.active
        assigned = assign_runs(todo, loads)
        for move in reassign(loads, assigned, self._past.moved):
            owner, jobs = self._targets[move.owner], move.job
            if self._try(partial(owner.take, jobs)):
                self._past.reassigned(jobs.run_ids, owner.name)
                assigned.setdefault(move.taker, []).extend(move.run_ids)
        self._resubmit(assigned, snapshot)
        for load in loads:
            if run_ids := assigned.get(load.name):
                self.submit(load, run_ids, snapshot)
        return bool(assigned or snapshot.seen.active or self._may_go_on(todo, snapshot))

    def _is_spent(self, seen: Survey) -> bool:
        """Whether the rest of the budget pays for no further job."""
        sweep_dir = self._shared.sweep_dir
        spent = out_of_budget(sweep_dir, seen)
        return spent and not worth_going_on(sweep_dir, seen, self._shared.wish.budget)

    def todo(self, snapshot: SharedSnapshot) -> list[str]:
        """Unassigned runs, the most urgent first: those that were begun, then the others interleaved."""
        sweep, seen = self._shared.sweep, snapshot.seen
        runs = [*self._lost(snapshot), *to_do(sweep, seen)]
        if self._shared.wish.canary:
            runs, _ = canaries(runs, sweep.runs, seen)
        given = elsewhere(self._shared.sweep_dir)
        runs = [run for run in in_turns(runs, sweep.runs, seen) if run.run_id not in given]
        runs.sort(key=lambda run: seen.statuses[run.run_id].attempt == 0)
        return [run.run_id for run in runs if run.run_id not in self.skipped]

    def _stands(self, target: str, status: RunStatus) -> tuple[int, int]:
        """A run's progress. Where an attempt costs money, only the frames of its checkpoint count."""
        if not self._targets[target].capacity.apart:
            return status.attempt, status.frames or 0
        kept = self._shared.sweep_dir.run(status.run_id).checkpoints() if status.attempt else []
        return 0, kept[0].frames if kept else 0

    def _lost(self, snapshot: SharedSnapshot) -> list[Run]:
        """Runs of workers on other machines with expired claims."""
        unknown, sweep_dir = set(snapshot.seen.unknown), self._shared.sweep_dir
        apart = {name for name, target in self._targets.items() if target.capacity.apart}
        runs = [run for run in self._shared.sweep.runs if run.run_id in unknown]
        runs = [run for run in runs if snapshot.seen.target(run.run_id) not in apart]
        return [run for run in runs if proved_ended(sweep_dir.run(run.run_id))]

    def loads(self, snapshot: SharedSnapshot) -> list[TargetLoad]:
        return [self._load(target, snapshot) for target in self._targets.values()]

    def _load(self, target: TargetHandle, snapshot: SharedSnapshot) -> TargetLoad:
        statuses, name = snapshot.seen.statuses, target.name
        able = self._able[name] - self._past.without_progress(name, statuses)
        if not self._is_roomy(target) and any(map(self._is_roomy, self._targets.values())):
            able -= {run_id for run_id in able if statuses[run_id].more_memory}
        jobs = tuple(
            one
            if one.waited is None
            else replace(one, waited=one.waited / self._past.patience_factor(one.run_ids))
            for one in target.active_jobs(snapshot)
        )
        is_open = self._past.health[name].open
        return TargetLoad(name, target.places(snapshot), able, jobs, target.patience, is_open)

    def _is_roomy(self, target: TargetHandle) -> bool:
        return can_have_more_memory(self._shared.sweep, target.capacity)

    def submit(self, load: TargetLoad, run_ids: Sequence[str], snapshot: SharedSnapshot) -> None:
        """Submit runs to a target. After a failure, print it and pause submissions to that target."""
        target, health = self._targets[load.name], self._past.health[load.name]
        try:
            done = target.submit(TargetAssignment(frozenset(run_ids)), load.free, define=not self._submitted)
        except OrchestrateError as error:
            health.failed()
            self.refusals.append(error)
            self._tell_once(f"{load.name}: {error}{f'; {error.hint}' if error.hint else ''}")
            return
        health.went_well(submitted=done.submitted)
        self._submitted = self._submitted or done.submitted
        taken_up = [run_id for run_id in run_ids if run_id not in done.waiting]
        self._past.assigned(taken_up, load.name, snapshot.seen.statuses)
        for note in done.notes:
            self._tell_once(f"{load.name}: {note}", note)  # notes about the code are equal for all targets

    def _mend(self, snapshot: SharedSnapshot) -> bool:
        """Settle submissions with a lost reply, give second chances; whether any was given."""
        given = False
        for name, target in self._targets.items():
            health = self._past.health[name]
            if health.unsettled and health.open:
                health.unsettled = not self._try(self._settle)
            if health.open and target.has_second_chances(snapshot):
                given |= self._try(partial(target.submit, TargetAssignment(frozenset()), 0, define=False))
        return given

    def _settle(self) -> None:
        with self._shared.sweep_dir.lock():
            settle_submissions(self._shared.sweep_dir)

    def _resubmit(self, assigned: Assignments, snapshot: SharedSnapshot) -> None:
        """Add runs that trees behind ssh were given and that have no job there."""
        for name, target in self._targets.items():
            again = set(target.to_resubmit(snapshot)) - self._past.without_progress(
                name, snapshot.seen.statuses
            )
            if again and self._past.health[name].to_be_reminded():
                assigned.setdefault(name, []).extend(sorted(again))

    def _close_left_targets(self, snapshot: SharedSnapshot) -> None:
        """Submit no more to this machine once a person stopped a worker on it, or its disk is full."""
        for token, log in snapshot.logs.items():
            target, last = self._targets.get(snapshot.seen.targets.get(token, "")), log.events[-1:]
            if target is None or not target.begins_at_once or not last or last[0].kind != EXITED:
                continue
            left = last[0].exit
            if last[0].time >= self._began and left.asked and left.cause is not Reason.BUDGET:
                self._past.health[target.name].left = True
                self._tell_once(f"{target.name}: its worker left: {left.why}")

    def _may_go_on(self, todo: Sequence[str], snapshot: SharedSnapshot) -> bool:
        """Whether runs can still begin although none is active now."""
        if snapshot.seen.unknown:
            return True  # workers on other machines may have them, until their claims expire
        for load in self.loads(snapshot):
            left = {*todo, *self._targets[load.name].to_resubmit(snapshot)}
            left -= self._past.without_progress(load.name, snapshot.seen.statuses)
            if not self._past.health[load.name].hopeless and left & self._able[load.name]:
                return True
        return False

    def _try(self, action: Callable[[], object]) -> bool:
        """Do the action; whether it succeeded. Print an error and go on with the other targets."""
        try:
            action()
        except OrchestrateError as error:
            self._tell_once(str(error))
            return False
        return True

    def _tell_once(self, text: str, what: str | None = None) -> None:
        """Print a text once, or once per ``what``: obstacles recur in every turn."""
        if (what or text) not in self._told:
            self._told.add(what or text)
            self._tell(text)

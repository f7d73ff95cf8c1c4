"""Dealing a sweep out to its targets for as long as somebody follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.registry import AllBackends
from orchestrator.control import fleet
from orchestrator.control.follow import bring_home, drain_instances, out_of_budget, rest
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
from orchestrator.core.errors import BudgetError, OrchestrateError
from orchestrator.core.types import BUDGET_REACHED, JobState, Run, TargetAssignment
from orchestrator.planning.budget import worth_going_on
from orchestrator.planning.distribute import Hands, TargetLoad, assign_runs, take
from orchestrator.planning.ordering import canaries, in_turns
from orchestrator.planning.plan import can_have_more_memory, to_do
from orchestrator.rundir.journal import EXITED
from orchestrator.status.disk_check import proved_ended
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import RunStatus, Survey

Tell = Callable[[str], None]


class TargetScheduler:
    """One following of a sweep that several targets (``parties``) share.

    ``skipped``: why a run is for none of them. ``refused``: a submission would have cost more than the budget
    allows. ``tell`` is given lines for the person who follows.
    """

    def __init__(self, matter: SharedSweep, parties: Sequence[TargetHandle], tell: Tell) -> None:
        self._matter, self._tell = matter, tell
        self._parties = {party.name: party for party in parties}
        self._able, self.skipped = abilities(matter.sweep, parties)
        self._past = TargetHistory({party.name: TargetHealth() for party in parties}, self._stands)
        self._began = time.time()
        self._told: set[str] = set()
        self._submitted = False
        self.refused = False

    def follow(self) -> Iterator[Survey]:
        """The sweep's state again and again, its runs being dealt out, until there is nothing to stay for."""
        self.open()
        sweep_dir, more = self._matter.sweep_dir, True
        while more:
            bring_home(sweep_dir, self._tell, orphans=True)
            began = time.process_time()
            sight = self.take_snapshot()
            took = time.process_time() - began  # here: trees behind ssh take their own time to answer
            yield sight.seen
            if more := self.turn(sight):
                rest(sweep_dir, took, sight.seen)
        for note in leave_queue(sweep_dir, sight.seen):
            self._tell(note)
        for _ in drain_instances(sweep_dir, self._tell):
            yield self.take_snapshot().seen

    def open(self) -> None:
        """Record the grid and what no target can do; end what a table that was killed had begun to take."""
        sweep_dir, nothing = self._matter.sweep_dir, TargetAssignment(frozenset(), self.skipped)
        submit_sweep(self._matter.sweep, sweep_dir, LocalBackend(), self._matter.wish, deal=nothing)
        revoked = {log.token for log in sweep_dir.read_journals() if log.revoked}
        ids = job_ids(sweep_dir.read_ledger())
        answers = AllBackends().poll([ids[token] for token in sorted(revoked & ids.keys())])
        at_large = (JobState.QUEUED, JobState.RUNNING)
        there = [job_id for job_id, job in answers.items() if job.state in at_large]
        self._guarded(lambda: AllBackends().cancel(there))

    def take_snapshot(self) -> SharedSnapshot:
        """The sweep as it is now, wherever its runs are."""
        sweep, sweep_dir = self._matter.sweep, self._matter.sweep_dir
        seen = fleet.present(sweep_dir, poll_sweep(sweep_dir, rows_of(sweep, sweep_dir)))
        logs = {log.token: log for log in sweep_dir.read_journals()}
        return SharedSnapshot(seen, sweep_dir.read_ledger(), logs, time.time())

    def turn(self, sight: SharedSnapshot) -> bool:
        """Take and deal what is to be taken and dealt; whether there is anything to stay for."""
        self._see_who_left(sight)
        if self._mend(sight):
            return True
        todo, seats = self.todo(sight), self.seats(sight)
        if todo and self._is_spent(sight.seen):
            return sight.seen.active
        hands = assign_runs(todo, seats)
        for taking in take(seats, hands, self._past.moved):
            owner, held = self._parties[taking.owner], taking.held
            if self._guarded(partial(owner.take, held)):
                self._past.taken(held.run_ids, owner.name)
                hands.setdefault(taking.taker, []).extend(taking.run_ids)
        self._remind(hands, sight)
        for seat in seats:
            if run_ids := hands.get(seat.name):
                self.submit(seat, run_ids, sight)
        return bool(hands or sight.seen.active or self._hopes(todo, sight))

    def _is_spent(self, seen: Survey) -> bool:
        """Whether runs are left because the money is used up, and what is left of it is worth no job."""
        sweep_dir = self._matter.sweep_dir
        spent = out_of_budget(sweep_dir, seen)
        return spent and not worth_going_on(sweep_dir, seen, self._matter.wish.budget)

    def todo(self, sight: SharedSnapshot) -> list[str]:
        """Runs that nobody has, the most urgent first: those that were begun, then the others in turns."""
        sweep, seen = self._matter.sweep, sight.seen
        runs = [*self._lost(sight), *to_do(sweep, seen)]
        if self._matter.wish.canary:
            runs, _ = canaries(runs, sweep.runs, seen)
        given = elsewhere(self._matter.sweep_dir)
        runs = [run for run in in_turns(runs, sweep.runs, seen) if run.run_id not in given]
        runs.sort(key=lambda run: seen.statuses[run.run_id].attempt == 0)
        return [run.run_id for run in runs if run.run_id not in self.skipped]

    def _stands(self, target: str, status: RunStatus) -> tuple[int, int]:
        """How far a run is. Where each attempt has its price, what counts is what was kept of it."""
        if not self._parties[target].capacity.apart:
            return status.attempt, status.frames or 0
        kept = self._matter.sweep_dir.run(status.run_id).checkpoints() if status.attempt else []
        return 0, kept[0].frames if kept else 0

    def _lost(self, sight: SharedSnapshot) -> list[Run]:
        """Runs of workers that cannot be asked from here, and whose claims have run out."""
        unknown, sweep_dir = set(sight.seen.unknown), self._matter.sweep_dir
        apart = {name for name, party in self._parties.items() if party.capacity.apart}
        runs = [run for run in self._matter.sweep.runs if run.run_id in unknown]
        runs = [run for run in runs if sight.seen.target(run.run_id) not in apart]
        return [run for run in runs if proved_ended(sweep_dir.run(run.run_id))]

    def seats(self, sight: SharedSnapshot) -> list[TargetLoad]:
        return [self._seat(party, sight) for party in self._parties.values()]

    def _seat(self, party: TargetHandle, sight: SharedSnapshot) -> TargetLoad:
        statuses, name = sight.seen.statuses, party.name
        able = self._able[name] - self._past.in_vain(name, statuses)
        if not self._is_roomy(party) and any(map(self._is_roomy, self._parties.values())):
            able -= {run_id for run_id in able if statuses[run_id].more_memory}
        held = tuple(
            one if one.waited is None else replace(one, waited=one.waited / self._past.unrest(one.run_ids))
            for one in party.held(sight)
        )
        is_open = self._past.manners[name].open
        return TargetLoad(name, party.places(sight), able, held, party.patience, is_open)

    def _is_roomy(self, party: TargetHandle) -> bool:
        return can_have_more_memory(self._matter.sweep, party.capacity)

    def submit(self, seat: TargetLoad, run_ids: Sequence[str], sight: SharedSnapshot) -> None:
        """Have a target take up runs. One that cannot is told, and left alone for a while."""
        party, manners = self._parties[seat.name], self._past.manners[seat.name]
        try:
            done = party.submit(TargetAssignment(frozenset(run_ids)), seat.free, define=not self._submitted)
        except OrchestrateError as error:
            manners.failed()
            self.refused = self.refused or isinstance(error, BudgetError)
            self._say(f"{seat.name}: {error}{f'; {error.hint}' if error.hint else ''}")
            return
        manners.went_well(submitted=done.submitted)
        self._submitted = self._submitted or done.submitted
        taken_up = [run_id for run_id in run_ids if run_id not in done.waiting]
        self._past.dealt(taken_up, seat.name, sight.seen.statuses)
        for note in done.notes:
            self._say(f"{seat.name}: {note}", note)  # of their code all targets say the same

    def _mend(self, sight: SharedSnapshot) -> bool:
        """Find out about submissions whose answer was lost; give second chances. Whether any was given."""
        given = False
        for name, party in self._parties.items():
            manners = self._past.manners[name]
            if manners.unsettled and manners.open:
                manners.unsettled = not self._guarded(self._settle)
            if manners.open and party.has_chances(sight):
                given |= self._guarded(partial(party.submit, TargetAssignment(frozenset()), 0, define=False))
        return given

    def _settle(self) -> None:
        with self._matter.sweep_dir.lock():
            settle_submissions(self._matter.sweep_dir)

    def _remind(self, hands: Hands, sight: SharedSnapshot) -> None:
        """Add to the hands what trees behind ssh have been given already and nothing works on."""
        for name, party in self._parties.items():
            again = set(party.again(sight)) - self._past.in_vain(name, sight.seen.statuses)
            if again and self._past.manners[name].to_be_reminded():
                hands.setdefault(name, []).extend(sorted(again))

    def _see_who_left(self, sight: SharedSnapshot) -> None:
        """Take no more to this machine once somebody asked a worker on it to leave, or its disk is full."""
        for token, log in sight.logs.items():
            party, last = self._parties.get(sight.seen.targets.get(token, "")), log.events[-1:]
            if party is None or not party.begins_at_once or not last or last[0].kind != EXITED:
                continue
            why = str(last[0].data.get("why", ""))
            asked = last[0].data.get("asked") and not why.startswith(BUDGET_REACHED)
            if last[0].time >= self._began and asked:
                self._past.manners[party.name].left = True
                self._say(f"{party.name}: its worker left: {why}")

    def _hopes(self, todo: Sequence[str], sight: SharedSnapshot) -> bool:
        """Whether, with nothing at work, there is something to wait for."""
        if sight.seen.unknown:
            return True  # a worker elsewhere has them, until its claims run out
        for seat in self.seats(sight):
            left = {*todo, *self._parties[seat.name].again(sight)}
            left -= self._past.in_vain(seat.name, sight.seen.statuses)
            if not self._past.manners[seat.name].hopeless and left & self._able[seat.name]:
                return True
        return False

    def _guarded(self, action: Callable[[], object]) -> bool:
        """Do it; whether it went well. What is in the way is told, and the others go on."""
        try:
            action()
        except OrchestrateError as error:
            self._say(str(error))
            return False
        return True

    def _say(self, text: str, what: str | None = None) -> None:
        """Once (or ``what`` it is about): what is in the way now is in the way again and again."""
        if (what or text) not in self._told:
            self._told.add(what or text)
            self._tell(text)

"""Histories of one run: workers that die at any moment, users' decisions, readers that lag behind."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.core.records import plain
from orchestrator.core.types import RunState, number_of
from orchestrator.rundir import Event, Holder, IndexRow, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import (
    CancelEntry,
    EndedEntry,
    FailedAttempt,
    FoundEntry,
    FoundResult,
    LedgerEntry,
    LostEntry,
    MemoryEntry,
    RetryEntry,
    SubmissionEntry,
)
from orchestrator.rundir.records.run_state import decisions_in, state_of
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import RunStatus, survey

RUN = "0" * 16
ELSEWHERE = Holder("node7", "other boot", "pid:[1]", 4711, 99)
OPEN = (RunState.PENDING, RunState.INTERRUPTED)


@dataclass
class Claimed:
    """An attempt as its folder has it; ``journaled``: its worker lived to tell."""

    number: int
    token: str
    end: RunState | None = None
    journaled: bool = False
    frames: int = 0


@dataclass
class History:
    """What was written: entries of the ledger, and events by worker. The folder is the truth."""

    ledger: list[LedgerEntry] = field(default_factory=list)
    journals: dict[str, list[Event]] = field(default_factory=dict)

    def status(self, entries: int | None = None, lags: dict[str, int] | None = None) -> RunStatus:
        """The run's status for a reader of so many entries, and so many events less of each journal."""
        lags = lags or {}
        logs = [
            WorkerLog(token, tuple(events[: max(0, len(events) - lags.get(token, 0))]))
            for token, events in self.journals.items()
        ]
        random.Random(len(self.ledger)).shuffle(logs)
        seen = survey(
            [IndexRow(RUN, True, {})],
            self.ledger[:entries],
            logs,
            Moment(lambda _: True, 0.0, 1e9),
        )
        return seen.statuses[RUN]


class OneRun(RuleBasedStateMachine):
    """``result``: the attempt with a published result; ``cancelled``: by a user, and not retried since.

    ``refused``: the number of the last submission with a worker that could not take the run; 0 after a
    retry, and once a worker of a later one took it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history, self.attempts = History(), list[Claimed]()
        self.result: int | None = None
        self.retired, self.retried, self.clock, self.cancelled = 0, 0, 0.0, False
        self.refused = 0

    @property
    def at_work(self) -> Claimed | None:
        return self.attempts[-1] if self.attempts and self.attempts[-1].end is None else None

    def enter(self, entry: LedgerEntry) -> None:
        self.history.ledger.append(replace(entry, number=len(self.history.ledger) + 1))

    def write(self, token: str, kind: str, attempt: int | None = None, **data: Any) -> None:
        self.clock += 1.0
        event = Event(kind, self.clock, RUN if attempt is not None else None, attempt, data)
        self.history.journals.setdefault(token, []).append(event)

    def ends(self) -> dict[int, RunState | None]:
        """The newest attempt's end, as a worker reads it in the folder."""
        return {one.number: one.end for one in self.attempts[-1:]}

    def worker_state(self, entries: int | None = None) -> RunState:
        decided = decisions_in(self.history.ledger[:entries]).of(RUN)
        return state_of(replace(decided, lost=max(decided.lost, self.retired)), self.ends())[0]

    # Workers

    @precondition(lambda self: self.at_work is None)
    @rule(worker=st.integers(1, 4), behind=st.integers(0, 2), blind=st.booleans())
    def claim(self, worker: int, behind: int, blind: bool) -> None:
        """A worker takes the run if its view allows: the ledger may lag, a result be absent in its cache."""
        seen = max(0, len(self.history.ledger) - behind)
        if self.worker_state(seen) in OPEN and (self.result is None or blind):
            self.begin(f"{worker:04d}-0001")

    def begin(self, token: str) -> None:
        number = self.attempts[-1].number + 1 if self.attempts else 1
        if token not in self.history.journals:
            self.write(token, STARTED, holder=plain(ELSEWHERE))
        self.attempts.append(Claimed(number, token))
        self.write(token, CLAIMED, number)
        if number_of(token) >= self.refused:
            self.refused = 0

    @precondition(lambda self: self.at_work is None and self.result is None)
    @rule(outcome=st.sampled_from([RunState.FAILED, RunState.INTERRUPTED]))
    def fail_to_take(self, outcome: RunState) -> None:
        """A worker of a new job may take the run, and cannot: its folder is damaged, or its machine."""
        if self.worker_state() in OPEN:
            self.enter(SubmissionEntry(jobs=()))
            number = len(self.history.ledger)
            self.write(f"{number:04d}-0002", ENDED, 0, outcome=outcome.value)
            newest = number_of(self.attempts[-1].token) if self.attempts else 0
            if outcome is RunState.FAILED and number > newest:
                self.refused = number

    @precondition(lambda self: self.result is not None and self.at_work is None)
    @rule(worker=st.integers(1, 4))
    def claim_without_seeing_the_end(self, worker: int) -> None:
        self.begin(f"{worker:04d}-0001")

    @precondition(lambda self: self.at_work is not None)
    @rule(frames=st.integers(1, 100))
    def progress(self, frames: int) -> None:
        one = self.attempts[-1]
        one.frames += frames
        self.write(one.token, PROGRESS, one.number, frames=one.frames)

    @precondition(lambda self: self.at_work is not None)
    @rule(outcome=st.sampled_from([RunState.FAILED, RunState.INTERRUPTED]), tells=st.booleans())
    def end(self, outcome: RunState, tells: bool) -> None:
        self.over(outcome, tells)

    @precondition(lambda self: self.at_work is not None and self.cancelled)
    @rule(tells=st.booleans())
    def stop_for_the_cancellation(self, tells: bool) -> None:
        self.over(RunState.CANCELLED, tells)

    @precondition(lambda self: self.at_work is not None)
    @rule(tells=st.booleans())
    def finish(self, tells: bool) -> None:
        if self.result is None:  # otherwise the first result stands
            self.result = self.attempts[-1].number
            self.over(RunState.DONE, tells)
        else:
            self.over(RunState.INTERRUPTED, tells)

    def over(self, outcome: RunState, tells: bool) -> None:
        one = self.attempts[-1]
        one.end, one.journaled = outcome, tells
        if tells:
            self.write(one.token, ENDED, one.number, outcome=outcome.value)

    # Decisions, and what commands find on disk

    @rule()
    def cancel(self) -> None:
        self.enter(CancelEntry(runs={RUN: self.attempts[-1].number if self.attempts else 0}))
        self.cancelled = self.result is None

    @rule(memory=st.booleans())
    def retry(self, memory: bool) -> None:
        """As the command: not of a run at work, unless it was cancelled."""
        if self.history.status().state.final and (self.at_work is None or self.cancelled):
            newest = self.attempts[-1].number if self.attempts else 0
            if self.result is not None:
                self.result, self.retired = None, newest
            self.enter((MemoryEntry if memory else RetryEntry)(runs={RUN: newest}, why=None))
            self.retried, self.cancelled, self.refused = newest, False, 0

    @precondition(lambda self: self.result is not None)
    @rule()
    def lose_the_result(self) -> None:
        """The entry names the attempt with the result: a later one may be at work."""
        if (status := self.history.status()).state is RunState.DONE:
            self.enter(LostEntry(runs={RUN: status.attempt}))
            self.result, self.cancelled = None, False

    @rule()
    def put_on_record(self) -> None:
        """A command enters what a killed worker did not tell."""
        state = self.history.status().state
        if self.result is not None:
            if state not in (RunState.DONE, RunState.CANCELLED):
                self.enter(FoundEntry(runs={RUN: FoundResult(self.result)}))
                self.cancelled = False
        elif self.at_work is None and self.attempts and not self.attempts[-1].journaled:
            one = self.attempts[-1]
            if one.end is RunState.FAILED and state in (*OPEN, RunState.RUNNING):
                self.enter(EndedEntry(runs={RUN: FailedAttempt(one.number)}))

    @rule(skips=st.booleans())
    def submit(self, skips: bool) -> None:
        self.enter(SubmissionEntry(jobs=(), skipped={RUN: "needs a GPU"} if skips else {}))

    # What holds at any moment

    @invariant()
    def a_run_has_one_owner(self) -> None:
        status = self.history.status()
        if status.state is RunState.RUNNING:
            newest = self.attempts[-1]
            assert (status.attempt, status.token) == (newest.number, newest.token)

    @invariant()
    def a_result_that_was_told_is_final(self) -> None:
        """One of an attempt that was cancelled, retried and went on counts once a command has found it."""
        if (
            self.result is not None
            and self.result > self.retried
            and self.attempts[self.result - 1].journaled
        ):
            assert self.history.status().state is RunState.DONE

    @invariant()
    def without_a_result_no_run_is_done(self) -> None:
        assert self.result is not None or self.history.status().state is not RunState.DONE

    @invariant()
    def cancelled_until_a_retry(self) -> None:
        if self.cancelled and self.result is None:
            assert self.history.status().state is RunState.CANCELLED
            assert self.worker_state() is RunState.CANCELLED

    @invariant()
    def failed_until_a_retry_if_no_worker_can_take_it(self) -> None:
        told = all(one.end is not None and one.journaled for one in self.attempts)
        if self.refused and told and self.result is None and not self.cancelled:
            assert self.history.status().state is RunState.FAILED

    @invariant()
    def nobody_trains_what_is_over(self) -> None:
        """Where all was told, a worker takes the run exactly if `status` shows it as still to be done.

        A run that one worker could not take is free for others that have it in their jobs.
        """
        if self.result is None and self.at_work is None and all(one.journaled for one in self.attempts):
            state = self.history.status().state
            if self.refused:
                return
            to_do = (*OPEN, RunState.SKIPPED)
            assert (self.worker_state() in to_do) is (state in to_do), (self.worker_state(), state)

    @rule(entries=st.integers(0, 30), lag=st.dictionaries(st.sampled_from("1234"), st.integers(0, 9)))
    def a_reader_behind_sees_no_more_than_was_written(self, entries: int, lag: dict[str, int]) -> None:
        lags = {f"000{worker}-0001": events for worker, events in lag.items()}
        status = self.history.status(entries, lags)
        assert status.attempt <= len(self.attempts)
        assert (status.frames or 0) <= max((one.frames for one in self.attempts), default=0)
        if status.state is RunState.DONE:
            assert self.attempts[status.attempt - 1].end is RunState.DONE
        if status.state is RunState.RUNNING:
            assert self.attempts[status.attempt - 1].token == status.token


TestOneRun = OneRun.TestCase
TestOneRun.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)

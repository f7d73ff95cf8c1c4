"""The state of one run: a pure fold of ledger entries and of its attempts' ends.

Used by `status` and the plan, with the ends that journals record, and by a worker, with those in the run's
folder. Ledger and journals are written independently, so their order is not known: a decision names the
attempts that it concerns.

- A result ends a run, also where a later attempt began, until a retry or the loss of the result.
- A cancellation holds until a retry. It has no effect on a run with a result.
- A retry puts aside the ends of attempts up to the one it names; after a cancellation, these attempts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.core.types import RunState
from orchestrator.rundir.records.ledger_entries import (
    Beginning,
    CancelEntry,
    DecisionEntry,
    EndedEntry,
    FailedAttempt,
    FoundEntry,
    FoundResult,
    LedgerEntry,
    LostEntry,
    MemoryEntry,
    PrefixEntry,
    RetryEntry,
    SubmissionEntry,
)

# The ends of a run's attempts by number, from 1; None for an attempt without one on record.
Ends = Mapping[int, RunState | None]


@dataclass(frozen=True)
class Decided:
    """What the ledger says of one run. The defaults are those of a run that no entry names.

    ``forgiven``: the newest attempt that a retry put aside; ``withdrawn``: the newest one cancelled before
    that; ``lost``: the newest one that lost its result. ``found``, ``failed``: ends that no journal records.
    ``skipped``: why the latest submission that names the run skips it. ``again``: the number of the latest
    retry; ``elsewhere``: of the latest after which jobs submitted before leave the run alone. Numbers are 0
    without one. ``prefix``: what the run need not train.
    """

    forgiven: int = 0
    withdrawn: int = 0
    lost: int = 0
    cancelled: bool = False
    found: FoundResult | None = None
    failed: FailedAttempt | None = None
    skipped: str | None = None
    more_memory: bool = False
    again: int = 0
    elsewhere: int = 0
    prefix: Beginning | None = None

    def after(self, entry: LedgerEntry, about: Any) -> Decided:
        """Return the decisions after the next entry; ``about``: its value for the run."""
        if isinstance(entry, PrefixEntry):
            return replace(self, prefix=about)
        decided = replace(self, skipped=None)
        if isinstance(entry, CancelEntry):
            return replace(decided, cancelled=self.found is None)
        if isinstance(entry, LostEntry):
            return replace(decided, lost=max(self.lost, about), found=None, cancelled=False)
        if isinstance(entry, FoundEntry):
            return replace(decided, found=about, cancelled=False)
        if isinstance(entry, EndedEntry):
            return replace(decided, failed=about)
        if isinstance(entry, RetryEntry):
            return replace(
                decided,
                forgiven=max(self.forgiven, about),
                withdrawn=max(self.withdrawn, about if self.cancelled else 0),
                cancelled=False,
                found=None,
                more_memory=self.more_memory or isinstance(entry, MemoryEntry),
                again=entry.number,
                elsewhere=entry.number if entry.needs_another_job else self.elsewhere,
            )
        return replace(self, skipped=about)

    def all_ends(self, ends: Ends) -> Ends:
        """Return the ends with those that only the ledger has."""
        if self.failed is None or ends.get(self.failed.attempt) is RunState.DONE:
            return ends
        return {**ends, self.failed.attempt: RunState.FAILED}

    def finished(self, ends: Ends) -> int | None:
        """Return the attempt with the result that counts, if there is one."""
        if self.found is not None:
            return self.found.attempt
        aside = max(self.forgiven, self.lost)
        return max((n for n, end in ends.items() if end is RunState.DONE and n > aside), default=None)


UNDECIDED = Decided()


def state_of(decided: Decided, ends: Ends) -> tuple[RunState, int]:
    """Return the run's state and the attempt that it is about; running without an end on record."""
    ends = decided.all_ends(ends)
    if (finished := decided.finished(ends)) is not None:
        return RunState.DONE, finished
    newest = max(ends, default=0)
    if decided.cancelled:
        return RunState.CANCELLED, newest
    state = _after_retries(decided, ends, newest)
    waits = state is RunState.PENDING and decided.skipped is not None
    return (RunState.SKIPPED if waits else state), newest


def _after_retries(decided: Decided, ends: Ends, newest: int) -> RunState:
    if newest not in ends or newest <= decided.withdrawn:
        return RunState.PENDING
    end = ends[newest]
    if end is RunState.DONE or (end is None and newest <= decided.lost):  # to be done again
        return RunState.PENDING
    if end is None:
        return RunState.RUNNING
    if end is RunState.CANCELLED and decided.again:
        return RunState.PENDING
    return RunState.PENDING if end.final and newest <= decided.forgiven else end


class RunDecisions(dict[str, Decided]):
    """What a ledger says of each run that it decides about, entry by entry in their order."""

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Take the next entries."""
        for entry in entries:
            if isinstance(entry, SubmissionEntry):
                self._submit(entry)
            elif isinstance(entry, DecisionEntry):
                for run_id, about in entry.runs.items():
                    self[run_id] = self.of(run_id).after(entry, about)

    def _submit(self, entry: SubmissionEntry) -> None:
        """Take a submission's skips; a run that it has a job for is skipped no more."""
        for run_id, why in entry.skipped.items():
            self[run_id] = self.of(run_id).after(entry, why)
        for run_id in (run_id for job in entry.jobs for run_id in job.run_ids if run_id in self):
            if self[run_id].skipped is not None:
                self[run_id] = replace(self[run_id], skipped=None)

    def of(self, run_id: str) -> Decided:
        """Return what is decided about a run."""
        return self.get(run_id, UNDECIDED)


def decisions_in(ledger: Iterable[LedgerEntry]) -> RunDecisions:
    """Fold a whole ledger."""
    found = RunDecisions()
    found.apply(ledger)
    return found

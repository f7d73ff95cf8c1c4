"""Compute the state of every run: index, ledger and journals in, states out. Pure; opens no file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from orchestrator.core.types import JobState, JobStatus, Reason, RunState
from orchestrator.rundir import Event, IndexRow, LedgerEntry, WorkerLog
from orchestrator.rundir import ledger_entries as entries
from orchestrator.rundir.journal import CLAIMED, ENDED, PROGRESS
from orchestrator.status.bad_nodes import failing_machines
from orchestrator.status.ledger import finished_attempts, targets_of, unreadable_files
from orchestrator.status.liveness import (
    Alive,
    is_active,
    is_alive,
    is_stalled,
    live_tokens,
    outlived,
    working_tokens,
)

# The reason of a run with an incomplete result on disk.
DAMAGED_RESULT = "damaged result"


@dataclass(frozen=True)
class RunStatus:
    """A run's state with its details.

    ``since``: epoch seconds of the latest event. ``forgiven``: the last attempt that a user retried, with any
    outcome. ``more_memory``: the next attempt gets more memory.
    """

    run_id: str
    state: RunState = RunState.PENDING
    attempt: int = 0
    token: str | None = None
    reason: str | None = None
    message: str | None = None
    frames: int | None = None
    total: int | None = None
    end_to_end_fps: float | None = None
    value: float | None = None
    since: float | None = None
    code_id: str | None = None
    forgiven: int = 0
    more_memory: bool = False

    @property
    def why(self) -> str:
        """Reason and message as one line; empty without a problem."""
        return ": ".join(part for part in (self.reason, self.message) if part)

    @property
    def unpaid(self) -> bool:
        """Whether the worker interrupted the run because its share of the budget was spent."""
        return self.state is RunState.INTERRUPTED and self.reason == Reason.BUDGET.value

    @property
    def eta(self) -> float | None:
        """Seconds until the run is done at its present speed; None if unknown."""
        speed = self.end_to_end_fps
        if self.state is not RunState.RUNNING or not speed or self.total is None or self.frames is None:
            return None
        return max(0.0, (self.total - self.frames) / speed)

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "state": self.state.value, "eta": self.eta}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**fields, "state": RunState(data["state"])})


@dataclass(frozen=True)
class Survey:
    """A sweep at one moment: the states of its runs, and the tokens of live jobs.

    ``working``: live ones with a worker at work, others are queued. ``endings``: end records of runs that
    died with their job. ``jobs``: backends' answers about jobs that had not left, by token. ``bad_machines``:
    machines to avoid, with the attempts that failed on each, by run. ``elsewhere``: runs queued for another
    tree that was not queried. ``targets``: each job's target, by token. ``notes``: unavailable information,
    and what a person has to do, for users. ``damaged``: skipped files, in at most one line.
    """

    rows: Sequence[IndexRow]
    statuses: Mapping[str, RunStatus]
    live: frozenset[str]
    damaged: tuple[str, ...] = ()
    bad_machines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    endings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    targets: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    working: frozenset[str] = frozenset()

    def counts(self) -> dict[RunState, int]:
        """Count runs of the latest grid by state, in the order of :class:`RunState`."""
        counted = Counter(self.statuses[row.run_id].state for row in self.rows if row.in_grid)
        return {state: counted[state] for state in RunState if counted[state]}

    def first(self, state: RunState) -> str:
        """Return the id of the first run of the latest grid in this state, which some run is in."""
        return next(
            row.run_id for row in self.rows if row.in_grid and self.statuses[row.run_id].state is state
        )

    def record(self, row: IndexRow) -> dict[str, Any]:
        """Return a run in JSON form, as `status --json` has it."""
        about = {"target": self.target(row.run_id), "in_grid": row.in_grid, "point": row.point}
        return {**self.statuses[row.run_id].to_json(), **about}

    def target(self, run_id: str) -> str | None:
        """Return the target of the run's present or last job; another tree's job is named with its place."""
        token = self.statuses[run_id].token or ""
        return self.targets.get(token) or token.rpartition("/")[0] or None

    @property
    def remarks(self) -> tuple[str, ...]:
        """All lines for users beside the states of the runs."""
        return (*self.notes, *self.damaged)

    @property
    def left(self) -> list[str]:
        """Runs of the latest grid that are unfinished and in no job."""
        return self._in(RunState.PENDING, RunState.INTERRUPTED)

    @property
    def unknown(self) -> list[str]:
        """Runs of the latest grid in the unknown state: their worker is unreachable from here."""
        return self._in(RunState.UNKNOWN)

    @property
    def active(self) -> bool:
        """Whether a job works, or may start to work, on a run of the latest grid."""
        return not self.elsewhere.issuperset(self._in(RunState.RUNNING, RunState.QUEUED, RunState.STALLED))

    @property
    def unanswered(self) -> bool:
        """Whether a run of the latest grid is unknown because a backend did not answer about its job."""
        asked = (self.jobs.get(self.statuses[run_id].token or "") for run_id in self.unknown)
        return any(job is not None and job.state is JobState.UNKNOWN for job in asked)

    def _in(self, *states: RunState) -> list[str]:
        return [row.run_id for row in self.rows if row.in_grid and self.statuses[row.run_id].state in states]


def survey(
    rows: Sequence[IndexRow],
    ledger: Sequence[LedgerEntry],
    logs: Sequence[WorkerLog],
    *,
    alive: Alive,
    now: float,
    lease: float,
    jobs: Mapping[str, JobStatus] | None = None,
) -> Survey:
    """Fold index, ledger and journals into one state per run.

    ``alive`` judges a worker's process; ``jobs``: backends' answers by token; ``now`` and ``lease`` are in
    seconds.
    """
    jobs = jobs or {}
    living = {log.token: is_alive(log, jobs.get(log.token), alive) for log in logs}
    live = live_tokens(ledger, logs, living, jobs)
    statuses = {row.run_id: RunStatus(row.run_id) for row in rows}
    skips = _apply_skips(statuses, ledger)
    _apply_journals(statuses, logs, living, jobs, now, lease, finished_attempts(ledger, logs))
    _apply_decisions(statuses, ledger, skips)
    _apply_queue(statuses, ledger, live, jobs)
    _apply_early_ends(statuses, ledger, logs, jobs)
    bad_machines = failing_machines(rows, logs, now)
    damaged, working = unreadable_files(ledger, logs), live & working_tokens(living, jobs)
    targets = targets_of(ledger)
    return Survey(rows, statuses, live, damaged, bad_machines, jobs, targets=targets, working=working)


def decided(seen: Survey, decisions: Iterable[LedgerEntry]) -> Survey:
    """Return the survey after these ledger entries."""
    statuses = dict(seen.statuses)
    _apply_decisions(statuses, decisions, {})
    return replace(seen, statuses=statuses)


def mark_stale(seen: Survey, today: str) -> Survey:
    """Mark runs that other code than today's (its id) finished as stale."""
    statuses = dict(seen.statuses)
    for run_id, status in statuses.items():
        if status.state is RunState.DONE and status.code_id not in (None, today):
            message = f"trained by other code ({status.code_id}, today's is {today})"
            statuses[run_id] = replace(status, state=RunState.STALE, message=message)
    return replace(seen, statuses=statuses)


def _apply_skips(
    statuses: dict[str, RunStatus], ledger: Iterable[LedgerEntry]
) -> dict[str, entries.SubmissionEntry]:
    """Mark runs that the latest submission mentioning them skips; return these submissions by run."""
    skips: dict[str, entries.SubmissionEntry] = {}
    for entry in entries.submissions(ledger):
        skips |= dict.fromkeys(entry.skipped, entry)
        for job in entry.jobs:
            for run_id in job.run_ids:
                skips.pop(run_id, None)
    for run_id, entry in skips.items():
        if run_id in statuses:
            statuses[run_id] = RunStatus(run_id, RunState.SKIPPED, reason=entry.skipped[run_id])
    return skips


def _apply_queue(
    statuses: dict[str, RunStatus],
    ledger: Iterable[LedgerEntry],
    live: frozenset[str],
    jobs: Mapping[str, JobStatus],
) -> None:
    """Mark unfinished runs of live jobs as queued there.

    A job skips runs that were retried after its submission, and does not return to them.
    """
    assigned: dict[str, str] = {}
    for entry in ledger:
        if isinstance(entry, entries.RetryEntry):
            for run_id in entry.runs:
                assigned.pop(run_id, None)
        for job in entry.jobs if isinstance(entry, entries.SubmissionEntry) else ():
            if job.token in live:
                assigned |= dict.fromkeys(job.run_ids, job.token)
    for run_id, token in assigned.items():
        status = statuses.get(run_id)
        if status and status.state in (RunState.PENDING, RunState.INTERRUPTED):
            said = jobs[token].text or None if token in jobs else None
            statuses[run_id] = replace(status, state=RunState.QUEUED, token=token, reason=None, message=said)


def _apply_early_ends(
    statuses: dict[str, RunStatus],
    ledger: Iterable[LedgerEntry],
    logs: Iterable[WorkerLog],
    jobs: Mapping[str, JobStatus],
) -> None:
    """Add why to runs of jobs that ended before any run began: a failed set-up, or the backend's words."""
    begun = {log.token: log.setup_failure for log in logs}
    for _, job in entries.jobs_of(ledger):
        token, why = job.token, begun.get(job.token)
        reason = Reason.SETUP.value if why else None
        if token not in begun and token in jobs and jobs[token].state.final:
            why = f"its job ended before its worker began: {jobs[token].text}"
        ends = {RunState.PENDING, RunState.INTERRUPTED} if reason else {RunState.PENDING}
        for run_id in job.run_ids if why else ():
            status = statuses.get(run_id)
            if status and status.state in ends and (status.token or "") <= token:
                statuses[run_id] = replace(status, token=token, reason=reason, message=why)


def _apply_journals(
    statuses: dict[str, RunStatus],
    logs: Iterable[WorkerLog],
    living: Mapping[str, bool | None],
    jobs: Mapping[str, JobStatus],
    now: float,
    lease: float,
    finished: Mapping[str, int],
) -> None:
    for log in logs:
        times_by_run = _replay(statuses, log, finished)
        lives, job = living[log.token], jobs.get(log.token)
        for run_id, times in times_by_run.items():
            status = statuses[run_id]
            if status.state is not RunState.RUNNING or status.token != log.token:
                continue
            if lives is None:
                said = job.text if job and job.state is JobState.UNKNOWN else status.message
                statuses[run_id] = replace(status, state=RunState.UNKNOWN, message=said)
            elif not lives and outlived(log, job) and is_active(times, now, lease):
                said = f"its worker still writes, and its job is back in the queue: {job.text if job else ''}"
                statuses[run_id] = replace(status, message=said)
            elif not lives:
                statuses[run_id] = _interrupted(status, job)
            elif is_stalled(times, now, lease):
                statuses[run_id] = replace(status, state=RunState.STALLED)


def _interrupted(status: RunStatus, job: JobStatus | None) -> RunStatus:
    """Return the status of a run after its worker died; the backend may give the reason."""
    if job is None or job.reason is None:
        return replace(status, state=RunState.INTERRUPTED, reason="killed")
    return replace(status, state=RunState.INTERRUPTED, reason=job.reason.value, message=job.text)


def _replay(
    statuses: dict[str, RunStatus], log: WorkerLog, finished: Mapping[str, int]
) -> dict[str, list[float]]:
    """Apply a worker's events in order; return the times of its events by run. Builds each status once."""
    times_by_run: dict[str, list[float]] = {}
    progress: dict[str, Event] = {}
    drafts: dict[str, dict[str, Any]] = {}
    for event in log.events:
        run_id = event.run_id
        if run_id not in statuses or event.attempt is None or event.attempt > finished.get(run_id, math.inf):
            continue
        draft = drafts.get(run_id)
        if event.attempt and event.attempt < (draft["attempt"] if draft else statuses[run_id].attempt):
            continue
        if draft is None:
            draft = drafts[run_id] = dict(vars(statuses[run_id]))
        times_by_run.setdefault(run_id, []).append(event.time)
        if event.kind == PROGRESS:  # by far the most frequent: keep the last one until another kind follows
            progress[run_id] = event
        else:
            if run_id in progress:
                draft.update(_progress(progress.pop(run_id)))
            draft.update(_after(draft, event, log.token))
    for run_id, event in progress.items():
        drafts[run_id].update(_progress(event))
    for run_id, draft in drafts.items():
        statuses[run_id] = RunStatus(**draft)
    return times_by_run


def _progress(event: Event) -> dict[str, Any]:
    """Return the fields in a progress event; missing ones stay unchanged."""
    progress = event.progress
    said = {
        "frames": progress.frames,
        "total": progress.total,
        "end_to_end_fps": progress.end_to_end_fps,
        "value": progress.value,
        "since": event.time,
    }
    return {name: value for name, value in said.items() if value is not None}


def _after(before: Mapping[str, Any], event: Event, token: str) -> dict[str, Any]:
    """Return the changed fields of a status when an attempt starts or ends."""
    if event.kind == CLAIMED:
        running = {"state": RunState.RUNNING, "reason": None, "message": None}
        return {**running, "attempt": event.attempt, "token": token, "since": event.time}
    if event.kind == ENDED and event.attempt == 0 and before["attempt"]:
        return {}  # from a worker that never had the run; another one's event is better
    if event.kind == ENDED:
        end = event.end
        return {
            "state": end.outcome,
            "attempt": event.attempt,
            "token": token,
            "reason": end.reason,
            "message": end.message,
            "frames": before["frames"] if end.frames is None else end.frames,
            "end_to_end_fps": before["end_to_end_fps"] if end.end_to_end_fps is None else end.end_to_end_fps,
            "value": before["value"] if end.value is None else end.value,
            "since": event.time,
            "code_id": end.code_id,
        }
    return {}


def _apply_decisions(
    statuses: dict[str, RunStatus],
    ledger: Iterable[LedgerEntry],
    skips: Mapping[str, entries.SubmissionEntry],
) -> None:
    """Apply cancellations, retries, results found and results lost, in their order.

    ``skips``: the submissions that skip runs; one that came after a decision skips the run again.
    """
    decide: Mapping[type[LedgerEntry], Callable[[RunStatus, Any], RunStatus]] = {
        entries.FoundEntry: _found,
        entries.LostEntry: _lost,
        entries.EndedEntry: ended,
        entries.CancelEntry: _cancelled,
        entries.RetryEntry: _retried,
        entries.MemoryEntry: _given_more_memory,
    }
    decisions = [entry for entry in ledger if isinstance(entry, entries.DecisionEntry)]
    retries = [entry for entry in decisions if isinstance(entry, entries.RetryEntry | entries.MemoryEntry)]
    retried = {run_id: entry for entry in retries for run_id in entry.runs}
    for entry in decisions:
        for run_id, about in entry.runs.items():
            status, again = statuses.get(run_id), retried.get(run_id)
            if status is None or (isinstance(entry, entries.CancelEntry) and _is_over(entry, again, status)):
                continue
            status, skip = decide[type(entry)](status, about), skips.get(run_id)
            if skip is not None and skip.number > entry.number and status.state is RunState.PENDING:
                status = replace(status, state=RunState.SKIPPED, reason=skip.skipped[run_id])
            statuses[run_id] = status


def _is_over(
    cancel: entries.CancelEntry, again: entries.RetryEntry | entries.MemoryEntry | None, status: RunStatus
) -> bool:
    """Return whether the run was retried after its cancellation, and has begun a new attempt since."""
    return again is not None and cancel.number < again.number and status.attempt > again.runs[status.run_id]


def _found(status: RunStatus, about: entries.FoundResult) -> RunStatus:
    if status.attempt > about.attempt:
        return status
    return replace(status, state=RunState.DONE, reason=None, message=None, **vars(about))


def _lost(status: RunStatus, attempt: int) -> RunStatus:
    if status.attempt > attempt or status.state is not RunState.DONE:
        return status
    return RunStatus(status.run_id, attempt=status.attempt)


def ended(status: RunStatus, about: entries.FailedAttempt) -> RunStatus:
    """Return the status after a failure that no journal records."""
    if status.attempt > about.attempt or status.forgiven >= about.attempt:
        return status
    if status.state in (RunState.DONE, RunState.CANCELLED):
        return status
    known = {name: value for name, value in vars(about).items() if value is not None}
    return replace(status, state=RunState.FAILED, **known)


def _cancelled(status: RunStatus, _: int) -> RunStatus:
    """Cancel any attempt: until a retry no worker takes the run."""
    if status.state is RunState.DONE:
        return status
    return replace(status, state=RunState.CANCELLED, reason="cancelled", message=None)


def _retried(status: RunStatus, attempt: int) -> RunStatus:
    """Forget the ends of attempts up to this one, and every earlier cancellation."""
    status = replace(status, forgiven=max(attempt, status.forgiven))
    if status.state is RunState.CANCELLED:
        return replace(status, state=RunState.PENDING, reason=None, message=None)
    if status.attempt > attempt:
        return status
    if status.state is RunState.DONE:  # restart from its beginning
        return RunStatus(status.run_id, attempt=status.attempt, forgiven=status.forgiven)
    if status.state.final:
        return replace(status, state=RunState.PENDING, reason=None, message=None)
    return status


def _given_more_memory(status: RunStatus, attempt: int) -> RunStatus:
    return replace(_retried(status, attempt), more_memory=True)

"""Compute the state of every run: index, ledger and journals in, states out. Pure; opens no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from orchestrator.core.records import parse, plain
from orchestrator.core.types import JobState, JobStatus, Reason, RunState, number_of
from orchestrator.rundir import End, IndexRow, LedgerEntry, WorkerLog
from orchestrator.rundir.records.ledger_entries import AttemptsEntry, FailedAttempt, MemoryEntry, jobs_of
from orchestrator.rundir.records.run_state import UNDECIDED, Decided, RunDecisions, decisions_in, state_of
from orchestrator.status.attempts import Attempt, Attempts, attempts_of, figures
from orchestrator.status.bad_nodes import failing_machines
from orchestrator.status.ledger import targets_of, unreadable_files
from orchestrator.status.liveness import (
    Moment,
    is_active,
    is_alive,
    is_stalled,
    live_tokens,
    outlived,
    working_tokens,
)

# What a worker that could not take a run makes of the run's state.
_REFUSED_AS: Mapping[RunState, tuple[RunState, ...]] = {
    RunState.PENDING: (RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED),
    RunState.SKIPPED: (RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED),
    RunState.INTERRUPTED: (RunState.FAILED, RunState.CANCELLED),
}


@dataclass(frozen=True)
class RunStatus:
    """A run's state with its details.

    ``since``: epoch seconds of the latest event. ``forgiven``: the last attempt that a user retried, with any
    outcome. ``more_memory``: the next attempt gets more memory. ``waits``: the run that it goes on from is
    not finished; ``cannot``: why that will never be. Both are those of a plan alone.
    """

    run_id: str
    state: RunState = RunState.PENDING
    attempt: int = 0
    token: str | None = None
    reason: Reason | None = None
    message: str | None = None
    frames: int | None = None
    total: int | None = None
    end_to_end_fps: float | None = None
    value: float | None = None
    since: float | None = None
    code_id: str | None = None
    forgiven: int = 0
    more_memory: bool = False
    waits: bool = False
    cannot: str = ""

    @property
    def why(self) -> str:
        """Reason and message as one line; empty without a problem."""
        return ": ".join(part for part in (self.reason and self.reason.value, self.message) if part)

    @property
    def has_begun(self) -> bool:
        """Whether a worker ever took the run, or it needs none."""
        return bool(self.attempt) or self.state not in (RunState.PENDING, RunState.SKIPPED)

    @property
    def unpaid(self) -> bool:
        """Whether the worker interrupted the run because its share of the budget was spent."""
        return self.state is RunState.INTERRUPTED and self.reason is Reason.BUDGET

    @property
    def eta(self) -> float | None:
        """Seconds until the run is done at its present speed; None if unknown."""
        speed = self.end_to_end_fps
        if self.state is not RunState.RUNNING or not speed or self.total is None or self.frames is None:
            return None
        return max(0.0, (self.total - self.frames) / speed)

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), "eta": self.eta}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse what :meth:`to_json` returns. Raises ``ValueError``."""
        return parse(cls, data)


@dataclass(frozen=True)
class Survey:
    """A sweep at one moment: the states of its runs, and the tokens of live jobs.

    ``working``: live ones with a worker at work, others are queued. ``endings``: end records of runs that
    died with their job. ``jobs``: backends' answers about jobs that had not left, by token. ``bad_machines``:
    machines to avoid, with the attempts that failed on each, by run. ``elsewhere``: runs queued for another
    tree that was not queried. ``targets``: each job's target, by token. ``notes``: unavailable information,
    and what a person has to do, for users. ``damaged``: skipped files, in at most one line. ``ledger`` and
    ``logs``: what the states follow from.
    """

    rows: Sequence[IndexRow]
    statuses: Mapping[str, RunStatus]
    live: frozenset[str]
    damaged: tuple[str, ...] = ()
    bad_machines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    endings: Mapping[str, End] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    targets: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    working: frozenset[str] = frozenset()
    ledger: Sequence[LedgerEntry] = field(default=(), repr=False)
    logs: Sequence[WorkerLog] = field(default=(), repr=False)

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
    moment: Moment,
    jobs: Mapping[str, JobStatus] | None = None,
) -> Survey:
    """Fold index, ledger and journals into one state per run. ``jobs``: backends' answers by token."""
    jobs = jobs or {}
    living = {log.token: is_alive(log, jobs.get(log.token), moment.alive) for log in logs}
    live = live_tokens(ledger, logs, living, jobs)
    decisions = decisions_in(ledger)
    attempts = attempts_of({row.run_id for row in rows}, logs, decisions)
    statuses = {
        row.run_id: _status(row.run_id, decisions.of(row.run_id), attempts.get(row.run_id, {}))
        for row in rows
    }
    judge = _Judge({log.token: log for log in logs}, living, jobs, moment)
    for run_id, status in statuses.items():
        if status.state is RunState.RUNNING:
            status = judge.judged(status, attempts[run_id][status.attempt])
        statuses[run_id] = _unless_refused(status, attempts.get(run_id, {}))
    _apply_queue(statuses, ledger, decisions, live, jobs)
    _apply_early_ends(statuses, ledger, logs, jobs)
    return Survey(
        rows,
        statuses,
        live,
        unreadable_files(ledger, logs),
        failing_machines(rows, logs, moment.now),
        jobs,
        targets=targets_of(ledger),
        working=live & working_tokens(living, jobs),
        ledger=ledger,
        logs=logs,
    )


def _status(run_id: str, decided: Decided, attempts: Attempts) -> RunStatus:
    """Return a run's status by ledger and journals alone."""
    ends = {number: one.outcome for number, one in attempts.items() if number}
    state, number = state_of(decided, ends)
    known: dict[str, Any] = asdict(decided.prefix) if decided.prefix and not number else {}
    known |= attempts[number].details() | figures(attempts, number) if number in attempts else {}
    status = RunStatus(
        run_id, state, number, forgiven=decided.forgiven, more_memory=decided.more_memory, **known
    )
    return status if decided is UNDECIDED else _explained(status, decided, ends.get(number))


def _unless_refused(status: RunStatus, attempts: Attempts) -> RunStatus:
    """Return the status of a run to be done after its latest worker could not take it."""
    refusal, newest = attempts.get(0), attempts.get(status.attempt or -1)
    if refusal is None or refusal.outcome not in _REFUSED_AS.get(status.state, ()):
        return status
    if newest is not None and number_of(refusal.token or "") <= number_of(newest.token or ""):
        return status
    return replace(status, state=refusal.outcome, **refusal.details())


def _explained(status: RunStatus, decided: Decided, end: RunState | None) -> RunStatus:
    """Replace the details of the attempt's own end where the ledger decided otherwise."""
    if status.state is RunState.SKIPPED:
        return replace(status, reason=None, message=decided.skipped)
    if status.state is RunState.CANCELLED:
        return replace(status, reason=Reason.CANCELLED, message=None)
    if status.state is RunState.PENDING:
        if end is RunState.DONE:  # from its beginning
            return replace(RunStatus(status.run_id), attempt=status.attempt, forgiven=status.forgiven)
        return replace(status, reason=None, message=None)
    if status.state is RunState.DONE and decided.found is not None:
        return replace(status, reason=None, message=None, **asdict(decided.found))
    failed = decided.failed
    if status.state is RunState.FAILED and failed is not None and failed.attempt == status.attempt:
        return failed_by(status, failed)
    return status


def failed_by(status: RunStatus, about: FailedAttempt) -> RunStatus:
    """Return the status after a failure that no journal records."""
    return replace(
        status,
        state=RunState.FAILED,
        attempt=about.attempt,
        reason=about.reason or status.reason,
        message=about.message or status.message,
        frames=status.frames if about.frames is None else about.frames,
    )


def retried(seen: Survey, retries: Iterable[AttemptsEntry]) -> Survey:
    """Return the survey after failed attempts of these entries were put aside."""
    statuses = dict(seen.statuses)
    for entry in retries:
        for run_id, attempt in entry.runs.items():
            status = statuses[run_id]
            memory = status.more_memory or isinstance(entry, MemoryEntry)
            again = replace(status, state=RunState.PENDING, reason=None, message=None, more_memory=memory)
            statuses[run_id] = replace(again, forgiven=max(attempt, status.forgiven))
    return replace(seen, statuses=statuses)


def _apply_queue(
    statuses: dict[str, RunStatus],
    ledger: Iterable[LedgerEntry],
    decisions: RunDecisions,
    live: frozenset[str],
    jobs: Mapping[str, JobStatus],
) -> None:
    """Mark unfinished runs of live jobs as queued there.

    Runs retried after its submission are not: its worker may have passed them before the retry, and looks at
    each once.
    """
    assigned: dict[str, str] = {}
    for entry, job in jobs_of(ledger):
        if job.token in live:
            of_job = (run_id for run_id in job.run_ids if entry.number > decisions.of(run_id).again)
            assigned |= dict.fromkeys(of_job, job.token)
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
    for _, job in jobs_of(ledger):
        token, why = job.token, begun.get(job.token)
        cause = Reason.SETUP if why else None
        if token not in begun and token in jobs and jobs[token].state.final:
            why = f"its job ended before its worker began: {jobs[token].text}"
        ends = {RunState.PENDING, RunState.INTERRUPTED} if cause else {RunState.PENDING}
        for run_id in job.run_ids if why else ():
            status = statuses.get(run_id)
            if status and status.state in ends and (status.token or "") <= token:
                statuses[run_id] = replace(status, token=token, reason=cause, message=why)


class _Judge(NamedTuple):
    """What is known of the workers: their journals, whether they live, and their jobs, by token."""

    logs: Mapping[str, WorkerLog]
    living: Mapping[str, bool | None]
    jobs: Mapping[str, JobStatus]
    moment: Moment

    def judged(self, status: RunStatus, attempt: Attempt) -> RunStatus:
        """Return the status of a running run by its worker's life."""
        token = status.token or ""
        lives, job, times = self.living[token], self.jobs.get(token), attempt.times
        if lives is None:
            said = job.text if job and job.state is JobState.UNKNOWN else status.message
            return replace(status, state=RunState.UNKNOWN, message=said)
        if lives:
            silent = is_stalled(times, self.moment.now, self.moment.lease)
            return replace(status, state=RunState.STALLED) if silent else status
        if outlived(self.logs[token], job) and is_active(times, self.moment.now, self.moment.lease):
            said = f"its worker still writes, and its job is back in the queue: {job.text if job else ''}"
            return replace(status, message=said)
        if job is None or job.reason is None:
            return replace(status, state=RunState.INTERRUPTED, reason=Reason.KILLED)
        return replace(status, state=RunState.INTERRUPTED, reason=job.reason, message=job.text)

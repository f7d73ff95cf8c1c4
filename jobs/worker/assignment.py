"""The runs that a worker may take next: those of its job, less the decisions made meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from jobs.worker.failures import pause_before_next, unless_in_vain
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.types import Job, Reason, RunState, Size, array_of
from orchestrator.rundir import AttemptDir, End, RunDir, SweepDir, attempt_ended, tidy_finished
from orchestrator.rundir.records.ledger_entries import (
    DamagedEntry,
    SubmissionEntry,
    jobs_of,
    obtained_prices,
)
from orchestrator.rundir.records.run_state import Decided, RunDecisions, state_of

# Runs held by others are looked at this often, and given up when nothing changed for so long. A worker killed
# a moment ago seems to hold its runs until the kernel has ended them all.
_HELD_INTERVAL_S = 0.5
_HELD_PATIENCE_S = 3.0


# The end of an attempt without one on record.
_DIED_WITH_ITS_WORKER = End(RunState.INTERRUPTED, Reason.KILLED, "its worker died with it")


class Availability(Enum):
    """Whether a worker can take a run now."""

    READY = "ready"
    HELD = "held by someone alive"
    LATER = "to be tried again after a pause"
    OVER = "done, failed for good, cancelled or another job's"


@dataclass(frozen=True)
class CrashLoop:
    """A run that died too often before it reached a new checkpoint; ``end`` is now its last attempt's."""

    attempt: int
    end: End


class Decisions:
    """The ledger, read entry by entry as it grows, and what it says of each run.

    ``submission`` is the number of the entry of the reader's job, ``last`` that of the last entry read.
    ``prices``: of the machines obtained for jobs, by token.
    """

    def __init__(self, sweep: SweepDir, submission: int) -> None:
        self._sweep, self._submission, self.last = sweep, submission, 0
        self._runs = RunDecisions()
        self.prices: dict[str, float] = {}

    def refresh(self) -> None:
        """Read the entries added since the last time. A damaged entry decides nothing."""
        new = self._sweep.read_ledger(after=self.last, strict=False)
        self.prices |= obtained_prices(new)
        self._runs.apply(new)
        self.last = max((entry.number for entry in new), default=self.last)

    def of(self, run_id: str) -> Decided:
        """Return what is decided about a run."""
        return self._runs.of(run_id)

    def given_away(self, run_id: str) -> bool:
        """Return whether the run waits for a job submitted later than the reader's."""
        return self.of(run_id).elsewhere > self._submission


class Assignment:
    """The job's runs in the order of work: ``waiting`` for a look, ``held`` by other live workers."""

    def __init__(self, sweep: SweepDir, run_ids: Iterable[str], decisions: Decisions) -> None:
        self._sweep, self._decisions = sweep, decisions
        self.waiting = deque(run_ids)
        self.held: deque[str] = deque()
        self._not_before: dict[str, float] = {}
        self._looked_at_held = 0.0
        self.last_change = time.monotonic()

    def pop(self, fits: Callable[[str], bool]) -> str | None:
        """Return the first run to look at that ``fits`` and is due; now and then the held ones again."""
        if not self.waiting and self.held and self._held_due():
            self.waiting, self.held = self.held, deque()
        found = next((run_id for run_id in self.waiting if self._is_due(run_id) and fits(run_id)), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def hold(self, run_id: str) -> None:
        """Put the run aside: another worker holds it."""
        self.held.append(run_id)

    def pause(self, run_id: str) -> None:
        """Look at the run again when its pause is over, after others."""
        self.waiting.append(run_id)

    def again(self, run_id: str) -> None:
        """Continue the run before all others."""
        self.waiting.appendleft(run_id)
        self.changed()

    def changed(self) -> None:
        """Note that a run began or ended: held runs are worth more patience."""
        self.last_change = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether nothing is left but runs that others have held for a while."""
        if self.waiting:
            return False
        return not self.held or time.monotonic() - self.last_change > _HELD_PATIENCE_S

    def look(self, run_id: str) -> Availability | CrashLoop:
        """Decide whether the run can be taken now. Raises :class:`DamagedFileError`, and ``StorageError``."""
        run_dir = self._sweep.run(run_id)
        result = run_dir.result()
        if result is not None:
            if run_dir.blocked_by() is None:  # else its own process is still at it
                tidy_finished(run_dir, result)
            return Availability.OVER
        if self._decisions.of(run_id).cancelled or self._decisions.given_away(run_id):
            return Availability.OVER
        run_dir.description()
        return self._look_at_attempts(run_dir)

    def is_over(self, run_id: str) -> bool:
        """Whether no worker may take the run again: it is done, failed or cancelled. Only reads."""
        run_dir = self._sweep.run(run_id)
        if run_dir.has_result():
            return True
        attempts = run_dir.attempts()
        try:
            end = attempts[-1].end() if attempts else None
        except DamagedFileError:
            return self._decisions.of(run_id).cancelled
        return self._state(run_dir, attempts, end) in (RunState.FAILED, RunState.CANCELLED)

    def since(self, run_id: str) -> int:
        """Return the newest attempt that a retry discounted; 0 if none."""
        return self._decisions.of(run_id).forgiven

    def _state(self, run_dir: RunDir, attempts: Sequence[AttemptDir], end: End | None) -> RunState:
        """Return the run's state by the ledger and the end of its newest attempt."""
        decided = self._decisions.of(run_dir.run_id)
        decided = replace(decided, lost=max(decided.lost, run_dir.retired))
        outcome = None if end is None else end.outcome
        return state_of(decided, {one.number: outcome for one in attempts[-1:]})[0]

    def judged(self, run_id: str, attempt: int, end: End) -> End:
        """Return the end of an attempt that just died under this worker, or that of a run that died often."""
        return unless_in_vain(end, self._sweep.run(run_id).attempts(), self.since(run_id), attempt)

    def _look_at_attempts(self, run_dir: RunDir) -> Availability | CrashLoop:
        attempts = run_dir.attempts()
        if not attempts:
            return Availability.READY
        newest, since = attempts[-1], self.since(run_dir.run_id)
        if not attempt_ended(newest):
            return Availability.HELD
        end = newest.end()
        # Done: its result is published, even where it cannot be seen yet.
        if self._state(run_dir, attempts, end) in (RunState.FAILED, RunState.DONE):
            return Availability.OVER
        # The record can be the control plane's, which does not judge, as a worker's does.
        known = end or _DIED_WITH_ITS_WORKER
        judged = unless_in_vain(known, attempts, since)
        if judged is not known:
            if end is None and not newest.write_end(judged):
                return Availability.HELD
            return CrashLoop(newest.number, judged)
        if pause := pause_before_next(attempts, since):
            self._not_before[run_dir.run_id] = time.monotonic() + pause
            return Availability.LATER
        return Availability.READY

    def _is_due(self, run_id: str) -> bool:
        return time.monotonic() >= self._not_before.get(run_id, 0.0)

    def _held_due(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at_held < _HELD_INTERVAL_S:
            return False
        self._looked_at_held = now
        return True


def find_job(sweep: SweepDir, token: str) -> tuple[SubmissionEntry, Job]:
    """Return the job of that token, as it was submitted, with its submission."""
    ledger = sweep.read_ledger()
    for submission, job in jobs_of(ledger):
        if job.token == token:
            return submission, job
    damaged = "".join(f"; {entry.problem}" for entry in ledger if isinstance(entry, DamagedEntry))
    raise OrchestrateError(
        f"no submission of sweep {sweep.name!r} in {sweep.results} has a job {token!r}{damaged}",
        hint="workers are started by `orchestrate sweep`, which writes the submission first",
    )


def pool_of(submission: SubmissionEntry, job: Job) -> dict[str, Size]:
    """Return the runs that a job may take, with their sizes: its own, then if it steals those of later jobs.

    Jobs of one submission share their runs if the largest of these need the same resources.
    """
    if not job.steals:
        return {run_id: job.size_of(run_id) for run_id in job.run_ids}
    alike = [one for one in submission.jobs if one.steals and one.resources == job.resources]
    place = [one.token for one in alike].index(job.token)
    in_turn = [*alike[place:], *alike[:place]]
    return {run_id: one.size_of(run_id) for one in in_turn for run_id in one.run_ids}


def without_work(
    sweep: SweepDir, submission: SubmissionEntry, job: Job, waiting: Container[str]
) -> list[str]:
    """Return scheduler ids of jobs that would begin although all their own runs are over.

    Those are the later jobs of this one's chain, and requeued jobs with runs that others finished meanwhile;
    this job too, if its scheduler lost sight of it. ``waiting``: scheduler ids of single elements in the
    queue.
    """
    decisions = Decisions(sweep, submission.number)
    decisions.refresh()
    assignment = Assignment(sweep, (), decisions)
    found = []
    for entry, other in jobs_of(sweep.read_ledger()):
        job_id = entry.job_ids.get(other.token, "").partition(":")[2]
        alike = entry.number == submission.number and other.run_ids == job.run_ids
        follows = alike and other.token != job.token
        if not job_id or not (follows or job_id in waiting):
            continue
        if all(map(assignment.is_over, other.run_ids)):
            found.append(job_id)
    return found


def array_mates(submission: SubmissionEntry, job: Job) -> list[str]:
    """Return the tokens of the jobs in the same array."""
    return [one.token for one in submission.jobs if array_of(one.token) == array_of(job.token)]

"""What backends know against what was written: the state of a sweep, and submissions that went astray."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.registry import AllBackends
from orchestrator.config.backends import has_queue
from orchestrator.core.errors import BackendUnavailableError, DamagedFileError
from orchestrator.core.formatting import count
from orchestrator.core.types import Array, Job, JobState, JobStatus, Reason, RunState, array_of
from orchestrator.rundir import End, Event, Holder, IndexRow, LedgerEntry, SweepDir, WorkerLog, lease_seconds
from orchestrator.rundir.cleanup import clear_leftovers
from orchestrator.rundir.copies.parcel import unpacked
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.files.plain_files import open_plain
from orchestrator.rundir.records.journal import ENDED, REVOKED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, jobs_of, submissions
from orchestrator.status.ledger import job_ids
from orchestrator.status.liveness import Moment
from orchestrator.status.ownership import assigned
from orchestrator.status.survey import RunStatus, Survey, survey
from orchestrator.status.synced_copy import look_at_copy

# A local process takes its token within a second; a submission this old without one never started.
_START_GRACE_S = 60.0
# When the answer of a backend took longer, what was read before is old.
_LONG_S = 2.0
# Where a worker has done everything and left, and its node is found dead afterwards, the job goes back to the
# queue; it may wait there for days. Before that a scheduler needs a while to see that the worker has left.
_REQUEUED_S = (60.0, 7 * 86400.0)

# What a scheduler's daemons, and the kernel through them, write where a job wanted too much memory.
_NO_MEMORY = ("exceeded job memory limit", "exceeded memory limit", "oom-kill", "oom_kill")
_TAIL = 4096


def poll_sweep(sweep_dir: SweepDir, rows: Sequence[IndexRow] | None = None, *, ask: bool = True) -> Survey:
    """The sweep's present state, from index, ledger, journals, and what backends say about its open jobs.

    ``rows`` stand in for the index. Without ``ask`` no backend is asked. Of a copy it is the state at its
    source when it was made.
    """
    if (copy := read_copy(sweep_dir.path)) is not None:
        return look_at_copy(sweep_dir, copy, rows)
    ledger, logs = sweep_dir.read_ledger(), sweep_dir.read_journals()
    rows = sweep_dir.read_index() if rows is None else rows
    moment, began = Moment(Holder.alive, time.time(), lease_seconds()), time.monotonic()
    seen = survey(rows, ledger, logs, moment)
    jobs = _not_over_yet(_ask(_open_jobs(ledger, logs, seen)), sweep_dir) if ask else {}
    if not jobs:
        return _without_given(seen, ledger)
    if time.monotonic() - began > _LONG_S:
        logs = sweep_dir.read_journals()  # what was written while a backend was waited for
    seen = survey(rows, ledger, logs, replace(moment, now=time.time()), jobs)
    seen = _with_endings(sweep_dir, seen, logs)
    return _without_given(replace(seen, notes=(*seen.notes, *_held(seen))), ledger)


def _held(seen: Survey) -> Iterable[str]:
    """Say which queued jobs start only when a person releases them, and by which command."""
    held = [job for token, job in seen.jobs.items() if job.release and token in seen.live]
    if held:
        first, more = held[0], f", and {len(held) - 1} more" if held[1:] else ""
        yield f"{count(len(held), 'job')} held in the queue ({first.text}); to release: {first.release}{more}"


def _without_given(seen: Survey, ledger: Sequence[LedgerEntry]) -> Survey:
    """Show runs of another tree as queued there: no job of this tree may take them."""
    statuses, given = dict(seen.statuses), set()
    for one in assigned(ledger):
        for run_id in one.run_ids & statuses.keys():
            if statuses[run_id].state in (RunState.PENDING, RunState.INTERRUPTED):
                message = f"given to {one.place.name}"
                statuses[run_id] = replace(
                    statuses[run_id], state=RunState.QUEUED, reason=None, message=message
                )
                given.add(run_id)
    return replace(seen, statuses=statuses, elsewhere=frozenset(given)) if given else seen


def _open_jobs(ledger: Iterable[LedgerEntry], logs: Iterable[WorkerLog], seen: Survey) -> dict[str, str]:
    """Ids, by token, of jobs that still have, or may have, something to do, or may be in a queue again."""
    at_work = {log.token for log in logs if not log.exited}
    requeued = {log.token for log in logs if log.may_return}
    return {
        token: entry.job_ids[token]
        for entry, job in jobs_of(ledger)
        if (token := job.token) in entry.job_ids
        and (
            token in at_work
            or (token in requeued and has_queue(entry.backend))
            or any(_is_open(seen, run_id) for run_id in job.run_ids)
        )
    }


def _is_open(seen: Survey, run_id: str) -> bool:
    status = seen.statuses.get(run_id)
    return status is not None and not status.state.final


def _ask(job_ids: Mapping[str, str]) -> dict[str, JobStatus]:
    """What backends say about jobs, by token."""
    if not job_ids:
        return {}
    answers = AllBackends().poll(list(job_ids.values()))
    return {token: answers[job_id] for token, job_id in job_ids.items()}


def _not_over_yet(jobs: Mapping[str, JobStatus], sweep_dir: SweepDir) -> dict[str, JobStatus]:
    """Jobs on machines that are gone are over when all that they left is here, and not before."""
    unsettled = set(unpacked(sweep_dir)) if jobs else set()
    return {
        token: replace(job, state=JobState.UNKNOWN, text=f"{job.text}; what it left is still to be fetched")
        if token in unsettled and job.state.final
        else job
        for token, job in jobs.items()
    }


def idle_jobs(sweep_dir: SweepDir) -> dict[str, str]:
    """Ids, by token, of jobs that would find nothing to do: they have not begun, or wait to begin again.

    A worker at work sees it by itself.
    """
    return _idle(sweep_dir, poll_sweep(sweep_dir))


def _idle(sweep_dir: SweepDir, seen: Survey, *, left: bool = False) -> dict[str, str]:
    """Work as :func:`idle_jobs`. ``left``: also return jobs that their workers left a while ago."""
    ledger, logs = sweep_dir.read_ledger(), {log.token: log for log in sweep_dir.read_journals()}
    ids, now, (soonest, latest) = job_ids(ledger), time.time(), _REQUEUED_S

    def waits(token: str) -> bool:
        log = logs.get(token)
        if log is None or log.revoked:
            return log is None
        if left and log.exited and log.events and soonest <= now - log.events[-1].time <= latest:
            return True
        return token in seen.jobs and seen.jobs[token].state is JobState.QUEUED

    return {
        job.token: ids[job.token]
        for _, job in jobs_of(ledger)
        if job.token in ids and waits(job.token) and not any(_is_open(seen, run_id) for run_id in job.run_ids)
    }


def leave_queue(sweep_dir: SweepDir, seen: Survey) -> tuple[str, ...]:
    """Take jobs that only wait out of a queue if nothing is left for them; what a person is to know.

    The last worker to leave does so too. It may have been killed, or the job requeued after it: its own as
    well, where its node was taken for dead.
    """
    # Rented machines are condemned, and taken down by an exchange.
    found = _idle(sweep_dir, seen, left=True)
    idle = [job_id for job_id in found.values() if has_queue(job_id.partition(":")[0])]
    answers = AllBackends().poll(idle) if idle else {}
    waiting = [job_id for job_id in idle if answers[job_id].state is JobState.QUEUED]
    if not waiting:
        return ()
    jobs = "1 job" if len(waiting) == 1 else f"{len(waiting)} jobs"
    try:
        AllBackends().cancel(waiting)
    except BackendUnavailableError as error:
        return (f"{jobs} in the queue with nothing left to do: cannot be withdrawn now ({error})",)
    return (f"withdrew {jobs} from the queue: nothing is left to do for them",)


def give_up(sweep_dir: SweepDir, tokens: Sequence[str], why: str) -> list[str]:
    """Take the right to begin from jobs that have not begun; the ids of those that never will now.

    One after the other, up to the first that was faster. Call under the lock. Runs without a job afterwards
    are submitted again: another worker may have claimed one, read the ledger and left it.
    """
    ids, gone = job_ids(sweep_dir.read_ledger()), []
    for token in tokens:
        data = {"why": why, "asked": False}
        if sweep_dir.take_token(token, Event(REVOKED, time.time(), data=data)) is None:
            break
        gone.append(token)
    return [ids[token] for token in gone if token in ids]


def only_waiting(sweep_dir: SweepDir, seen: Survey, run_ids: Collection[str]) -> list[str]:
    """Return tokens of queued jobs with these runs, unless a job that has begun has their runs, too."""
    begun = {log.token for log in sweep_dir.read_journals()}
    having = [
        job
        for _, job in jobs_of(sweep_dir.read_ledger())
        if job.token in seen.live and not set(run_ids).isdisjoint(job.run_ids)
    ]

    def waits(token: str) -> bool:
        return token not in begun and token in seen.jobs and seen.jobs[token].state is JobState.QUEUED

    at_work = {run_id for job in having if not waits(job.token) for run_id in job.run_ids}
    return [job.token for job in having if at_work.isdisjoint(job.run_ids)]


def settle_submissions(sweep_dir: SweepDir) -> bool:
    """Adopt submissions with a lost answer; use up the tokens of jobs that never begin.

    Afterwards every job of the ledger has an id on record, or never will run. Return whether this changed
    anything. Call under the lock.
    """
    changed = False
    logs = {log.token: log for log in sweep_dir.read_journals()}
    for entry in submissions(sweep_dir.read_ledger()):
        if ids := _unrecorded(sweep_dir, entry, logs):
            sweep_dir.amend_ledger(replace(entry, job_ids={**entry.job_ids, **ids}))
            changed = True
    waiting = {job.token: entry for entry, job in jobs_of(sweep_dir.read_ledger()) if job.token not in logs}
    ids = {token: entry.job_ids[token] for token, entry in waiting.items() if token in entry.job_ids}
    answers = _not_over_yet(_ask(ids), sweep_dir)
    for token, entry in waiting.items():
        if token not in answers or answers[token].state.final or _should_have_begun(entry):
            sweep_dir.take_token(token, Event(REVOKED, time.time()))
            changed = True
    return changed


def _unrecorded(sweep_dir: SweepDir, entry: SubmissionEntry, logs: Mapping[str, WorkerLog]) -> dict[str, str]:
    """Ids that the ledger lacks: those that workers know, and those of what a backend finds in its queue."""
    ids: dict[str, str] = {}
    lost: dict[str, list[Job]] = {}
    for job in entry.jobs:
        token = job.token
        if token in entry.job_ids:
            continue
        if token not in logs:
            lost.setdefault(array_of(token), []).append(job)
        elif (holder := logs[token].holder) is not None and holder.job_id is not None:
            ids[token] = f"{entry.backend}:{holder.job_id.partition(':')[0]}"
    for token, jobs in lost.items():
        ids |= AllBackends().find(entry.backend, Array(token, tuple(jobs), jobs[0].resources), sweep_dir)
    return ids


def _should_have_begun(entry: SubmissionEntry) -> bool:
    """Whether jobs of this submission begin at once, and have had their time."""
    return entry.backend == LocalBackend.kind and not 0 <= time.time() - entry.time < _START_GRACE_S


def compact(sweep_dir: SweepDir, seen: Survey) -> None:
    """Fold the journals of workers that are gone for good into one file, and clear up after killed writers.

    Call under the lock.
    """
    at_work = {status.token for status in seen.statuses.values() if not status.state.final}

    def gone(log: WorkerLog) -> bool:
        if log.token in seen.live:
            return False
        job, holder = seen.jobs.get(log.token), log.holder
        if holder is None or (job is not None and job.state.final) or holder.alive() is False:
            return True
        return log.exited and log.token not in at_work

    sweep_dir.compact_journals([log for log in sweep_dir.read_journals() if gone(log)])
    sweep_dir.clear_empty_outputs()
    clear_leftovers(sweep_dir)


def close_attempts(sweep_dir: SweepDir, seen: Survey) -> None:
    """Put on record how attempts ended that died with their job, as proof for those who go on."""
    for run_id, ending in seen.endings.items():
        attempt = sweep_dir.run(run_id).attempt(seen.statuses[run_id].attempt)
        if attempt.is_claimed():
            attempt.write_end(replace(ending, checkpointed=attempt.checkpointed()))


def _with_endings(sweep_dir: SweepDir, seen: Survey, logs: Iterable[WorkerLog]) -> Survey:
    """Add to the survey why runs died with their jobs, by the final states of these jobs.

    A run alone in a job that ran out of memory has failed. Of several runs the cause is unknown; they go on,
    each in a job of its own, and so do all runs that died of another cause.
    """
    holders = {log.token: log.holder for log in logs}
    told = {(one.run_id, one.attempt) for log in logs for one in log.events if one.kind == ENDED}
    died: dict[str, list[RunStatus]] = {}
    for status in seen.statuses.values():
        job = seen.jobs.get(status.token or "")
        if job is None or not job.state.final or status.unpaid:
            continue
        if status.state is RunState.INTERRUPTED:
            died.setdefault(str(status.token), []).append(status)
    statuses, endings = dict(seen.statuses), {}
    for token, victims in died.items():
        job, holder = seen.jobs[token], holders.get(token)
        reason = job.reason or _reason_in(sweep_dir.worker_output(token))
        if reason is None and (holder is None or holder.alive() is not None):
            continue  # nothing to prove, and nothing to add to what can be seen
        if reason is None:  # its worker's own word is better than that it is gone
            victims = [one for one in victims if (one.run_id, one.attempt) not in told]
        reason = reason or Reason.KILLED
        alone = reason is Reason.OUT_OF_MEMORY and len(victims) == 1
        for status in victims:
            failed = alone and status.attempt > status.forgiven
            state = RunState.FAILED if failed else RunState.INTERRUPTED
            message = f"its job ended: {job.text}"
            changed = replace(status, state=state, reason=reason, message=message)
            if status.attempt > status.forgiven:
                statuses[status.run_id] = changed
            endings[status.run_id] = End(state, reason, message, status.frames)
    return replace(seen, statuses=statuses, endings=endings)


def _reason_in(output: Path) -> Reason | None:
    """Why a job was killed, by what its output ends with: accounting may call it just failed."""
    try:
        with open_plain(output) as file:
            file.seek(max(0, output.stat().st_size - _TAIL))
            tail = file.read().decode(errors="replace").lower()
    except (DamagedFileError, OSError):
        return None
    return Reason.OUT_OF_MEMORY if any(words in tail for words in _NO_MEMORY) else None

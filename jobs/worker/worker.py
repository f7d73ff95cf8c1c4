"""``python -m jobs.worker RESULTS SWEEP TOKEN``: work through the runs of one job.

A single-threaded parent that keeps the trainer's modules loaded and forks one process per run; it waits for
signals, reads the messages of its runs, writes the journal, and never trains itself.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jobs.training.context import FENCED_EXIT, NOT_MINE_EXIT
from jobs.training.processes.process_tree import adopt_orphans, end_descendants
from jobs.training.records import provenance, result_figures
from jobs.worker.assignment import (
    Assignment,
    Availability,
    CrashLoop,
    Decisions,
    array_mates,
    find_job,
    pool_of,
    without_work,
)
from jobs.worker.capacity.budget_share import BudgetShare
from jobs.worker.capacity.slots import CoreReservations, Slots, own_cores
from jobs.worker.failures import end_of, storage_reason
from jobs.worker.leaving.exit import AGAIN, Exit
from jobs.worker.leaving.notices import Notices, Occasion
from jobs.worker.leaving.shutdown import Shutdown
from jobs.worker.leaving.submit_rest import submit_remaining
from jobs.worker.nodes.agent_connections import Agents
from jobs.worker.runs.preload import preload, remember_code
from jobs.worker.runs.run_handle import RunHandle
from jobs.worker.runs.run_process import Launch, fork_run
from jobs.worker.scheduler_job import SchedulerJob
from jobs.worker.signals import STOP_SIGNALS, grace_seconds
from orchestrator.config.trainers import get_trainer
from orchestrator.core import environment
from orchestrator.core.errors import DamagedFileError, FileServerError, OrchestrateError, StorageError
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Reason, RunState
from orchestrator.rundir import End, Event, Holder, Journal, Lease, SweepDir, tidy_finished
from orchestrator.rundir.copies.synced import require_own
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry

_POLL_S = 0.1
_LEDGER_INTERVAL_S = 1.0

# The journal's attempt number where this worker made no attempt.
_NO_ATTEMPT = 0


class Worker:
    """One job at work."""

    def __init__(
        self,
        sweep: SweepDir,
        submission: SubmissionEntry,
        job: Job,
        journal: Journal,
        scheduler_job: SchedulerJob,
    ) -> None:
        self._sweep, self._job, self._journal, self._scheduler_job = sweep, job, journal, scheduler_job
        self._cost = submission.cost
        self._budget = BudgetShare(job.allowance, _used(job, submission, journal))
        self._reservations = CoreReservations()
        self._slots = Slots(job, own_cores(job, self._reservations))
        self._notices = Notices(sweep, submission)
        self._agents = Agents(job.resources.nodes - 1)
        self._children: dict[int, RunHandle] = {}
        self._decisions = Decisions(sweep, submission.number)
        self._sizes = pool_of(submission, job)
        self._assignment = Assignment(sweep, self._sizes, self._decisions)
        self._preloaded: set[str] = set()
        self._commit = provenance.commit()
        self._unwritten: list[Event] = []
        self._next_ledger = 0.0
        self.exit = Exit(Shutdown(scheduler_job), self._assignment)
        self._unpaid_signalled = False
        self._checkpoint_interval_s = 0.0

    def run(self) -> int:
        """Work until nothing is left or the worker has to leave; return the exit code."""
        while True:
            self._read_ledger()
            self._start_runs()
            if self.exit.is_due(len(self._children)):
                break
            self._wait()
            self._attend()
            self._notices.attend()
        self._agents.close()
        data: dict[str, object] = {"why": self.exit.why, "asked": not self.exit.takes_runs}
        if self.exit.comes_back:
            data["again"] = True
        if self.exit.cause is not None:
            data["cause"] = self.exit.cause.value
        self._write(EXITED, data=data)
        self._notify_of_end()
        if self.exit.obstacle:
            say(f"job {self._job.token}: {self.exit.obstacle}")
        return self.exit.code

    def _notify_of_end(self) -> None:
        if self.exit.shutdown.unpaid:
            self._notices.send(Occasion.BUDGET, lambda: self.exit.why)
        elif self.exit.takes_runs:
            self._notices.send_end(self._assignment)
        self._notices.finish(hurry=not self.exit.takes_runs)

    # Starting runs

    def _start_runs(self) -> None:
        self._agents.attend()
        while self._slots.open and self.exit.takes_runs and self._agents_there():
            run_id = self._assignment.pop(self._fits)
            if run_id is None:
                return
            if not self._scheduler_job.has_time_for(self._checkpoint_interval_s):
                self._assignment.again(run_id)
                self.exit.shutdown.no_time_for_more()
                return
            if not self._budget.has_time_for(self._checkpoint_interval_s):
                self._assignment.again(run_id)
                self.exit.shutdown.unpaid_for_more(self._budget.why)
                return
            try:
                verdict = self._assignment.look(run_id)
                if verdict is Availability.READY:
                    self._start(run_id)
                elif verdict is Availability.HELD:
                    self._assignment.hold(run_id)
                elif verdict is Availability.LATER:
                    self._assignment.pause(run_id)
                elif isinstance(verdict, CrashLoop):
                    self._ended(run_id, verdict.attempt, verdict.end)
            except Exception as error:  # a fault of one run stops no other
                self._cannot_start(run_id, error)

    def _agents_there(self) -> bool:
        """Whether an agent waits on each other node of the job; leave if they do not come."""
        if missing := self._agents.missing:
            if self._agents.began:
                self.exit.shutdown.lost_nodes(missing)
            else:
                self.exit.no_agents = missing
        return self._agents.complete

    def _fits(self, run_id: str) -> bool:
        return self._slots.fits(self._sizes[run_id])

    def _start(self, run_id: str) -> None:
        run = self._sweep.run(run_id).description()
        if run.trainer not in self._preloaded:
            preload(run.trainer)
            self._preloaded.add(run.trainer)
        remember_code(run, self._sweep.results)
        silence = get_trainer(run.trainer).silence(run)
        leader = silence.who if silence is not None else RunHandle.leader
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        slot, members = self._slots.take(self._sizes[run_id]), self._agents.take()
        try:
            launch = Launch(self._sweep, run_id, self._job.token, slot, writing, self._commit)
            since, plugins, target = self._assignment.since(run_id), self._job.plugins, self._job.target
            last = self._decisions.last
            launch = replace(launch, plugins=plugins, since=since, ledger_read=last, target=target)
            pid = fork_run(replace(launch, members=members))
        except Exception as error:
            self._slots.release(slot)
            os.close(reading)
            if not isinstance(error, OSError) or error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            # No more processes or memory just now: no fault of the run.
            self.exit.no_process = f"could not start a process ({error.strerror})"
            self._assignment.hold(run_id)
            return
        finally:
            os.close(writing)
            for _, connection in members:  # the run's process has them now
                connection.close()
        self.exit.no_process = None
        self._children[pid] = RunHandle(pid, run_id, slot, reading, launch.memory, launch.life, leader)

    def _cannot_start(self, run_id: str, error: Exception) -> None:
        """Fail the run; if the tree takes no writes, stop the worker instead."""
        if storage_reason(error):
            self._look_at_storage()
        self._ended(run_id, _NO_ATTEMPT, end_of(error))

    # Waiting, and the work after each wait

    def _wait(self) -> None:
        """Wait for a message, the end of a run, or a moment. Signals stay blocked and are fetched.

        Not by ``signal.sigtimedwait``: stopped and continued, Python 3.11 returns a number that no signal
        has.
        """
        talking = [child for child in self._children.values() if not child.silent]
        select.select(talking, [], [], _POLL_S)
        while pending := signal.sigpending() & set(STOP_SIGNALS):
            self._on_stop_signal(signal.sigwait(pending))

    def _attend(self) -> None:
        now = time.monotonic()
        for child in list(self._children.values()):
            if now > min(self.exit.shutdown.kill_at, child.kill_at):
                child.kill()
            gone = child.reap()
            child.read()
            self._checkpoint_interval_s = max(self._checkpoint_interval_s, child.checkpoint_interval)
            if child.attempt is not None and not child.announced:
                child.announced = self.exit.began = True
                self._assignment.changed()
                self._write(CLAIMED, child.run_id, child.attempt)
            if progress := child.take_progress(now):
                self._write(PROGRESS, child.run_id, child.attempt, progress)
            if gone:
                child.close()
                del self._children[child.pid]
                self._slots.release(child.slot)
                self._agents.wait_again()
                self._reaped(child)

    def _on_stop_signal(self, number: int, *, relayed: bool = False) -> None:
        self.exit.shutdown.on_signal(number, relayed=relayed)
        self._signal_runs(number)

    def _signal_runs(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)

    def _read_ledger(self) -> None:
        if time.monotonic() < self._next_ledger:
            return
        self._next_ledger = time.monotonic() + _LEDGER_INTERVAL_S
        for number in self.exit.shutdown.letters():
            self._on_stop_signal(number, relayed=True)
        if not self._budget.has_time_for(0.0) and not self._unpaid_signalled:
            self._unpaid_signalled = True
            self._signal_runs(self.exit.shutdown.unpaid_altogether(self._budget.why))
        with suppress(OSError):  # a file server that failed: the next look is in a second
            self._decisions.refresh()
        if self._job.allowance is not None:
            price = self._decisions.prices.get(self._job.token)
            self._budget.limit(self._cost.allowance(self._cost.lifetime(self._job.allowance, price)))
        for child in self._children.values():
            if self._decisions.of(child.run_id).cancelled and not child.cancelled:
                child.cancelled = True
                child.kill_at = time.monotonic() + grace_seconds(signal.SIGTERM)
                child.signal(signal.SIGTERM)

    # The ends of runs

    def _reaped(self, child: RunHandle) -> None:
        if child.exit_code == NOT_MINE_EXIT:
            self._assignment.hold(child.run_id)
            return
        try:
            if child.exit_code < 0:  # perhaps its keeper was killed, and what it kept is left
                end_descendants(spare=self._children)
            end = self._end_of(child)
        except Exception as error:  # as in _start_runs()
            end = end_of(error)
        if end.reason in (Reason.DISK_FULL, Reason.STORAGE):
            self._look_at_storage()
        self._ended(child.run_id, child.attempt or _NO_ATTEMPT, end, cancelled=child.cancelled)
        if child.exit_code == FENCED_EXIT or (end.reason is Reason.KILLED and child.attempt is None):
            self._assignment.hold(child.run_id)
        elif end.reason in (Reason.KILLED, Reason.STORAGE) and child.attempt and self.exit.takes_runs:
            self._assignment.again(child.run_id)
        elif end.outcome is RunState.INTERRUPTED and not child.cancelled:
            self.exit.interrupted += 1

    def _look_at_storage(self) -> None:
        """Test the tree after a run found no room: if it takes no writes at all, the worker has to leave."""
        try:
            self._sweep.check_writable()
        except StorageError as error:
            self.exit.storage_error = f"{error}; {error.hint}"

    def _end_of(self, child: RunHandle) -> End:
        """Return how the attempt ended; record it if the run's process died without doing so."""
        run_dir = self._sweep.run(child.run_id)
        if child.attempt is None:
            return self._without_a_record(child)
        attempt = run_dir.attempt(child.attempt)
        result = run_dir.result()
        if result is not None and result.attempt == child.attempt:
            tidy_finished(run_dir, result)  # its process may have died before it did
            end = End(RunState.DONE, frames=child.frames)  # a failure after publication does not count
        elif child.exit_code == FENCED_EXIT:
            return End(RunState.INTERRUPTED, None, "lost its claim to another worker and left", child.frames)
        elif (record := attempt.end()) is not None:
            return record
        else:
            end = self._without_a_record(child)
        end = replace(end, checkpointed=attempt.checkpointed())
        # Not beside an existing record: its reader may be tidying the attempt's folder by now.
        if not attempt.end_path.exists():
            attempt.write_end(end)
        return end

    def _without_a_record(self, child: RunHandle) -> End:
        if child.end is not None:
            return child.end
        reason, cause = Reason.KILLED, child.cause_of_death()
        if child.killed_by_us:
            reason, cause = Reason.TIME_LIMIT, "did not leave within its grace and was killed"
            if child.cancelled or not self.exit.shutdown.out_of_time:
                return End(RunState.INTERRUPTED, Reason.STOPPED, cause)
        elif child.out_of_memory():
            return End(RunState.FAILED, Reason.OUT_OF_MEMORY, "killed for want of memory", child.frames)
        end = End(RunState.INTERRUPTED, reason, cause, child.frames)
        return self._assignment.judged(child.run_id, child.attempt, end) if child.attempt else end

    def _ended(self, run_id: str, attempt: int, end: End, *, cancelled: bool = False) -> None:
        data: dict[str, object] = plain(end)
        if end.outcome is RunState.DONE:
            data |= self._result_data(run_id)
        elif cancelled:
            data |= {"outcome": RunState.CANCELLED.value, "reason": None, "message": "cancelled"}
        elif end.outcome is RunState.INTERRUPTED and self.exit.shutdown.unpaid:
            data |= {"reason": Reason.BUDGET.value, "message": self.exit.shutdown.why}
        elif end.reason is Reason.STOPPED and self.exit.shutdown.preempted:
            data |= {"reason": Reason.PREEMPTED.value, "message": "its job was given back to the queue"}
        elif end.outcome is RunState.FAILED:
            self.exit.failed += 1
            self.exit.wants_more |= end.reason is Reason.OUT_OF_MEMORY
            why = f"{end.reason.value}: {end.message}" if end.reason else end.message
            self._notices.send(Occasion.FAILURE, lambda: f"run {run_id} failed: {why}")
        self._assignment.changed()
        self._write(ENDED, run_id, attempt, data)

    def _result_data(self, run_id: str) -> dict[str, object]:
        try:
            result = self._sweep.run(run_id).result()
            return {} if result is None else result_figures.ended(result)
        except DamagedFileError:
            return {}

    # The journal

    def _write(
        self,
        kind: str,
        run_id: str | None = None,
        attempt: int | None = None,
        data: dict[str, object] | None = None,
    ) -> None:
        """Write to the journal. While the disk takes nothing, keep all but progress for later."""
        if kind != PROGRESS or not self._unwritten:
            self._unwritten.append(Event(kind, time.time(), run_id, attempt, data or {}, Lease.clock()))
        try:
            while self._unwritten:
                self._journal.append(self._unwritten[0])
                del self._unwritten[0]
        except StorageError as error:
            if not isinstance(error, FileServerError):
                self.exit.storage_error = f"{error}; {error.hint}"
            self._unwritten = [event for event in self._unwritten if event.kind != PROGRESS]


def _used(job: Job, submission: SubmissionEntry, journal: Journal) -> float:
    """Return the seconds of its share that a job has used: a rented machine's count from its request."""
    if job.allowance is None:
        return 0.0
    if submission.cost.hold is not None:
        return max(0.0, time.time() - submission.time)
    return journal.read().worked()


def work(results: Path, name: str, token: str) -> int:
    """Take the job's token and work through its runs; return 0 if another worker has the token."""
    sweep = SweepDir.existing(results, name)
    require_own(sweep)
    submission, job = find_job(sweep, token)
    scheduler_job = SchedulerJob.current()
    adopt_orphans()
    started = Event(
        STARTED,
        time.time(),
        data={"holder": plain(Holder.current()), "slots": job.slots, "host": provenance.host()},
        up=Lease.clock(),
    )
    journal = sweep.take_token(token, started)
    if journal is None:
        say(f"job {token} of sweep {name!r} was taken by another worker: nothing to do here")
        return 0
    scheduler_job.begin()
    worker = Worker(sweep, submission, job, journal, scheduler_job)
    code, left = worker.run(), worker.exit
    if left.found_nothing_more and scheduler_job.job_id is not None:
        mates = array_mates(submission, job)
        begun = sweep.begun(mates) if job.steals else set(mates)
        unbegun = [one for one in mates if one not in begun]
        shared = job.steals or len(mates) == 1  # else there may be thousands that end, each for itself
        useless = without_work(sweep, submission, job, scheduler_job.requeued() if shared else ())
        scheduler_job.dismiss([*scheduler_job.mates(unbegun), *useless])
    if left.may_submit_rest:
        submit_remaining(sweep, token, scheduler_job, wanted=left.wants_more)
    if code != AGAIN:  # else its script may have to report a failed requeue
        _remove_if_empty(sweep.worker_output(token))
    return code


def _remove_if_empty(output: Path) -> None:
    try:
        if output.stat().st_size == 0:
            output.unlink()
    except OSError:
        pass


def say(text: str) -> None:
    """Print a line for users."""
    sys.stderr.write(text + "\n")


def main(arguments: list[str]) -> int:
    """Run the worker named by the arguments; return the exit code."""
    if len(arguments) != 3:
        say("usage: python -m jobs.worker RESULTS SWEEP TOKEN")
        return 2
    return run_command(lambda: work(Path(arguments[0]), arguments[1], arguments[2]))


def run_command(command: Callable[[], int]) -> int:
    """Call a command that works through runs; return its exit code, that of an error after its message."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that was ignored would reap the runs by itself
    try:
        environment.require_usable()
        return command()
    except OrchestrateError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        say(f"error: {error}{hint}")
        return error.exit_code

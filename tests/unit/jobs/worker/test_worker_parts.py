"""A worker's single steps, without a process."""

from __future__ import annotations

import errno
import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.worker import scheduler_job, worker
from jobs.worker.assignment import find_job
from jobs.worker.capacity.slots import Slot
from jobs.worker.leaving.shutdown import Shutdown
from jobs.worker.runs.run_handle import RunHandle
from jobs.worker.scheduler_job import SchedulerJob, SlurmJob
from jobs.worker.worker import Worker
from orchestrator.core.records import plain
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Claim, End, Event, Holder, RunDir, SweepDir
from orchestrator.rundir.records.journal import STARTED
from tests.helpers import command_run, events, make_sweep, submit


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    return make_sweep(results, [command_run(["-c", "pass"])])


@pytest.fixture
def run(sweep: SweepDir) -> RunDir:
    return sweep.run(sweep.run_ids()[0])


@pytest.fixture
def at_work(sweep: SweepDir) -> Iterator[Worker]:
    submission, job = find_job(sweep, submit(sweep).token)
    started = Event(STARTED, time.time(), data={"holder": plain(Holder.current())})
    journal = sweep.take_token(job.token, started)
    assert journal is not None
    worker = Worker(sweep, submission, job, journal, SchedulerJob())
    yield worker
    for reservation in worker._reservations.held:
        reservation.close()


def dead_child(run: RunDir, attempt: int | None, code: int) -> RunHandle:
    reading, writing = os.pipe()
    os.close(writing)
    return RunHandle(1, run.run_id, Slot(0, (0,)), reading, attempt=attempt, status=code << 8)


def test_a_process_that_cannot_be_started_fails_no_run(
    at_work: Worker, sweep: SweepDir, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(worker, "fork_run", refuse)
    gc.collect()  # files of earlier tests close now, not meanwhile
    before = os.listdir("/proc/self/fd")
    at_work._start_runs()
    assert len(os.listdir("/proc/self/fd")) == len(before), "a pipe stayed open"
    assert list(at_work._assignment.held) == [run.run_id]
    assert not [kind for kind, _, _ in events(sweep) if kind == "ended"]
    assert "could not start a process" in at_work.exit.why


def test_of_what_it_could_not_take_a_worker_names_no_attempt(
    at_work: Worker, sweep: SweepDir, run: RunDir
) -> None:
    """Another worker may be at the run's newest attempt, or have finished it."""
    assert run.take(Claim.fresh("another worker")) is not None
    at_work._cannot_start(run.run_id, ValueError("something of this worker's own"))
    at_work._reaped(dead_child(run, None, 1))
    told = [(attempt, data["outcome"]) for kind, attempt, data in events(sweep) if kind == "ended"]
    assert told == [(0, "failed"), (0, "interrupted")]


@pytest.mark.parametrize("code", [worker.FENCED_EXIT, 1])
def test_what_is_published_is_done_whatever_its_process_said(at_work: Worker, run: RunDir, code: int) -> None:
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    assert run.publish({"attempt": 1}, [])
    attempt.write_end(End(RunState.FAILED, Reason.DISK_FULL))
    assert at_work._end_of(dead_child(run, 1, code)).outcome is RunState.DONE


def test_beside_an_end_record_nothing_is_written(at_work: Worker, run: RunDir) -> None:
    """Another worker that sees it tidies the folder, a record that is being written included."""
    attempt = run.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    assert run.publish({"attempt": 1}, [])
    attempt.write_end(End(RunState.DONE))
    before = attempt.path.stat().st_mtime_ns
    assert at_work._end_of(dead_child(run, 1, 0)).outcome is RunState.DONE
    assert attempt.path.stat().st_mtime_ns == before, "something was created there, if only for a moment"


def warned(worker: Worker, monkeypatch: pytest.MonkeyPatch, ends: float) -> None:
    """In a job of a scheduler that ends in so many seconds, of which the last 60 are its warning."""
    job = SlurmJob("123_4", ends=time.time() + ends, warning=60)
    monkeypatch.setattr(worker, "_scheduler_job", job)
    monkeypatch.setattr(worker.exit, "shutdown", Shutdown(job))
    worker.exit.shutdown.on_signal(signal.SIGUSR1)


def test_a_job_too_short_for_any_run_does_not_come_back(
    at_work: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    warned(at_work, monkeypatch, ends=70)
    assert at_work.run() == 130
    assert not at_work.exit.may_submit_rest
    assert "more `time`" in at_work.exit.why
    assert at_work.exit.why in capfd.readouterr().err


def test_a_job_preempted_at_its_beginning_comes_back(
    at_work: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned(at_work, monkeypatch, ends=3600)
    assert at_work.run() == 75


@pytest.mark.parametrize(("scheduler", "feeds"), [("Requeue=1 Restarts=0", False), ("Requeue=0", True)])
def test_a_job_that_began_something_comes_back(
    at_work: Worker, monkeypatch: pytest.MonkeyPatch, scheduler: str, feeds: bool
) -> None:
    """And submits nothing before, unless its site gives no job back: another one goes on."""
    monkeypatch.setattr(scheduler_job, "_ask", lambda _: scheduler)
    warned(at_work, monkeypatch, ends=70)
    at_work.exit.began = True
    assert at_work.run() == 75
    assert at_work.exit.may_submit_rest is feeds


def test_a_job_that_somebody_ended_neither_comes_back_nor_submits(
    at_work: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned(at_work, monkeypatch, ends=70)
    at_work.exit.began = True
    at_work.exit.shutdown.on_signal(signal.SIGTERM)
    assert at_work.run() == 130
    assert not at_work.exit.may_submit_rest


@pytest.mark.parametrize(("ends", "reason"), [(70, Reason.TIME_LIMIT), (3600, Reason.STOPPED)])
def test_who_outstays_its_grace_at_the_time_limit_was_short_of_time(
    at_work: Worker, run: RunDir, monkeypatch: pytest.MonkeyPatch, ends: float, reason: Reason
) -> None:
    """The third time it is given up; somebody else's preemption never counts."""
    warned(at_work, monkeypatch, ends)
    told = []
    for number in (1, 2, 3):
        assert run.take(Claim.fresh("0001-0001")) is not None
        child = dead_child(run, number, 1)
        child.killed_by_us = True
        end = at_work._end_of(child)
        told.append((end.outcome, end.reason))
    last = RunState.FAILED if reason is Reason.TIME_LIMIT else RunState.INTERRUPTED
    assert told == [(RunState.INTERRUPTED, reason)] * 2 + [(last, reason)]

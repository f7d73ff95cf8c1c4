"""A worker's single steps, without a process."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import worker
from jobs.attending import Child
from jobs.slots import Slot
from jobs.worker import Worker
from orchestrator.rundir import Claim, Event, Holder, RunDir, SweepDir
from orchestrator.rundir.journal import STARTED
from orchestrator.types import RunState
from tests.helpers import command_run, events, make_sweep, submit


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    return make_sweep(results, [command_run(["-c", "pass"])])


@pytest.fixture
def run(sweep: SweepDir) -> RunDir:
    return sweep.run(sweep.run_ids()[0])


@pytest.fixture
def at_work(sweep: SweepDir) -> Iterator[Worker]:
    job = submit(sweep)
    started = Event(STARTED, time.time(), data={"holder": Holder.current().to_json()})
    journal = sweep.take_token(job.token, started)
    assert journal is not None
    worker = Worker(sweep, job, journal)
    yield worker
    for reservation in worker._reservations.held:
        reservation.close()


def dead_child(run: RunDir, attempt: int | None, code: int) -> Child:
    reading, writing = os.pipe()
    os.close(writing)
    return Child(1, run.run_id, Slot(0, (0,)), reading, attempt=attempt, status=code << 8)


def test_a_process_that_cannot_be_started_fails_no_run(
    at_work: Worker, sweep: SweepDir, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(worker, "fork_run", refuse)
    before = os.listdir("/proc/self/fd")
    at_work._start_runs()
    assert len(os.listdir("/proc/self/fd")) == len(before), "a pipe stayed open"
    assert list(at_work._assignment.held) == [run.run_id]
    assert not [kind for kind, _, _ in events(sweep) if kind == "ended"]
    assert "could not start a process" in at_work._why()


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
    attempt.write_end({"outcome": "failed", "reason": "disk full"})
    assert at_work._end_of(dead_child(run, 1, code)).outcome is RunState.DONE

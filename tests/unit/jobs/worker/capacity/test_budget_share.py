"""A job's share of a budget, as its worker counts it."""

from __future__ import annotations

import signal
import time

import pytest

from jobs.worker.capacity import budget_share
from jobs.worker.capacity.budget_share import BudgetShare
from jobs.worker.leaving.shutdown import Shutdown
from jobs.worker.scheduler_job import SlurmJob
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Job, Resources
from orchestrator.rundir import Event, WorkerLog
from orchestrator.rundir.records.journal import EXITED, PROGRESS, STARTED


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budget_share, "time", clock)
    return clock


def test_a_job_without_one_works_as_long_as_it_can(clock: Clock) -> None:
    free = BudgetShare(None)
    clock.now += 1e9
    assert free.has_time_for(1e9)


def test_it_ends_early_enough_to_leave_and_counts_what_was_worked_before(clock: Clock) -> None:
    share = BudgetShare(3600.0, worked=600.0)
    clock.now += 2969
    assert share.has_time_for(0.0)
    assert not share.has_time_for(2.0)
    clock.now += 1
    assert not share.has_time_for(0.0)
    assert "3,600 s" in share.why


def test_one_used_up_before_it_begins_pays_for_nothing(clock: Clock) -> None:
    assert not BudgetShare(10.0, worked=11.0).has_time_for(0.0)


def test_a_worker_that_is_not_paid_any_more_neither_comes_back_nor_feeds() -> None:
    shutdown = Shutdown(SlurmJob("123_4"))
    shutdown.unpaid_for_more("share used up")
    assert (shutdown.unpaid, shutdown.stopped, shutdown.warned) == (True, True, False)
    assert shutdown.kill_at == float("inf")
    assert shutdown.unpaid_altogether("share used up") == signal.SIGUSR1
    assert 50 < shutdown.kill_at - time.monotonic() <= 60
    assert shutdown.why == "share used up"


def test_times_of_a_job_that_was_given_back_add_up() -> None:
    holder = {"holder": {}}
    log = WorkerLog(
        "0001-0001",
        (
            Event(STARTED, 100.0, data=holder),
            Event(EXITED, 160.0),
            Event(STARTED, 1000.0, data=holder),
            Event(PROGRESS, 1030.0),
        ),
    )
    assert log.worked() == 90.0
    assert log.worked(until=1040.0) == 100.0
    assert log.worked(until=5.0) == 90.0


def test_an_allowance_is_read_as_it_was_written() -> None:
    paid = Job("0001-0001", "s", "local", ("a",), 1, Resources(), allowance=2.5)
    assert parse(Job, plain(paid)) == paid

"""How long attempts took, start-up and undone work included."""

from __future__ import annotations

from orchestrator.core.records import plain
from orchestrator.rundir import Event, Holder, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.status.run_times import attempt_times

RUN, OTHER = "a" * 16, "b" * 16


def log(token: str, *events: tuple[str, float, str | None, int | None]) -> WorkerLog:
    holder = {"holder": plain(Holder("host", "boot", "pid:[1]", 42, 1000))}
    parsed = (
        Event(kind, at, run, attempt, {"outcome": "done"} if kind == ENDED else {})
        for kind, at, run, attempt in events
    )
    return WorkerLog(token, (Event(STARTED, 0.0, data=holder), *parsed))


def test_each_attempt_counts_from_its_claim_to_its_end() -> None:
    killed = log("0001-0001", (CLAIMED, 10, RUN, 1), (PROGRESS, 50, RUN, 1), (PROGRESS, 80, OTHER, 3))
    done = log("0002-0001", (CLAIMED, 1000, RUN, 2), (ENDED, 1090, RUN, 2), (EXITED, 1200, None, None))
    assert attempt_times([killed, done]) == {RUN: {1: (70.0, False), 2: (90.0, True)}}


def test_an_attempt_without_a_claim_on_record_has_no_time() -> None:
    assert attempt_times([log("0001-0001", (ENDED, 20, RUN, 0)), WorkerLog("0002-0001", ())]) == {}

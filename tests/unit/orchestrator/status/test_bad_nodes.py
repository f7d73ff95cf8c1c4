"""Machines that fail what they are given, and what is made good elsewhere."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.records import plain
from orchestrator.core.types import Capacity, Reason, RunState, Sweep
from orchestrator.planning.auto_retry import second_chances
from orchestrator.rundir import Event, Holder, IndexRow, WorkerLog
from orchestrator.rundir.records.journal import ENDED, PROGRESS, STARTED
from orchestrator.status.bad_nodes import failing_machines
from orchestrator.status.survey import RunStatus, Survey, retried

RUNS = [BENCHMARL.identify({"algorithm": "mappo"}, seed, 1) for seed in range(8)]
IDS = [run.run_id for run in RUNS]
ROWS = [IndexRow(run.run_id, True, run.point) for run in RUNS]
CAPACITY = Capacity("c", cores=4, gpus=0, mem="8G", array_size=10, max_mem="16G", can_avoid=True)
NOW = 100.0


def log(machine: str, *events: Event) -> WorkerLog:
    holder = Holder(machine, "boot", "pid:[1]", 42, 1000)
    started = Event(
        STARTED,
        0.0,
        data={"holder": plain(holder), "host": {"hostname": f"{machine}.example.org", "node": machine}},
    )
    return WorkerLog(machine, (started, *events))


def end(run: int, outcome: RunState, at: float, reason: str | None = "code error") -> Event:
    return Event(ENDED, at, IDS[run], 1, {"outcome": outcome.value, "reason": reason})


def failures(*runs: int, reason: str = "code error") -> list[Event]:
    return [end(run, RunState.FAILED, 1.0 + run, reason) for run in runs]


def done(run: int, at: float = 9.0) -> Event:
    return end(run, RunState.DONE, at, None)


def test_a_machine_that_fails_what_others_finish_is_to_be_avoided() -> None:
    found = failing_machines(ROWS, [log("bad", *failures(0, 1, 2)), log("good", done(3))], NOW)
    assert found == {"bad": {IDS[0]: 1, IDS[1]: 1, IDS[2]: 1}}


def test_getting_on_elsewhere_is_no_proof() -> None:
    """All of them may fail at their end."""
    progress = Event(PROGRESS, 0.5, IDS[3], 1, {"frames": 100})
    assert not failing_machines(ROWS, [log("bad", *failures(0, 1, 2)), log("good", progress)], NOW)


def test_after_a_day_a_machine_gets_another_chance() -> None:
    logs = [log("bad", *failures(0, 1, 2)), log("good", done(3))]
    assert failing_machines(ROWS, logs, 24 * 3600.0)
    assert not failing_machines(ROWS, logs, 24 * 3600.0 + 9)


def test_only_machines_that_a_scheduler_named_can_be_avoided() -> None:
    started = Event(STARTED, 0.0, data={"host": {"hostname": "laptop", "node": None}})
    here = WorkerLog("laptop", (started, *failures(0, 1, 2)))
    assert not failing_machines(ROWS, [here, log("good", done(3))], NOW)


def test_what_fails_everywhere_is_no_machines_fault() -> None:
    assert not failing_machines(ROWS, [log("one", *failures(0, 1, 2)), log("other", *failures(3, 4, 5))], NOW)
    assert not failing_machines(ROWS, [log("one", *failures(0, 1, 2))], NOW)


def test_two_failures_or_one_success_since_acquit_it() -> None:
    good = log("good", done(7))
    assert not failing_machines(ROWS, [log("one", *failures(0, 1)), good], NOW)
    assert not failing_machines(ROWS, [log("one", *failures(0, 1, 2), done(3)), good], NOW)
    assert not failing_machines(ROWS, [log("one", *failures(0, 1, 2, reason="bad config")), good], NOW)


def test_other_configurations_prove_nothing() -> None:
    other = BENCHMARL.identify({"algorithm": "iql"}, 0, 1)
    rows = [*ROWS, IndexRow(other.run_id, True, other.point)]
    elsewhere = Event(ENDED, 9.0, other.run_id, 1, {"outcome": "done"})
    assert not failing_machines(rows, [log("one", *failures(0, 1, 2)), log("other", elsewhere)], NOW)


def survey_of(*statuses: RunStatus) -> Survey:
    known = {status.run_id: status for status in statuses}
    all_of_them = {run_id: known.get(run_id, RunStatus(run_id)) for run_id in IDS}
    return Survey(ROWS, all_of_them, frozenset(), bad_machines={"bad": {IDS[1]: 1}})


SWEEP = Sweep("s", "benchmarl", tuple(RUNS), "text")


def test_want_of_memory_and_a_bad_machine_are_made_good_once() -> None:
    starved = RunStatus(IDS[0], RunState.FAILED, attempt=1, reason=Reason.OUT_OF_MEMORY)
    unlucky = RunStatus(IDS[1], RunState.FAILED, attempt=1, reason=Reason.CODE_ERROR)
    wrong = RunStatus(IDS[2], RunState.FAILED, attempt=1, reason=Reason.CODE_ERROR)
    seen = survey_of(starved, unlucky, wrong)
    chances = second_chances(SWEEP, seen, CAPACITY)
    assert [(entry.kind, entry.runs) for entry in chances] == [
        ("memory", {IDS[0]: 1}),
        ("retry", {IDS[1]: 1}),
    ]
    then = retried(seen, chances)
    assert then.statuses[IDS[0]].state is then.statuses[IDS[1]].state is RunState.PENDING
    assert then.statuses[IDS[0]].more_memory
    assert then.statuses[IDS[2]].state is RunState.FAILED
    assert second_chances(SWEEP, then, CAPACITY) == []
    unlucky_again = replace(unlucky, attempt=2, forgiven=1)
    again = survey_of(replace(starved, attempt=2, more_memory=True), unlucky_again)
    again = replace(again, bad_machines={"bad": {IDS[1]: 2}})
    assert second_chances(SWEEP, again, CAPACITY) == [], "failed with more, and failed elsewhere too"


def test_where_no_machine_can_be_avoided_nobody_tries_again() -> None:
    unlucky = RunStatus(IDS[1], RunState.FAILED, attempt=1, reason=Reason.CODE_ERROR)
    assert second_chances(SWEEP, survey_of(unlucky), replace(CAPACITY, can_avoid=False)) == []


def test_where_there_is_no_more_memory_nobody_tries_again() -> None:
    starved = RunStatus(IDS[0], RunState.FAILED, attempt=1, reason=Reason.OUT_OF_MEMORY)
    assert second_chances(SWEEP, survey_of(starved), replace(CAPACITY, max_mem=None)) == []
    assert second_chances(SWEEP, survey_of(starved), replace(CAPACITY, max_mem="8G")) == []

"""One table of histories and states, as `status` sees them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources, RunState
from orchestrator.rundir import Event, Holder, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import survey
from tests.helpers import command_run, enter, make_sweep

NOW, LEASE = 1_700_000_000.0, 300.0
RUN = command_run(["-c", "pass"])
# An event of the worker, or a ledger entry: its kind and what it says of the run.
Step = Event | tuple[str, Any]


def claimed(attempt: int = 1, at: float = 60) -> Event:
    return Event(CLAIMED, NOW - at, RUN.run_id, attempt)


def ended(outcome: str, attempt: int = 1) -> Event:
    return Event(ENDED, NOW - 20, RUN.run_id, attempt, {"outcome": outcome})


def progress(at: float, attempt: int = 1) -> Event:
    return Event(PROGRESS, NOW - at, RUN.run_id, attempt, {"frames": 1})


LEFT = Event(EXITED, NOW - 10)
AGAIN = plain(Job("0002-0001", "tiny", "local", (RUN.run_id,), 1, Resources()))
SUBMITTED = ("submission", {"jobs": [AGAIN], "job_ids": {}, "skipped": {}})
SKIPPED = ("submission", {"jobs": [], "job_ids": {}, "skipped": {RUN.run_id: "needs a GPU"}})
CANCEL, RETRY, MEMORY, LOST = ("cancel", 1), ("retry", 1), ("memory", 1), ("lost", 1)
FOUND, FAILED = ("found", {"attempt": 1}), ("ended", {"attempt": 1, "message": "node lost"})
RUNNING = claimed()


@pytest.fixture(scope="module")
def holders() -> dict[str, Holder]:
    gone = subprocess.Popen(["sleep", "60"])
    dead = Holder.of(gone.pid)
    gone.kill()
    gone.wait()
    return {
        "alive": Holder.of(os.getpid()),
        "dead": dead,
        "elsewhere": Holder("node7", "other boot", "pid:[1]", 4711, 99),
    }


@pytest.mark.parametrize(
    ("holder", "steps", "state"),
    [
        ("alive", [], RunState.PENDING),
        ("alive", [SKIPPED], RunState.SKIPPED),
        ("alive", [SKIPPED, RETRY], RunState.PENDING),
        ("alive", [SKIPPED, CANCEL, RETRY], RunState.PENDING),
        ("alive", [SKIPPED, SUBMITTED], RunState.QUEUED),
        ("alive", [SKIPPED, RETRY, SKIPPED], RunState.SKIPPED),
        ("alive", [SKIPPED, RETRY, SKIPPED, RETRY], RunState.PENDING),
        ("alive", [SKIPPED, RETRY, SKIPPED, SUBMITTED], RunState.QUEUED),
        ("alive", [SKIPPED, CANCEL, RETRY, SKIPPED], RunState.SKIPPED),
        ("alive", [RUNNING, RETRY, SKIPPED], RunState.RUNNING),
        ("alive", [RUNNING, CANCEL, RETRY, SKIPPED], RunState.SKIPPED),
        ("alive", [RUNNING, ended("failed"), RETRY, SKIPPED], RunState.SKIPPED),
        ("alive", [RUNNING, ended("done"), LOST, SKIPPED], RunState.SKIPPED),
        ("alive", [RUNNING, SKIPPED], RunState.RUNNING),
        ("alive", [RUNNING], RunState.RUNNING),
        ("dead", [RUNNING], RunState.INTERRUPTED),
        ("alive", [RUNNING, LEFT], RunState.INTERRUPTED),
        ("alive", [claimed(at=500)], RunState.STALLED),
        ("alive", [claimed(at=2000), progress(1500), progress(900)], RunState.RUNNING),
        ("alive", [claimed(at=9000), progress(8990), progress(8980)], RunState.STALLED),
        ("elsewhere", [RUNNING], RunState.UNKNOWN),
        ("elsewhere", [RUNNING, LEFT], RunState.INTERRUPTED),
        ("alive", [RUNNING, ended("done")], RunState.DONE),
        ("dead", [RUNNING, ended("failed")], RunState.FAILED),
        ("dead", [RUNNING, ended("interrupted")], RunState.INTERRUPTED),
        ("alive", [RUNNING, ended("failed", 0)], RunState.RUNNING),
        ("alive", [ended("failed", 0)], RunState.FAILED),
        ("alive", [claimed(2), ended("failed", 1)], RunState.RUNNING),
        ("alive", [RUNNING, CANCEL], RunState.CANCELLED),
        ("alive", [RUNNING, CANCEL, ended("cancelled")], RunState.CANCELLED),
        ("alive", [RUNNING, CANCEL, ended("done")], RunState.DONE),
        ("alive", [RUNNING, CANCEL, ended("done"), LOST], RunState.PENDING),
        ("alive", [RUNNING, ended("done"), CANCEL], RunState.DONE),
        ("alive", [RUNNING, ended("done"), CANCEL, LOST], RunState.PENDING),
        ("alive", [RUNNING, CANCEL, RETRY], RunState.PENDING),
        ("alive", [RUNNING, CANCEL, RETRY, ended("cancelled")], RunState.PENDING),
        ("alive", [RUNNING, CANCEL, ended("cancelled"), RETRY], RunState.PENDING),
        ("alive", [RUNNING, CANCEL, ended("cancelled"), RETRY, claimed(2)], RunState.RUNNING),
        ("alive", [RUNNING, CANCEL, RETRY, claimed(2), ended("failed", 2)], RunState.FAILED),
        ("alive", [RUNNING, CANCEL, RETRY, claimed(2), CANCEL], RunState.CANCELLED),
        ("alive", [RUNNING, ended("failed"), RETRY], RunState.PENDING),
        ("alive", [RUNNING, ended("failed"), MEMORY], RunState.PENDING),
        ("alive", [RUNNING, ended("done"), RETRY], RunState.PENDING),
        ("alive", [RUNNING, RETRY], RunState.RUNNING),
        ("alive", [RUNNING, ended("interrupted"), RETRY], RunState.INTERRUPTED),
        ("alive", [claimed(2), ended("failed", 2), RETRY], RunState.FAILED),
        ("dead", [RUNNING, FOUND], RunState.DONE),
        ("dead", [RUNNING, CANCEL, FOUND], RunState.DONE),
        ("dead", [RUNNING, CANCEL, FOUND, LOST], RunState.PENDING),
        ("alive", [claimed(2), FOUND], RunState.DONE),
        ("dead", [claimed(2), ended("failed", 2), FOUND], RunState.DONE),
        ("dead", [RUNNING, ended("done"), claimed(2)], RunState.DONE),
        ("dead", [RUNNING, ended("done"), claimed(2), ended("interrupted", 2)], RunState.DONE),
        ("dead", [claimed(2), ended("interrupted", 2), ended("done")], RunState.DONE),
        ("alive", [RUNNING, ended("done"), RETRY, claimed(2)], RunState.RUNNING),
        ("alive", [RUNNING, ended("done"), LOST, claimed(2)], RunState.RUNNING),
        ("alive", [RUNNING, ended("done"), LOST, claimed(2), FOUND], RunState.DONE),
        ("alive", [RUNNING, FOUND, RETRY, claimed(2)], RunState.RUNNING),
        ("dead", [RUNNING, FAILED], RunState.FAILED),
        ("dead", [RUNNING, FAILED, RETRY], RunState.PENDING),
        ("dead", [RUNNING, ended("failed"), RETRY, FAILED], RunState.PENDING),
        ("dead", [RUNNING, CANCEL, FAILED], RunState.CANCELLED),
        ("alive", [RUNNING, ended("done"), FAILED], RunState.DONE),
        ("alive", [claimed(2), FAILED], RunState.RUNNING),
    ],
)
def test_the_state_after_a_history(
    results: Path, holders: dict[str, Holder], holder: str, steps: list[Step], state: RunState
) -> None:
    sweep = make_sweep(results, [RUN])
    started = Event(STARTED, NOW - 9999, data={"holder": plain(holders[holder]), "slots": 1})
    path = sweep.path / "journals" / "0001-0001.jsonl"
    path.write_bytes(started.to_line())
    for step in steps:
        write(sweep, path, step)
    fold = survey(
        sweep.read_index(),
        sweep.read_ledger(),
        sweep.read_journals(),
        Moment(Holder.alive, NOW, LEASE),
    )
    assert fold.statuses[RUN.run_id].state is state


def write(sweep: SweepDir, path: Path, step: Step) -> None:
    if isinstance(step, Event):
        with open(path, "ab") as file:
            file.write(step.to_line())
        return
    kind, said = step
    data = {"time": NOW, **said} if kind == "submission" else {"time": NOW, "runs": {RUN.run_id: said}}
    enter(sweep, kind, data)

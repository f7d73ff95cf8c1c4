"""What a worker may take, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.worker.assignment import Assignment, Availability, CrashLoop, Decisions
from orchestrator.core.types import Reason, Run, RunState
from orchestrator.rundir import AttemptDir, Claim, End, Holder, RunDir, SweepDir
from tests.helpers import enter, make_sweep, submit

RUN = Run("0" * 16, "command", {"command": ["true"]})


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    return make_sweep(results, [RUN])


def look(sweep: SweepDir, submission: int = 1) -> object:
    decisions = Decisions(sweep, submission)
    decisions.refresh()
    return Assignment(sweep, [RUN.run_id], decisions).look(RUN.run_id)


def claimed(run: RunDir, *, alive: bool) -> AttemptDir:
    claim = Claim.fresh("worker")
    if not alive:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        claim = replace(claim, holder=Holder.of(process.pid))
        process.communicate()
    attempt = run.take(claim)
    assert attempt is not None
    return attempt


@pytest.mark.parametrize("alive", [True, False])
def test_a_finished_run_is_tidied_only_when_nobody_is_in_it(sweep: SweepDir, alive: bool) -> None:
    """Between its result and its end record, a run's own process still writes in its folder."""
    run = sweep.run(RUN.run_id)
    attempt = claimed(run, alive=alive)
    half_written = attempt.path / ".end.json.0123.tmp"
    half_written.touch()
    assert run.publish({"attempt": 1}, [])
    assert look(sweep) is Availability.OVER
    assert half_written.exists() is alive


def test_a_run_is_ready_held_or_over(sweep: SweepDir) -> None:
    run = sweep.run(RUN.run_id)
    assert look(sweep) is Availability.READY
    attempt = claimed(run, alive=True)
    assert look(sweep) is Availability.HELD
    attempt.write_end(End(RunState.FAILED, Reason.CODE_ERROR))
    assert look(sweep) is Availability.OVER
    enter(sweep, "retry", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Availability.READY
    enter(sweep, "cancel", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Availability.OVER
    enter(sweep, "retry", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Availability.READY


def test_time_limits_that_the_control_plane_recorded_count(sweep: SweepDir) -> None:
    """Their jobs ended, and no worker was left to judge."""
    for _ in range(3):
        assert look(sweep) is Availability.READY
        claimed(sweep.run(RUN.run_id), alive=True).write_end(End(RunState.INTERRUPTED, Reason.TIME_LIMIT))
    verdict = look(sweep)
    assert isinstance(verdict, CrashLoop)
    assert (verdict.attempt, verdict.end.reason) == (3, Reason.TIME_LIMIT)
    enter(sweep, "retry", {"runs": {RUN.run_id: 3}})
    assert look(sweep) is Availability.READY


@pytest.mark.parametrize(
    ("kind", "data", "first", "second"),
    [
        ("memory", {}, Availability.OVER, Availability.READY),
        ("retry", {"why": "second chance"}, Availability.OVER, Availability.READY),
        ("retry", {}, Availability.READY, Availability.READY),
    ],
)
def test_a_second_chance_is_another_jobs(
    sweep: SweepDir, kind: str, data: dict[str, str], first: Availability, second: Availability
) -> None:
    """A worker of the first submission would give the run just what was too little."""
    submit(sweep)
    claimed(sweep.run(RUN.run_id), alive=True).write_end(End(RunState.FAILED, Reason.OUT_OF_MEMORY))
    enter(sweep, kind, {"runs": {RUN.run_id: 1}, **data})
    submit(sweep)
    assert (look(sweep, submission=1), look(sweep, submission=3)) == (first, second)

"""What a worker may take, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.assignment import Assignment, Decisions, Verdict
from orchestrator.rundir import AttemptDir, Claim, Holder, RunDir, SweepDir
from orchestrator.types import Run
from tests.helpers import make_sweep

RUN = Run("0" * 16, "command", {"command": ["true"]})


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    return make_sweep(results, [RUN])


def look(sweep: SweepDir) -> object:
    decisions = Decisions(sweep)
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
    assert look(sweep) is Verdict.OVER
    assert half_written.exists() is alive


def test_a_run_is_ready_held_or_over(sweep: SweepDir) -> None:
    run = sweep.run(RUN.run_id)
    assert look(sweep) is Verdict.READY
    attempt = claimed(run, alive=True)
    assert look(sweep) is Verdict.HELD
    attempt.write_end({"outcome": "failed", "reason": "code error"})
    assert look(sweep) is Verdict.OVER
    sweep.add_to_ledger("retry", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Verdict.READY
    sweep.add_to_ledger("cancel", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Verdict.OVER
    sweep.add_to_ledger("retry", {"runs": {RUN.run_id: 1}})
    assert look(sweep) is Verdict.READY

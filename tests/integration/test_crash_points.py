"""A command line killed before and after each of its writes and submissions: the next one makes up for it."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.backends.local import LocalBackend
from orchestrator.config.sweep import load_sweep
from orchestrator.control.follow import OneTarget, follow
from orchestrator.core.types import Capacity
from orchestrator.rundir import SweepDir
from tests import helpers
from tests.audit import check_finished
from tests.executioner import Executioner

STEPS, RUNS = 20, 2

# Writes of a submission for this grid in their order; a test below says when this is not so any more.
WRITES = ["grid", "index", "descriptions", "ledger", "script", "submission", "ledger"]


class Machine(LocalBackend):
    """This machine, with two cores."""

    def capacity(self, ask: bool = True) -> Capacity:
        return Capacity("local", 2, 0)


def submit_and_die(grid: Path, results: Path, number: int, moment: str, told: Any = None) -> None:
    """In a process of its own: everything a `sweep --detach` does, up to the moment."""
    executioner = Executioner(number, moment)
    executioner.watch_writes()
    LocalBackend.submit = executioner.watch(LocalBackend.submit, lambda _: "submission")  # type: ignore
    sweep = load_sweep(grid)
    helpers.submit_sweep(sweep, SweepDir(results, sweep.name), Machine())
    if told is not None:
        told.put(executioner.names)


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    argv = [sys.executable, helpers.COMMANDS / "count.py", tmp_path / "audit", STEPS, "0.001"]
    command = json.dumps([str(item) for item in argv])
    path = tmp_path / "grid.yaml"
    path.write_text(
        f"name: tiny\ntrainer: command\nbase: {{command: {command}}}\nmatrix: {{seed: range({RUNS})}}\n"
    )
    return path


def in_a_process(*arguments: Any) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=submit_and_die, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


def finish_sweep(grid: Path, results: Path) -> SweepDir:
    """The same command again, to the end."""
    sweep, backend = load_sweep(grid), Machine()
    sweep_dir = SweepDir(results, sweep.name)
    helpers.submit_sweep(sweep, sweep_dir, backend)
    deadline = time.monotonic() + 120
    for _ in follow(OneTarget(sweep, sweep_dir, backend)):
        assert time.monotonic() < deadline, "the sweep does not end"
    return sweep_dir


def test_the_points_are_all_there_are(grid: Path, results: Path) -> None:
    told = multiprocessing.get_context("fork").Queue()
    assert in_a_process(grid, results, 0, "never", told) == 0
    assert told.get(timeout=600) == WRITES
    finish_sweep(grid, results)


@pytest.mark.nightly(but=["1-after", "3-before", "5-after", "7-before"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, len(WRITES) + 1))
def test_killed_at_this_point_nothing_is_lost_or_doubled(
    grid: Path, results: Path, tmp_path: Path, number: int, moment: str
) -> None:
    assert in_a_process(grid, results, number, moment) == -signal.SIGKILL
    sweep_dir = finish_sweep(grid, results)
    runs = [sweep_dir.run(run_id).description() for run_id in sweep_dir.run_ids()]
    assert len(runs) == RUNS
    check_finished(sweep_dir, runs, tmp_path / "audit")
    assert all(len(sweep_dir.run(item.run_id).attempts()) == 1 for item in runs), "no worker was ever killed"


def test_killed_while_it_makes_up_for_one_killed(grid: Path, results: Path, tmp_path: Path) -> None:
    """A submission is on record and nothing was started; the next command line dies as it gives that up."""
    submission = WRITES.index("submission") + 1
    assert in_a_process(grid, results, submission, "before") == -signal.SIGKILL
    assert in_a_process(grid, results, 1, "after") == -signal.SIGKILL
    sweep_dir = finish_sweep(grid, results)
    runs = [sweep_dir.run(run_id).description() for run_id in sweep_dir.run_ids()]
    check_finished(sweep_dir, runs, tmp_path / "audit")

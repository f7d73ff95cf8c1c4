"""Runs trained by hand, as real processes: the results are a sweep's, the exit codes a script's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.sweep import load_sweep
from orchestrator.control.submit import present
from orchestrator.core.types import RunState
from orchestrator.rundir import RunDir, SweepDir
from tests import warm
from tests.audit import check_finished
from tests.helpers import COMMANDS, ROOT, wait_for

STEPS = 20


class Hand:
    """A folder to train from."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        self.pace(0.005)

    def pace(self, seconds: float, last: int = STEPS) -> None:
        (self.folder / "pace").write_text(f"{seconds} {last}")

    @property
    def counting(self) -> str:
        return f"command=[{sys.executable},{COMMANDS / 'count.py'},audit,'{STEPS}',pace]"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "jobs.train", *arguments],
            cwd=self.folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def train(self, *arguments: str, code: int = 0) -> str:
        process = self.start(*arguments)
        _, said = process.communicate(timeout=600)
        assert process.returncode == code, said
        assert "Traceback" not in said
        return said

    def sweep(self, name: str = "by-hand") -> SweepDir:
        return SweepDir.existing(self.results, name)

    def run_dirs(self, name: str = "by-hand") -> list[RunDir]:
        sweep = self.sweep(name)
        return [sweep.run(run_id) for run_id in sweep.run_ids()]

    def states(self, name: str = "by-hand") -> list[RunState]:
        return sorted((one.state for one in present(self.sweep(name)).statuses.values()), key=str)

    def orchestrate(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
            cwd=self.folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **warm.COMMANDS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path)


def test_trained_by_hand_is_a_sweep_as_any_other(hand: Hand) -> None:
    said = hand.train("command", hand.counting, "seed=0,1")
    sweep = hand.sweep()
    runs = [run.description() for run in hand.run_dirs()]
    assert said.splitlines() == [
        f"done: {run.run_id} seed={run.seed}" for run in sorted(runs, key=lambda run: run.seed)
    ]
    hand.train("command", hand.counting, "seed=1,2")
    runs = [run.description() for run in hand.run_dirs()]
    check_finished(sweep, runs, hand.folder / "audit", STEPS)
    assert sorted(run.seed for run in runs) == [0, 1, 2]
    assert hand.states() == [RunState.DONE] * 3
    assert {run.run_id for run in load_sweep(sweep.latest_grid_path()).runs} == {run.run_id for run in runs}
    assert "3/3 done" in hand.orchestrate("status", "by-hand")
    assert "nothing new to submit" in hand.orchestrate("sweep", "--grid", str(sweep.latest_grid_path()))
    hand.orchestrate("collect", "by-hand")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("chained", [False, True])
def test_a_signal_saves_and_the_same_call_goes_on(hand: Hand, number: int, chained: bool) -> None:
    hand.pace(0.01, last=6)
    arguments = ["command", hand.counting, *(["--chained"] if chained else [])]
    process = hand.start(*arguments)
    audit = hand.folder / "audit"
    wait_for(lambda: audit.exists() and audit.read_text().count("step") >= 5)
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == (0 if chained else 75), said
    assert said.startswith("interrupted: ")
    assert "the same call goes on" in said
    assert hand.states() == [RunState.INTERRUPTED]
    hand.pace(0.001)
    hand.train(*arguments)
    [run] = hand.run_dirs()
    check_finished(hand.sweep(), [run.description()], audit, STEPS)
    assert len(run.attempts()) == 2
    executed = [line for line in audit.read_text().splitlines() if line.startswith("step")]
    assert len(executed) == STEPS, "steps that were saved were executed again"


def test_a_run_that_fails_is_told_and_waits_for_a_retry(hand: Hand) -> None:
    (hand.folder / "try").write_text(
        "#!/bin/sh\ncat hope && echo '{\"frames\": 1}' >> $ORCHESTRATE_METRICS\n"
    )
    arguments = ["command", "command=[/bin/sh,try]", "seed=0"]
    for _ in range(2):
        said = hand.train(*arguments, code=1)
        assert said.startswith("failed: ")
        assert "orchestrate retry by-hand" in said
    (hand.folder / "hope").write_text("")
    hand.orchestrate("retry", "by-hand")
    assert hand.train(*arguments).startswith("done: ")


def test_an_element_trains_its_own_run_and_lists_all(hand: Hand) -> None:
    everything = ["--sweep", "bench", "command", hand.counting, "seed=range(3)"]
    processes = [hand.start("--only", str(number), *everything) for number in (0, 2)]
    for process in processes:
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
    assert [path.name for path in (hand.results / "bench" / "grids").iterdir()] == ["0001.yaml"]
    assert hand.states("bench") == [RunState.DONE, RunState.DONE, RunState.PENDING]
    assert "--only: found 3, expected a number from 0 to 2" in hand.train("--only", "3", *everything, code=2)
    assert "1 run to do" in hand.orchestrate("sweep", "--grid", "results/bench/grids/0001.yaml", "--detach")
    wait_for(lambda: hand.states("bench") == [RunState.DONE] * 3)


def test_somebodys_grid_goes_on_to_say_what_is_in_the_sweep(hand: Hand) -> None:
    command = [sys.executable, str(COMMANDS / "count.py"), "audit", str(STEPS), "pace"]
    grid = {"name": "mine", "trainer": "command", "base": {"command": command}, "matrix": {"seed": [0, 1]}}
    (hand.folder / "grid.yaml").write_text(json.dumps(grid))
    hand.orchestrate("sweep", "--grid", "grid.yaml", "--follow")
    hand.train("--sweep", "mine", "command", hand.counting, "seed=1,2")
    sweep = hand.sweep("mine")
    assert sweep.latest_grid() == (1, json.dumps(grid))
    assert [(row.in_grid, row.point["seed"]) for row in sweep.read_index()] == [
        (True, 0),
        (True, 1),
        (False, 2),
    ]
    assert [len(run.attempts()) for run in hand.run_dirs("mine")] == [1, 1, 1]


def test_what_cannot_be_trained_is_refused(hand: Hand) -> None:
    hand.train("command", "command=[/bin/false]", code=1)
    said = hand.train("benchmarl", "algorithm=ippo", code=2)
    assert "is one of trainer command, not benchmarl" in said
    assert "name another: --sweep NAME" in said
    assert "no trainer named 'bench'" in hand.train("bench", code=2)
    assert "expected finite numbers" in hand.train("--sweep", "b", "command", "x=nan", code=2)
    assert "expected key=value" in hand.train("command", "/bin/true", code=2)

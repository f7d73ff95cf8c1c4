"""The command of `notify` is started at the first failure, at a budget and at the end, once each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.worker.leaving.notices import Notices, Occasion
from orchestrator.config.grid import parse_grid
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import SubmissionEntry

GRID = """name: told
trainer: command
notify: {notify}
base:
  command: [bash, -c, 'echo "{{\\"frames\\": 1}}" >> "$ORCHESTRATE_METRICS"; exit "$0"', "{{exit}}"]
matrix:
  exit: [0, 3, 4]
"""
APPEND = """[bash, -c, 'read line; echo "$1|$2|$line" >> told', bash, "{event}", "{sweep}"]"""


def sweep(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", "sweep", "--grid", "grid.yaml", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_each_event_is_sent_once_for_each_submission(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID.format(notify=APPEND))
    done = sweep(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    failure, end = (tmp_path / "told").read_text().splitlines()
    assert failure.startswith("failure|told|told: run ")
    assert "failed: code error: the program left with exit code" in failure
    assert end == "end|told|told: ended: 1 of 3 runs done, 2 failed or cancelled"
    before = (tmp_path / "grid.yaml").read_text()
    (tmp_path / "grid.yaml").write_text(before.replace("notify: [", "notify: [env, "))
    assert "nothing new to submit" in (again := sweep(tmp_path)).stdout + again.stderr  # the same runs


def test_a_sweep_that_reaches_its_budget_sends_that_alone(tmp_path: Path) -> None:
    program = 'for at in {1..3000}; do echo "{\\"frames\\": $at}" >> "$ORCHESTRATE_METRICS"; sleep 0.1; done'
    grid = f"name: told\ntrainer: command\nnotify: {APPEND}\nbase:\n  command: [bash, -c, '{program}']\n"
    (tmp_path / "grid.yaml").write_text(f"{grid}matrix:\n  seed: [0]\n")
    (tmp_path / "desk.yaml").write_text("backend: local\nprice_per_hour: 3600\n")  # a dollar a second
    done = sweep(tmp_path, "--on", "./desk.yaml", "--budget", "2")
    assert done.returncode == 4, done.stdout + done.stderr
    told = (tmp_path / "told").read_text()
    assert told == "budget|told|told: the job's share of the budget paid for 2 s\n"


def notices(folder: Path, *command: str, patience: float = 20.0) -> Notices:
    sweep_dir = SweepDir(folder, "tiny")
    sweep_dir.create()
    return Notices(sweep_dir, SubmissionEntry(number=7, jobs=(), notify=command or None), patience)


def test_of_several_workers_one_sends(tmp_path: Path) -> None:
    command = ["bash", "-c", 'echo "$1" >> "$0"', str(tmp_path / "told"), "{message}"]
    for _ in range(2):
        mine = notices(tmp_path, *command)
        mine.send(Occasion.BUDGET, lambda: "used up {event}")
        mine.finish(hurry=False)
    assert (tmp_path / "told").read_text() == "tiny: used up {event}\n"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["sleep", "60"], "sleep: took more than 0.1 s"),
        (["false"], "false: exit code 1"),
        (["no-such-program"], "no-such-program: [Errno 2]"),
    ],
)
def test_a_command_that_fails_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str], problem: str
) -> None:
    mine = notices(tmp_path, *command, patience=0.1 if command[0] == "sleep" else 20.0)
    mine.send(Occasion.END, lambda: "over")
    mine.finish(hurry=False)
    assert f"notify: {problem}" in capfd.readouterr().err


def test_without_a_command_nothing_is_written(tmp_path: Path) -> None:
    notices(tmp_path).send(Occasion.END, lambda: "over")
    assert not (tmp_path / "tiny" / "notices").exists()


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        ("mail", "notify: found mail, expected a list: a program and its arguments"),
        ("[]", "expected a list: a program and its arguments"),
        ("[mail, 3]", "expected a list: a program and its arguments"),
        ("[bash, -c, 'echo {message}']", "pass it as an argument"),
    ],
)
def test_what_cannot_be_a_command_is_refused(notify: str, said: str) -> None:
    with pytest.raises(OrchestrateError) as refused:
        parse_grid(GRID.format(notify=notify), "grid.yaml")
    assert said in f"{refused.value} {refused.value.hint}"

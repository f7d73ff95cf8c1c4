"""The commands that the tree of a user runs in a tree behind ssh, as they are typed there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.code.snapshot import freeze
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.control.remote.delegated import Assignment, Decision
from orchestrator.control.remote.push_code import sent
from orchestrator.rundir import SweepDir
from tests import helpers, warm


class There:
    """The folder behind ssh: it has the sweep's code, and nothing else of the sweep."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder / "there", folder / "gate"
        self.dir = SweepDir(self.folder / "results", "tiny")
        self.project = folder / "project"
        for path in (self.folder, self.project):
            path.mkdir(parents=True)
        self.code, _ = sent(freeze(self.dir, self.project))

    def assignment(self, number: int, resources: str = "{}") -> Assignment:
        """Three runs, which work until the gate opens."""
        wait = f"while [ ! -e {self.gate} ]; do sleep 0.05; done; echo 1 >$ORCHESTRATE_RUN_DIR/x"
        grid = (
            f"name: tiny\ntrainer: command\nbase: {{command: {json.dumps(['sh', '-c', wait])}}}\n"
            f"matrix:\n  seed: range(3)\nresources: {resources}\n"
        )
        return Assignment(
            home="home",
            owner="me:/x",
            number=number,
            run_ids=tuple(run.run_id for run in runs_of(parse_grid(grid, "tiny.yaml")).runs),
            sweep="tiny",
            grid=grid,
            grid_path="tiny.yaml",
            profile_name="far",
            profile="backend: local\npack: 1\n",
            code=self.code,
        )

    def command(self, decision: Decision, *arguments: str) -> Any:
        """What the command prints, with that decision on its stdin."""
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(helpers.ROOT), **warm.COMMANDS},
            input=decision.to_bytes(),
            capture_output=True,
            timeout=helpers.PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def submit(self, assignment: Assignment, *options: str) -> Any:
        return self.command(assignment, "sweep", "--delegated", *options)["started"]

    def states(self) -> Sequence[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.ui.cli", "status", "tiny", "--json"],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(helpers.ROOT), **warm.COMMANDS},
            capture_output=True,
            check=True,
        )
        return [run["state"] for run in json.loads(done.stdout)[0]["runs"]]


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


def decision(assigned: Assignment, number: int) -> Decision:
    return Decision(home="home", owner="me:/x", number=number, run_ids=assigned.run_ids)


def test_a_submission_leaves_at_once_with_its_canaries_submitted(there: There) -> None:
    assigned = there.assignment(1)
    started = there.submit(assigned, "--canary")
    assert (started["to_do"], started["problems"]) == (1, {})
    there.gate.touch()
    helpers.wait_for(lambda: there.states().count("pending") == 2, what="the end of the canary")
    assert there.command(decision(assigned, 1), "cancel", "tiny", "--delegated")["problems"] == []


def test_runs_that_the_machine_cannot_train_are_told_as_what_was_submitted(there: There) -> None:
    """Not as an error: the tree of the user has what was decided, and judges it."""
    assert there.submit(there.assignment(1, resources="{gpus: 64}"))["to_do"] == 0
    assert there.states() == ["skipped"] * 3


def test_a_cancellation_that_arrives_before_the_assignment(there: There) -> None:
    """The connection was cut when the code had been sent, and nothing else."""
    assigned = there.assignment(1)
    assert there.command(decision(assigned, 1), "stop", "tiny") == {"stopped": True}
    cancelled = there.command(decision(assigned, 1), "cancel", "tiny", "--delegated")
    assert sorted(cancelled["runs"]) == sorted(assigned.run_ids)
    assert there.submit(assigned)["to_do"] == 0
    assert there.states() == ["cancelled"] * 3


def test_a_retry_whose_answer_was_lost_has_the_same_answer_again(there: There) -> None:
    assigned = there.assignment(1)
    there.command(decision(assigned, 1), "cancel", "tiny", "--delegated")
    there.submit(assigned)
    again = replace(decision(assigned, 1), run_ids=assigned.run_ids[:2])
    for _ in range(2):
        answer = there.command(again, "retry", "tiny", "--delegated")
        assert answer == {"runs": list(again.run_ids), "problems": []}
    assert there.states().count("pending") == 2

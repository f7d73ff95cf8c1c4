"""The rules of `check` that need no building."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import passed_checks
from orchestrator.config.check import CheckReport, check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine import hardware
from orchestrator.core.machine.installation import install_here


class Checker:
    """A Python that gives each check the same answer, and keeps the requests."""

    def __init__(self, folder: Path, problems: str = "[]") -> None:
        self.path, self._requests = folder / "python", folder / "requests"
        answer = f'{{"problems": {problems}, "structures": 1}}'
        self.path.write_text(f"#!/bin/sh\ncat >>{self._requests}\necho >>{self._requests}\necho '{answer}'\n")
        self.path.chmod(0o755)

    def check(self, text: str, trainer: str = "ppo") -> CheckReport:
        grid = f"name: c\ntrainer: {trainer}\nbase: {{task: gymnasium/CartPole-v1}}\n{text}"
        return check_sweep(runs_of(parse_grid(grid, "grid.yaml")), python=str(self.path))

    @property
    def requests(self) -> list[Any]:
        return [json.loads(line) for line in self._requests.read_text().splitlines()]


def test_a_trainer_is_asked_about_each_configuration_once(tmp_path: Path) -> None:
    checker = Checker(tmp_path)
    report = checker.check("matrix: {lr: [0.1, 0.2], threads: [1, 4], seed: range(3)}\n")
    asked = [(run["overrides"]["lr"], run["threads"], run["seed"]) for run in checker.requests[0]["runs"]]
    assert asked == [(0.1, 1, 0), (0.1, 4, 0), (0.2, 1, 0), (0.2, 4, 0)]
    assert (report.points, report.structures) == (12, 1)


def test_what_passed_is_not_checked_again_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker(tmp_path)
    grid = "matrix: {lr: [0.1, 0.2], seed: range(3)}\n"
    first, again = checker.check(grid), checker.check(grid)
    assert replace(first, seconds=0) == replace(again, seconds=0)
    checker.check("matrix: {seed: range(50), lr: [0.2, 0.1]}\n")  # the same configurations
    assert len(checker.requests) == 1
    checker.check("matrix: {lr: [0.1, 0.3], seed: range(3)}\n")
    checker.check(grid + "resources: {mem: 3G}\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    checker.check(grid)
    assert len(checker.requests) == 4
    monkeypatch.syspath_prepend(packages := tmp_path / "packages")
    packages.mkdir()
    checker.check(grid)
    (packages / "torch-3.0.dist-info").mkdir()  # another version of a package
    checker.check(grid)
    assert len(checker.requests) == 6
    yesterday = time.time() - 25 * 3600
    cache = Path.home() / ".cache" / "orchestrate"
    assert cache.stat().st_mode & 0o077 == 0  # ssh keeps its connections there
    for passed in (cache / "passed-checks").iterdir():
        os.utime(passed, (yesterday, yesterday))
    checker.check(grid)
    assert len(checker.requests) == 7


def test_what_the_first_check_compiled_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "jobs"
    (sources / "__pycache__").mkdir(parents=True)
    (sources / "trainer.py").write_text("")
    monkeypatch.setattr(passed_checks, "_worker_side", lambda: sources)
    checker = Checker(tmp_path)
    checker.check("")
    (sources / "__pycache__" / "trainer.cpython-311.pyc").write_bytes(b"")
    checker.check("")
    assert len(checker.requests) == 1
    (sources / "trainer.py").write_text("edited = True\n")
    checker.check("")
    assert len(checker.requests) == 2


def test_a_check_with_problems_or_of_files_that_a_person_edits_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = {"run_id": "", "key": None, "message": "slow", "hint": None, "blocks": False}
    warned = Checker(tmp_path, json.dumps([{**warning, "whole": False, "early": False}]))
    for _ in range(2):
        assert [str(one) for one in warned.check("").warnings] == ["grid.yaml: slow"]
    assert len(warned.requests) == 2
    program = Checker(tmp_path)
    for _ in range(2):  # its files may have changed
        program.check("matrix: {command: [[python, train.py]]}\n", trainer="command")
    assert len(program.requests) == 4
    for _ in range(2):  # and the task's own module
        program.check("include: [{task: 'gymnasium/my_env:Mine-v0'}]\n")
    assert len(program.requests) == 6
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    for _ in range(2):
        program.check("")
    assert len(program.requests) == 8


def test_problems_name_the_line_of_their_key_and_come_in_its_order() -> None:
    grid = "name: c\ntrainer: command\nbase: {seed: 0}\nmatrix:\n  steps: [1, 2]\n  command: ['not a list']\n"
    report = check_sweep(runs_of(parse_grid(grid, "grid.yaml")))
    assert [(problem.line, problem.key) for problem in report.problems] == [(6, "command")]
    assert (report.points, report.structures) == (2, 1)
    assert str(report.problems[0]).startswith("grid.yaml:6:3: ")


def test_processes_that_must_share_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "whole_cores", lambda: 8)
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)

    def warnings(trainer: str, resources: str) -> list[str]:
        base = "base: {task: bucket_brigade/hard, mode: parallel}\nmatrix: {actors: [1, 2]}"
        grid = f"name: c\ntrainer: {trainer}\n{base}\nresources: {resources}\n"
        report = check_sweep(runs_of(parse_grid(grid, "grid.yaml")))
        assert not report.problems
        return [str(warning) for warning in report.warnings]

    found = "grid.yaml: resources.cpus_per_task: found 2, and the processes of a run occupy 4"
    (warning,) = warnings("impala", "{cpus_per_task: 2}")
    assert warning.startswith(found)
    assert "write cpus_per_task: 4, or remove it" in warning
    assert warnings("impala", "{cpus_per_task: '2 * {actors}'}") == []
    assert warnings("ppo", "{cpus_per_task: 2}") == warnings("ppo", "{mem: 1G}") == []
    assert warnings("impala", "{mem: 1G}") == []
    monkeypatch.setattr(hardware, "physical_cores", lambda: 3)
    (warning,) = warnings("impala", "{mem: 1G}")
    assert "of a run take 4 cores with their threads, and this machine has 3 physical ones" in warning
    monkeypatch.setattr(hardware, "whole_cores", lambda: 3)
    assert warnings("impala", "{mem: 1G}") == []
    monkeypatch.setattr(hardware, "whole_cores", lambda: 8)
    assert warnings("impala", "{mem: 1G}\ntargets: [laptop, cluster]") == []


def test_a_check_that_cannot_run_says_why() -> None:
    sweep = runs_of(parse_grid("name: c\ntrainer: command\nbase: {seed: 0}\n", "grid.yaml"))
    with pytest.raises(OrchestrateError, match="cannot start /nowhere/python"):
        check_sweep(sweep, python="/nowhere/python")
    with pytest.raises(OrchestrateError, match="exit code 1"):
        check_sweep(sweep, python="/bin/false")


def test_a_python_without_the_trainers_packages_is_told_what_to_install(tmp_path: Path) -> None:
    sweep = runs_of(parse_grid("name: c\ntrainer: command\nbase: {seed: 0}\n", "grid.yaml"))
    bare = tmp_path / "python"
    said = "ModuleNotFoundError: No module named 'torch'"
    bare.write_text(f'#!/bin/sh\necho Traceback >&2\necho "{said}" >&2\nexit 1\n')
    bare.chmod(0o755)
    with pytest.raises(OrchestrateError) as caught:
        check_sweep(sweep, python=str(bare))
    assert str(caught.value) == f"the trainer needs the Python package torch, which {bare} does not have"
    assert caught.value.hint == f"install what training needs: {install_here('train')}"

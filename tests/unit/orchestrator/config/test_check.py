"""The rules of `check` that need no building."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.check import check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import expand
from orchestrator.core import hardware
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.installation import install_here


def test_problems_name_the_line_of_their_key_and_come_in_its_order() -> None:
    grid = "name: c\ntrainer: command\nbase: {seed: 0}\nmatrix:\n  steps: [1, 2]\n  command: ['not a list']\n"
    report = check_sweep(expand(parse_grid(grid, "grid.yaml")))
    assert [(problem.line, problem.key) for problem in report.problems] == [(6, "command")]
    assert (report.points, report.structures) == (2, 1)
    assert str(report.problems[0]).startswith("grid.yaml:6:3: ")


def test_processes_that_must_share_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "whole_cores", lambda: 8)
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)

    def warnings(trainer: str, resources: str) -> list[str]:
        base = "base: {task: bucket_brigade/hard, mode: parallel}\nmatrix: {actors: [1, 2]}"
        grid = f"name: c\ntrainer: {trainer}\n{base}\nresources: {resources}\n"
        report = check_sweep(expand(parse_grid(grid, "grid.yaml")))
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
    sweep = expand(parse_grid("name: c\ntrainer: command\nbase: {seed: 0}\n", "grid.yaml"))
    with pytest.raises(OrchestrateError, match="cannot start /nowhere/python"):
        check_sweep(sweep, python="/nowhere/python")
    with pytest.raises(OrchestrateError, match="exit code 1"):
        check_sweep(sweep, python="/bin/false")


def test_a_python_without_the_trainers_packages_is_told_what_to_install(tmp_path: Path) -> None:
    sweep = expand(parse_grid("name: c\ntrainer: command\nbase: {seed: 0}\n", "grid.yaml"))
    bare = tmp_path / "python"
    said = "ModuleNotFoundError: No module named 'torch'"
    bare.write_text(f'#!/bin/sh\necho Traceback >&2\necho "{said}" >&2\nexit 1\n')
    bare.chmod(0o755)
    with pytest.raises(OrchestrateError) as caught:
        check_sweep(sweep, python=str(bare))
    assert str(caught.value) == f"the trainer needs the Python package torch, which {bare} does not have"
    assert caught.value.hint == f"install what training needs: {install_here('train')}"

"""The rules of `check` that need no building."""

from __future__ import annotations

import pytest

from orchestrator.check import check_sweep
from orchestrator.errors import OrchestrateError
from orchestrator.grid import parse_grid
from orchestrator.sweep import expand


def test_problems_name_the_line_of_their_key_and_come_in_its_order() -> None:
    grid = "name: c\ntrainer: command\nbase: {seed: 0}\nmatrix:\n  steps: [1, 2]\n  command: ['not a list']\n"
    report = check_sweep(expand(parse_grid(grid, "grid.yaml")))
    assert [(problem.line, problem.key) for problem in report.problems] == [(6, "command")]
    assert (report.points, report.structures) == (2, 1)
    assert str(report.problems[0]).startswith("grid.yaml:6:3: ")


def test_a_check_that_cannot_run_says_why() -> None:
    sweep = expand(parse_grid("name: c\ntrainer: command\nbase: {seed: 0}\n", "grid.yaml"))
    with pytest.raises(OrchestrateError, match="cannot start /nowhere/python"):
        check_sweep(sweep, python="/nowhere/python")
    with pytest.raises(OrchestrateError, match="exit code 1"):
        check_sweep(sweep, python="/bin/false")

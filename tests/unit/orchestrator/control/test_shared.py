"""A sweep that several targets share costs one look at its run folders, and one for each submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.control import flow, submit
from orchestrator.control.submit import SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.status import disk_check

GRID = "name: tiny\ntrainer: command\nbase: {command: ['true']}\nmatrix: {seed: range(4)}\n"


def test_the_run_folders_are_looked_at_once_for_all_targets(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{tmp_path}/{name}.yaml" for name in ("left", "right")]
    for name in names:
        Path(name).write_text("backend: local\npack: 1\n")
    looks = []

    def inspect(*arguments: object) -> object:
        looks.append(arguments)
        return original(*arguments)  # type: ignore[arg-type]

    original = disk_check.inspect
    monkeypatch.setattr(submit, "inspect", inspect)
    sweep = runs_of(parse_grid(GRID, "tiny.yaml"))
    planned = flow.flow_of(sweep, SweepDir(results, "tiny"), SubmitOptions(), ",".join(names)).rehearse()
    assert len(planned["arrays"]) == 2
    assert len(looks) == 1 + len(names)

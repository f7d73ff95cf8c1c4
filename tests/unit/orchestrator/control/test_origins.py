"""What runs start from, where nothing has begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.control.reuse.origins import find_origins
from orchestrator.control.submit import unbegun
from orchestrator.rundir import RunDir, SweepDir


def test_no_folder_is_opened_for_a_run_that_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {
        "name": "tiny",
        "trainer": "command",
        "base": {"command": ["./program", "{steps}", "{gain}", "{seed}"], "steps": 10},
        "matrix": {"gain": [1, 2], "seed": [0, 1]},
        "length": "steps",
        "fork": {"for": {"gain": 1}, "at": 4},
    }
    sweep, opened = runs_of(parse_grid(json.dumps(grid), "grid.yaml")), list[str]()
    monkeypatch.setattr(RunDir, "prefix", property(lambda run: opened.append(run.run_id)))
    home = SweepDir(tmp_path, "tiny")
    begun = sweep.runs[-1].run_id
    (home.run(begun).path).mkdir(parents=True)
    found = find_origins(sweep, home, unbegun(sweep, home).told)
    assert opened == [begun]
    assert found.waiting == sweep.trunks
    assert {(one.frames, one.total) for one in found.spared.values()} == {(4, 10)}

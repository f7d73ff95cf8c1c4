"""Finished runs that a changed grid no longer has: named, asked about, and kept where labels alone differ."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.slurm.lab import Lab

PROGRAM = """
import json, os, sys
line = {"frames": 10, "metrics": {"return": float(sys.argv[1]) + float(sys.argv[2])}}
open(os.environ["ORCHESTRATE_METRICS"], "a").write(json.dumps(line) + "\\n")
"""
GRID = ("--grid", "tiny.yaml")


def write_grid(lab: Lab, base: dict[str, Any], seeds: int = 2, **sections: Any) -> None:
    command = [sys.executable, "-c", PROGRAM, "{lr}", "{seed}"]
    grid = {"name": "tiny", "trainer": "command", "base": {"command": command, **base}, **sections}
    (lab.folder / "tiny.yaml").write_text(json.dumps({**grid, "matrix": {"seed": list(range(seeds))}}))


def test_finished_runs_leave_a_grid_only_when_a_person_agrees(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    write_grid(lab, {"lr": 1, "note": "first"})
    lab.run("sweep", *GRID)
    ids = {row.run_id for row in lab.dir().read_index()}
    write_grid(lab, {"lr": 1, "note": "second"}, seeds=3)
    told = "2 finished runs leave the grid: only `note` differs (base)"
    assert told in lab.run("check", *GRID)
    assert told in lab.run("sweep", *GRID, "--dry-run")
    refused = lab.run("sweep", *GRID, code=2)
    assert told in refused
    assert "--yes" in refused
    ours, theirs = pty.openpty()  # a person at the keyboard, and an output of which a program reads
    os.write(ours, b"n\n")
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sweep", *GRID]
    asked = subprocess.run(
        argv,
        cwd=lab.folder,
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **lab.env},
    )
    assert (asked.returncode, asked.stdout.strip()) == (2, "")
    assert "go on without them?" in asked.stderr
    assert all(row.in_grid for row in lab.dir().read_index())
    write_grid(lab, {"lr": 1}, labels={"note": "second", "frames": 10})  # the same runs
    assert "0 to do, 2 done" in lab.run("check", *GRID)
    lab.run("sweep", *GRID)
    assert {row.run_id for row in lab.dir().read_index() if row.in_grid} == ids
    write_grid(lab, {"lr": 1}, seeds=3, labels={"note": "third"})  # a grid that grows never asks
    assert "1 run to do" in lab.run("sweep", *GRID)
    write_grid(lab, {"lr": 2}, labels={"note": "third"})
    assert "2 runs to do" in lab.run("sweep", *GRID, "--yes")
    assert sum(row.in_grid for row in lab.dir().read_index()) == 2

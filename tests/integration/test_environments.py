"""Programs in a Python of their own: a venv and uv for real, conda and Apptainer by stand-ins on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

TRAIN = """import sys
import numpy_is_not_here, beside, json
from orchestrate_run import run
run.resume()
run.log(1, own=sys.prefix.endswith(sys.argv[1]))
"""
GRID = """name: env
trainer: command
base: {seed: 0}
zip:
  command:
  - [.venv/bin/python, train.py, .venv]
  - [uv, run, --no-sync, train.py, .venv]
  - [conda, run, -n, marl, python, train.py, marl]
  - [apptainer, exec, --nv, image.sif, python, train.py, marl]
"""
# Each starts what comes after its options in the environment `marl`.
STANDINS = {"conda": 3, "apptainer": 3}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in (".venv", "marl"):
        venv.create(folder / name, symlinks=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "beside.py").touch()
    (folder / "grid.yaml").write_text(GRID)
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    (folder / ".gitignore").write_text(".venv\nmarl\nresults\n")
    subprocess.run(["git", "init", "-q", folder], check=True)
    (tmp_path / "bin").mkdir()
    for name, options in STANDINS.items():
        script = f'#!/bin/sh\nshift {options}; PATH={folder}/marl/bin:$PATH; exec "$@"\n'
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    return folder


def orchestrate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300)


def test_each_runs_in_its_own_python_and_is_checked_there(project: Path) -> None:
    found = json.loads(orchestrate(project, "check", "grid.yaml", "--json").stdout)["warnings"]
    asked = [one.partition("Python of ")[2].partition("\n")[0] for one in found]
    assert asked == [
        "`.venv/bin/python`",
        "`uv run --no-sync python`",
        "`conda run -n marl python`",
        "`apptainer exec --nv image.sif python`",
    ]
    assert all("found no module numpy_is_not_here, which train.py imports" in one for one in found)
    (project / "train.py").write_text(TRAIN.replace("numpy_is_not_here, ", ""))
    done = orchestrate(project, "sweep", "--grid", "grid.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        json.loads(path.read_text().splitlines()[-1])
        for path in project.glob("results/env/runs/*/attempts/1/metrics.jsonl")
    ]
    assert [row["metrics"]["own"] for row in rows] == [1.0] * 4


def test_uv_that_may_install_is_a_warning(project: Path) -> None:
    text = (project / "grid.yaml").read_text()
    (project / "grid.yaml").write_text(text.replace("--no-sync, ", ""))
    said = orchestrate(project, "check", "grid.yaml").stderr
    assert "`uv run` installs what has changed" in said
    assert "write [uv, run, --no-sync, …]" in said

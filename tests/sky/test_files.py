"""The task files in sky/, as a person launches them: what they rent, and from launch to results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.rundir import SweepDir
from tests import warm
from tests.audit import check_finished
from tests.helpers import PATIENCE_S, ROOT, wait_for
from tests.sky.bed import Bed

SENT = ("jobs", "orchestrator", "templates", "sky", "sweeps", "tests/commands", "constraints.txt")
STEPS = 400


def test_what_each_rents(bed: Bed) -> None:
    """By SkyPilot's own check of the file, and its own choice at the list's prices."""
    for name, machine, price in (
        ("bench_l4", "g6.xlarge", "0.80"),
        ("bucket_brigade", "g6.2xlarge", "0.98"),
        ("multiwalker", "m6i.2xlarge", "0.38"),
    ):
        said = bed.sky("launch", "--dryrun", "--yes", str(ROOT / "sky" / f"{name}.yaml"))
        (row,) = [line.split() for line in said.splitlines() if "✔" in line]
        assert machine in row
        assert price in row


@pytest.mark.parametrize("path", sorted((ROOT / "sky").iterdir()), ids=lambda path: path.name)
def test_each_goes_down_by_itself_and_holds_no_secret(path: Path) -> None:
    assert path.suffix == ".yaml"  # anything else, __init__.py above all, has no business there
    task = yaml.safe_load(path.read_text())
    assert task["resources"]["autostop"]["down"] is True
    assert task["resources"]["autostop"]["idle_minutes"] > 0
    assert set(task["secrets"].values()) == {""}
    assert all(task[shell].startswith("unset HISTFILE ") for shell in ("setup", "run"))
    assert (ROOT / task["envs"]["GRID"]).exists()


def project(folder: Path, pace: Path) -> Path:
    """What is sent of this project, with a grid of two small runs."""
    folder.mkdir()
    for name in SENT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, folder / name)
    command = ["python", "tests/commands/count.py", str(folder / "audit"), str(STEPS), str(pace), "5"]
    grid = {"name": "tiny", "trainer": "command", "base": {"command": command}, "matrix": {"seed": [0, 1]}}
    (folder / "sweeps" / "tiny.yaml").write_text(yaml.dump(grid))
    return folder


@pytest.mark.nightly
def test_by_hand_from_launch_to_results(bed: Bed, tmp_path: Path) -> None:
    """Ended in the middle and launched again, it goes on; `sync-results NAME` brings what it made."""
    pace = tmp_path / "pace"
    pace.write_text("1")
    sent = project(tmp_path / "project", pace)
    asked = ["--infra", "slurm/test", "--cpus", "2", "--memory", "4", "--workdir", str(sent)]
    asked += ["--env", "GRID=sweeps/tiny.yaml", "--env", f"ENVIRONMENT={warm.FRESH_PREFIX}"]
    launch = ["launch", "--yes", "--cluster", "walkers", *asked, str(ROOT / "sky" / "multiwalker.yaml")]
    bed.sky(*launch, "--detach-run", timeout=PATIENCE_S)
    found = "*/*/sky_workdir/results/tiny/runs/*/attempts/*/checkpoints/*.pt"
    wait_for(lambda: len(list(bed.server.home.glob(found))) >= 2, timeout=PATIENCE_S, what="a checkpoint")
    bed.sky("cancel", "--yes", "walkers", "1")
    (tmp_path / "new pace").write_text("0")
    (tmp_path / "new pace").replace(pace)
    assert "2/2 done" in bed.sky(*launch, "--fast", timeout=PATIENCE_S)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", "sync", "walkers", tmp_path / "home"],
        env={**os.environ, **bed.env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 runs are finished there" in done.stdout
    home = SweepDir(tmp_path / "home", "tiny")
    runs = [home.run(run_id).description() for run_id in home.run_ids()]
    check_finished(home, runs, sent / "audit", steps=STEPS)
    assert all(len(home.run(run.run_id).attempts()) == 2 for run in runs)

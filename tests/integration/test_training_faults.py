"""Real training through the commands, with its worker and its runs killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from orchestrator.rundir import SweepDir, depends_on_time
from tests import warm
from tests.helpers import ROOT, inodes, kill, wait_for

GRID = """
name: real
trainer: benchmarl
base:
  task: vmas/navigation
  experiment.max_n_frames: 1_200
  experiment.on_policy_collected_frames_per_batch: 120
  experiment.on_policy_n_envs_per_worker: 4
  experiment.on_policy_minibatch_size: 60
  experiment.on_policy_n_minibatch_iters: 2
  experiment.off_policy_collected_frames_per_batch: 120
  experiment.off_policy_n_envs_per_worker: 4
  experiment.off_policy_n_optimizer_steps: 4
  experiment.off_policy_train_batch_size: 32
  experiment.evaluation_interval: 240
  experiment.evaluation_episodes: 2
  experiment.checkpoint_interval: 120
  experiment.loggers: [csv]
  task.max_steps: 20
matrix:
  algorithm: [mappo, iql]
  seed: range(2)
"""
KILLS = 4


def orchestrate(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
        cwd=folder,
        env={**os.environ, **warm.WORKERS, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def metrics(folder: Path) -> pl.DataFrame:
    """All that is a function of the runs' identities, bit for bit."""
    table = pl.read_parquet(folder / "results" / "real" / "metrics.parquet").drop("sweep", "wall_time")
    decided = [name for name in table["name"].unique().to_list() if not depends_on_time(name)]
    return table.filter(pl.col("name").is_in(decided)).sort("run_id", "iteration", "name")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[dict[str, Path]]:
    found = {name: tmp_path / name for name in ("undisturbed", "killed")}
    for folder in found.values():
        folder.mkdir()
        (folder / "grid.yaml").write_text(GRID)
    yield found
    for folder in found.values():
        for pid in workers(folder):
            kill(pid)


def workers(folder: Path) -> list[int]:
    holders = [log.holder for log in SweepDir(folder / "results", "real").read_journals()]
    return [holder.pid for holder in holders if holder is not None and holder.alive()]


def rows_written(folder: Path) -> int:
    runs = folder / "results" / "real" / "runs"
    return sum(path.read_bytes().count(b"\n") for path in runs.glob("*/attempts/*/metrics.jsonl"))


def victims(folder: Path) -> list[int]:
    """The worker and the processes of its runs."""
    found = workers(folder)
    for path in (folder / "results" / "real" / "runs").glob("*/attempts/*/claim"):
        pid = json.loads(path.read_text())["holder"]["pid"]
        if not (path.parent / "end.json").exists() and Path(f"/proc/{pid}").exists():
            found.append(pid)
    return found


@pytest.mark.nightly
def test_killed_at_random_equals_undisturbed(folders: dict[str, Path]) -> None:
    finish(orchestrate(folders["undisturbed"], "sweep", "--grid", "grid.yaml"))
    generator, folder = random.Random(20), folders["killed"]
    process = orchestrate(folder, "sweep", "--grid", "grid.yaml")
    killed = 0
    for _ in range(KILLS):
        goal = rows_written(folder) + generator.randint(2, 7)
        follower = process
        wait_for(lambda: rows_written(folder) >= goal or follower.poll() is not None, 120)  # noqa: B023
        living = victims(folder)
        if living:
            killed += kill(generator.choice(living), signal.SIGKILL)
        if process.poll() is not None:
            process = orchestrate(folder, "sweep", "--grid", "grid.yaml")
    output, _ = process.communicate(timeout=600)
    finish(orchestrate(folder, "sweep", "--grid", "grid.yaml"))
    assert killed == KILLS, output
    for each in folders.values():
        finish(orchestrate(each, "collect", "real"))
    assert metrics(folder).equals(metrics(folders["undisturbed"]))
    results = pl.read_parquet(folder / "results" / "real" / "results.parquet")
    assert results["state"].to_list() == ["done"] * 4
    assert results["attempts"].sum() > 4, "no run was hit"
    sweep = SweepDir(folders["undisturbed"] / "results", "real")
    assert max(inodes(sweep.run(run_id).path) for run_id in sweep.run_ids()) <= 12

"""Jobs on nodes without a network, not even a loopback: they train to the end, their logs are whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from orchestrator.rundir import Row, RunDir
from tests import offline_wandb
from tests.helpers import ROOT, unpack, unshared, wait_for
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab
from tests.tiny_benchmarl import NAVIGATION_MAPPO

ITERATIONS = 6
# What a person may have set for other work. None of it may make a run wait for a network that is not there.
ONLINE = {"WANDB_MODE": "online", "WANDB_API_KEY": "0123456789abcdef" * 2 + "01234567"}
CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 5)"

# A program of another Python, which has a package of its own and no network.
OWN_PYTHON = """import errno, socket, sys
import only_here
from orchestrate_run import run
run.resume()
try:
    found = socket.create_connection(("192.0.2.1", 80), 5)
except OSError as error:
    found = error.errno
run.log(1, own=sys.prefix.endswith(".venv"), unreachable=found == errno.ENETUNREACH)
"""


def air_gap(lab: Lab) -> None:
    lab.profile(python=[*unshared("--net"), sys.executable])


def logged_grid(lab: Lab) -> None:
    base = {**NAVIGATION_MAPPO, "experiment.max_n_iters": ITERATIONS}
    base["experiment.loggers"] = ["csv", "wandb", "tensorboard"]
    lab.write_grid("logged", "benchmarl", base, {"seed": [0]})


def test_a_run_without_a_network(lab: Lab, slurm: Cluster) -> None:
    air_gap(lab)
    connect = [sys.executable, "-c", CONNECT.format(port=slurm.ports.slurmctld)]
    lab.write_grid("net", "command", {"command": connect}, {"seed": [0]})
    lab.sweep("net")
    logged_grid(lab)
    lab.sweep("logged", env=ONLINE)
    lab.wait_done("logged")
    wait_for(lambda: lab.states("net") == ["failed"], what="the program that wants a network")
    [net] = run_dirs(lab, "net")
    [logged] = run_dirs(lab, "logged")
    assert "api.wandb.ai cannot be reached" in logged.attempts()[-1].log.read_text()
    assert "Network is unreachable" in net.attempts()[-1].log.read_text()
    check_logs(lab, attempts=1)
    wait_for(lambda: not slurm.queue(), what="the end of all jobs")


def test_programs_of_other_pythons_without_a_network(
    lab: Lab, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A venv, and uv with and without the leave to look at the environment."""
    air_gap(lab)
    venv.create(lab.folder / ".venv", symlinks=True)
    [packages] = lab.folder.glob(".venv/lib/python*/site-packages")
    (packages / "only_here.py").touch()
    (lab.folder / "train.py").write_text(OWN_PYTHON)
    (lab.folder / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    (lab.folder / ".gitignore").write_text(".venv\nresults\n")
    subprocess.run(["git", "init", "-q", lab.folder], check=True)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    starts = [".venv/bin/python"], ["uv", "run", "--no-sync"], ["uv", "run", "--offline"]
    lab.write_grid("own", "command", {"seed": 0}, {"command": [[*start, "train.py"] for start in starts]})
    lab.sweep("own")
    wait_for(lambda: not {"queued", "running"} & set(lab.states("own")), what="the end of all programs")
    for run in run_dirs(lab, "own"):
        rows = [row.metrics for row in run.history()]
        assert rows == [{"own": 1, "unreachable": 1}], run.attempts()[-1].log.read_text()
    assert lab.states("own") == ["done"] * len(starts)
    wait_for(lambda: not slurm.queue(), what="the end of all jobs")


@pytest.mark.nightly
def test_a_preempted_run_without_a_network_is_one_wandb_run(lab: Lab, slurm: Cluster, tmp_path: Path) -> None:
    air_gap(lab)
    logged_grid(lab)
    lab.sweep("logged")
    [run] = run_dirs(lab, "logged")
    wait_for(run.checkpoints, what="a checkpoint")
    urgent = tmp_path / "urgent.sh"
    urgent.write_text("#!/bin/sh\nsleep 1\n")
    slurm.run("sbatch", "--partition=urgent", "--array=0-1", "--cpus-per-task=2", urgent, cwd=tmp_path)
    lab.wait_done("logged")
    check_logs(lab, attempts=2)


@pytest.mark.nightly
def test_checking_asks_no_network(lab: Lab) -> None:
    base = {"task": "vmas/navigation", "algorithm": "mappo", "experiment": "gpu_offline"}
    lab.write_grid("gpu", "benchmarl", base, {"seed": [0]})
    check = [*unshared("--net"), sys.executable, "-m", "orchestrator.ui.cli", "check", "gpu.yaml"]
    done = subprocess.run(
        check, cwd=lab.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert "1 run in 1 structure, checked in" in done.stdout, done.stderr


def check_logs(lab: Lab, attempts: int) -> None:
    """The result, W&B's run and TensorBoard's events tell the same, each step once."""
    [run] = run_dirs(lab, "logged")
    result = run.result()
    assert result is not None
    run.verify(result, checksums=True)
    assert len(run.attempts()) == attempts
    assert [piece.attempt for piece in run.chain()] == list(range(1, attempts + 1))
    rows = run.history()
    assert [row.iteration for row in rows] == list(range(ITERATIONS))
    check_wandb(run, rows, lab.folder / "unpacked")
    check_tensorboard(run, rows)


def check_wandb(run: RunDir, rows: list[Row], unpacked: Path) -> None:
    unpack(run.attempts()[-1].wandb_packed, unpacked)
    records = list(offline_wandb.records(unpacked / "wandb"))
    [header] = [record.run for record in records if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in header.config.update}
    steps = [offline_wandb.values(record.history.item) for record in records if record.HasField("history")]
    summary: dict[str, Any] = {}
    for record in records:
        if record.HasField("summary"):
            summary |= offline_wandb.values(record.summary.update)

    assert (header.run_id, header.run_group) == (f"logged-{run.run_id}", "logged")
    assert config["orchestrate"]["run_id"] == run.run_id
    assert config["orchestrate"]["attempt"] == run.attempts()[-1].number
    assert config["experiment_config"]["max_n_iters"] == ITERATIONS
    assert config["task_config"]["max_steps"] == 20
    assert [step["_step"] for step in steps] == list(range(ITERATIONS))
    assert [
        {name: step[name] for name in offline_wandb.finite(row.metrics)}
        for step, row in zip(steps, rows, strict=True)
    ] == [offline_wandb.finite(row.metrics) for row in rows]
    assert summary["counters/total_frames"] == rows[-1].frames
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0]


def check_tensorboard(run: RunDir, rows: list[Row]) -> None:
    [events] = run.attempts()[-1].event_files()
    seen: dict[str, list[int]] = {}
    for event in EventFileLoader(str(events)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                seen.setdefault(value.tag, []).append(event.step)
    names = {name for row in rows for name in row.metrics}
    assert seen == {
        name.replace("/", "_"): [row.iteration for row in rows if name in row.metrics] for name in names
    }


def run_dirs(lab: Lab, name: str) -> list[RunDir]:
    sweep = lab.dir(name)
    return [sweep.run(run_id) for run_id in sweep.run_ids()]

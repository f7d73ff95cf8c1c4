"""The choices of `experiment` that come with the program: what they set, and that they train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rundir import RunDir
from tests import warm

GRID = """
name: presets
trainer: benchmarl
base: {{algorithm: ippo, task: vmas/navigation, task.max_steps: 20, {more}}}
matrix: {{experiment: [{presets}]}}
"""
# What `debug` sets of itself, for presets that leave BenchMARL's sizes as they are.
SMALL = (
    "experiment.max_n_frames: 400, experiment.on_policy_collected_frames_per_batch: 200, "
    "experiment.on_policy_n_envs_per_worker: 2, experiment.on_policy_n_minibatch_iters: 1, "
    "experiment.on_policy_minibatch_size: 100, experiment.evaluation_interval: 200"
)


def orchestrate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, **warm.COMMANDS},
        capture_output=True,
        text=True,
        timeout=600,
    )


def write(folder: Path, presets: str, more: str = "seed: 0") -> None:
    (folder / "grid.yaml").write_text(GRID.format(presets=presets, more=more))


def test_check_takes_every_preset_and_a_machine_without_a_gpu_skips_those_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write(tmp_path, "gpu, gpu_offline, debug, no_log")
    done = orchestrate(tmp_path, "check", "grid.yaml")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert len(report["to_do"]) == len(report["skipped"]) == 2
    assert all("needs a GPU" in why for why in report["skipped"].values())


@pytest.mark.nightly
def test_what_they_set() -> None:
    code = (
        "import json\n"
        "from jobs.trainers.benchmarl.configuration.config import compose\n"
        "from orchestrator.config.trainers.benchmarl import BENCHMARL\n"
        "base = {'algorithm': 'ippo', 'task': 'vmas/navigation'}\n"
        "names = ('base_experiment', 'gpu', 'gpu_offline', 'debug', 'no_log')\n"
        "runs = {name: BENCHMARL.identify({**base, 'experiment': name}, 0, 1) for name in names}\n"
        "print(json.dumps({name: compose(run).plain['experiment'] for name, run in runs.items()}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    presets: dict[str, dict[str, Any]] = json.loads(done.stdout)
    changed = {
        name: {key: value for key, value in preset.items() if value != presets["base_experiment"][key]}
        for name, preset in presets.items()
    }
    on_gpu = {"sampling_device": "cuda", "train_device": "cuda", "buffer_device": "cuda"}
    assert changed["gpu"] == on_gpu
    assert changed["gpu_offline"] == {**on_gpu, "wandb_extra_kwargs": {"offline": True}}
    assert changed["no_log"] == {"loggers": [], "create_json": False, "evaluation": False}
    assert changed["debug"]["max_n_frames"] == 2 * changed["debug"]["on_policy_collected_frames_per_batch"]
    assert changed["debug"]["loggers"] == ["csv"]


@pytest.mark.nightly
def test_those_for_a_cpu_train(tmp_path: Path) -> None:
    write(tmp_path, "debug, no_log", SMALL)
    done = orchestrate(tmp_path, "sweep", "--grid", "grid.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = list(tmp_path.glob("results/presets/runs/*"))
    assert len(runs) == 2
    for run in runs:
        result = json.loads((run / "result.json").read_text())
        evaluates = result["config"]["choices"]["experiment"] == "debug"
        attempt = run / "attempts" / "1"
        rows = RunDir(run).history()
        assert [row.frames for row in rows] == [200, 400]
        assert any(name.startswith("eval/") for row in rows for name in row.metrics) is evaluates
        assert not (attempt / "wandb.tar").exists()
        assert not list(attempt.glob("events.out.tfevents.*"))

"""Typing errors of a grid for BenchMARL: told before PyTorch is loaded, each with what was meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.check import Problem
from jobs.trainers.benchmarl.configuration import values
from jobs.trainers.benchmarl.configuration.first_look import first_look
from jobs.training.records import loggers
from orchestrator.config.sweep import load_sweep
from orchestrator.core.records import plain
from orchestrator.core.types import Run

ROOT = Path(__file__).parents[4]
GOOD: dict[str, Any] = {"task": "vmas/navigation", "algorithm": "mappo"}

MISTAKES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"experiment.train_device": "gpu"}, "expected a device such as cpu, cuda", "did you mean cuda?"),
    ({"experiment.train_device": "GPU:1"}, "expected a device", "did you mean cuda:1?"),
    ({"experiment.train_device": "cuda0"}, "expected a device", "did you mean cuda:0?"),
    ({"experiment.train_device": 0}, "expected a device", None),
    ({"experiment.learning_rate": 0.1}, "no key 'experiment.learning_rate'", "did you mean experiment.lr?"),
    ({"learning_rate": 0.1}, "no key 'learning_rate'", "did you mean experiment.lr?"),
    ({"lr": 0.1}, "no key 'lr'", "did you mean experiment.lr?"),
    ({"experiment.total_timesteps": 1}, "no key", "did you mean experiment.max_n_frames?"),
    ({"experiment.num_envs": 1}, "no key", "did you mean experiment.on_policy_n_envs_per_worker?"),
    ({"experiment.device": "cuda"}, "no key", "did you mean experiment.train_device?"),
    ({"algorithm.gae_lambda": 0.9}, "no key", "did you mean algorithm.lmbda?"),
    ({"algorithm.clip_range": 0.9}, "no key", "did you mean algorithm.clip_epsilon?"),
    ({"clip_epsilon": 0.9}, "no key", "did you mean algorithm.clip_epsilon?"),
    ({"task.num_agents": 3}, "no key", "did you mean task.n_agents?"),
    ({"model.hidden_sizes": [8]}, "no key", "did you mean model.num_cells?"),
    ({"env": "vmas/navigation"}, "no key 'env'", "did you mean task?"),
    ({"gpu": 1}, "no key 'gpu'", "did you mean resources: {gpus: …}, at the top of the grid?"),
    ({"cpu": 4}, "no key 'cpu'", "did you mean resources: {cpus_per_task: …}, at the top of the grid?"),
    ({"mem": "8G"}, "no key 'mem'", "did you mean resources: {mem: …}, at the top of the grid?"),
    ({"script": "train.py"}, "no key 'script'", "a program of your own is trainer: command, and base:"),
    ({"experiment": {"lr": 0.1}}, "found a mapping of lr", "nested keys take dots"),
    ({"task": {"name": "x"}}, "found a mapping of name", "nested keys take dots"),
    ({"algorithm": ["mappo", "iql"]}, "expected one name", "a list of names goes into matrix"),
    ({"algorithm.mixing_embed_dim": 8}, "mappo has no such key; qmix has it", "leave it out for mappo"),
    ({"task.n_packages": 8}, "vmas/navigation has no such key; vmas/transport", "leave it out for vmas/navi"),
    ({"experiment.loggers": "wandb"}, "expected a list", "write experiment.loggers: [wandb]"),
    ({"experiment.loggers": ["wandbb"]}, "expected some of: csv", "did you mean wandb?"),
    ({"experiment.lr": -0.1}, "found -0.1, expected a number from 0", None),
    ({"experiment.lr": "fast"}, "found 'fast', expected a number", None),
    ({"experiment.lr": [1, 2]}, "found [1, 2], expected a number", None),
    ({"experiment.gamma": 1.5}, "expected a number from 0 to 1", None),
    ({"experiment.evaluation": "maybe"}, "expected true or false", None),
    ({"experiment.max_n_frames": 0}, "expected a whole number from 1", None),
    ({"task.n_agents": 0}, "found 0, expected a whole number from 1", None),
    ({"task.max_steps": -1}, "expected a whole number from 1", None),
    (
        {"task": "VmasTask"},
        "expected one of: 124 names, such as vmas/navigation",
        "name one of that family: vmas/n",
    ),
    ({"task": "VmasTask.NAVIGATION"}, "expected one of", "did you mean vmas/navigation?"),
    ({"task": "vmas"}, "expected one of", "name one of that family: vmas/navigation"),
    ({"task": "navigation"}, "expected one of", "did you mean vmas/navigation?"),
    ({"task": "multiwalker_v9"}, "expected one of", "did you mean pettingzoo/multiwalker?"),
    ({"task": "pettingzoo/knights_archers_zombies_v10"}, "expected one of", "did you mean kaz/vector"),
    ({"algorithm": "ppo"}, "expected one of", "did you mean mappo or ippo?"),
    ({"algorithm": "MAPPO"}, "expected one of", "did you mean mappo?"),
    ({"algorithm": "dqn"}, "expected one of", "did you mean iql, vdn or qmix?"),
    ({"model": "mlp"}, "expected one of", "did you mean layers/mlp?"),
    ({"experiment": "cuda"}, "expected one of", "did you mean gpu?"),
    ({"model.num_cells": 64}, "found 64, expected a list", "write model.num_cells: [64]"),
    ({"model.activation_class": "relu"}, "expected a class with its module", "did you mean torch.nn.ReLU?"),
    ({"experiment.loggers": True}, "expected a list", "write experiment.loggers: [csv, wandb]"),
    ({"minutes": "10m"}, "expected minutes of training above 0", None),
    ({"task": "mpe/simple_spread_v3"}, "expected one of", "did you mean vmas/simple_spread?"),
    ({"task": "smac/3m"}, "expected one of", "did you mean smacv2/terran_5_vs_5"),
    ({"task": "overcooked"}, "expected one of", "there are tasks of "),
    ({"critic_model": "layers/mlp"}, "no key 'critic_model'", "did you mean model@critic_model?"),
]
RIGHT: list[dict[str, Any]] = [
    {},
    {"experiment.lr": "3e-4"},
    {"experiment.lr": 0},
    {"experiment.train_device": "cuda:1", "experiment.buffer_device": "disk"},
    {"experiment.max_n_iters": None},
    {"experiment.evaluation": "off"},
    {"experiment.max_n_frames": "${experiment.on_policy_collected_frames_per_batch}"},
    {"+experiment.adam_extra_kwargs.weight_decay": 0.1},
    {"task": "kaz/vector", "model": "layers/extra_mlp", "model@critic_model": "layers/extra_mlp"},
    {"model": "sequence", "model/layers@model.layers.l1": "mlp", "model.layers.l1.num_cells": [8]},
    {"critic_model.num_cells": [8], "experiment": "debug", "minutes": 5},
]


def looked(overrides: dict[str, Any]) -> list[Problem]:
    return first_look([Run("0" * 16, "benchmarl", {**GOOD, **overrides}, 0, 1, None)])


@pytest.mark.parametrize(("overrides", "message", "hint"), MISTAKES)
def test_a_mistake_is_told_with_what_was_meant(
    overrides: dict[str, Any], message: str, hint: str | None
) -> None:
    (problem,) = looked(overrides)
    assert message in problem.message
    assert problem.early
    assert (problem.hint or "").startswith(hint or "")
    assert hint is not None or problem.hint is None


def test_another_word_for_algorithm_is_told() -> None:
    (problem,) = first_look(
        [Run("0" * 16, "benchmarl", {"task": "vmas/balance", "algo": "mappo"}, 0, 1, None)]
    )
    assert (problem.key, problem.hint) == ("algo", "algo → algorithm")


@pytest.mark.parametrize("overrides", RIGHT)
def test_what_is_right_is_left_to_the_thorough_check(overrides: dict[str, Any]) -> None:
    assert looked(overrides) == []


@pytest.mark.parametrize(
    ("name", "text", "keys", "hint"),
    [
        (
            "algorithm/my.yaml",
            "defaults: [mappo, _self_]\nentropy_coef: 0.01\n",
            {"algorithm": "my"},
            "algorithm: mappo, algorithm.entropy_coef: 0.01",
        ),
        ("sweeps/algorithm/my.yaml", "defaults: [mappo_config]\n", {"algorithm": "my"}, "algorithm: mappo ("),
        (
            "task/vmas/my.yaml",
            "defaults: [vmas_balance_config]\n",
            {"task": "vmas/my"},
            "task: vmas/balance (",
        ),
        ("conf/model/layers/my.yaml", "name: mlp\n", {"model": "layers/my"}, "model: layers/mlp ("),
        ("experiment/my.yaml", "lr: 1\n", {"experiment": "my"}, "my_marl/conf/experiment/my.yaml"),
        ("algorithm/my.yaml", "[", {"algorithm": "my"}, "plugins: ./my_marl"),
    ],
)
def test_a_file_beside_the_grid_is_answered_with_what_to_write(
    name: str, text: str, keys: dict[str, Any], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(parents=True)
    Path(name).write_text(text)
    [problem] = looked(keys)
    assert f"{name} is not read" in (problem.hint or "")
    assert hint in (problem.hint or "")


def test_every_typing_error_of_a_grid_is_told_at_once() -> None:
    runs = [
        Run("1" * 16, "benchmarl", {**GOOD, "experiment.gama": 1, "experiment.lr": "fast"}, 0, 1, None),
        Run("2" * 16, "benchmarl", {**GOOD, "algorithm": "mapo"}, 0, 1, None),
        Run("3" * 16, "benchmarl", {**GOOD, "experiment.gama": 1, "experiment.lr": "slow"}, 0, 1, None),
    ]
    assert {(one.key, one.run_id[0]) for one in first_look(runs)} == {
        ("experiment.gama", "1"),
        ("experiment.lr", "1"),
        ("experiment.lr", "3"),
        ("algorithm", "2"),
    }


@pytest.mark.parametrize("grid", sorted(path.name for path in (ROOT / "sweeps").glob("*.yaml")))
def test_the_grids_of_the_project_pass(grid: str) -> None:
    sweep = load_sweep(ROOT / "sweeps" / grid)
    if sweep.trainer == "benchmarl":
        assert first_look(sweep.runs) == []


def test_a_typing_error_is_told_before_pytorch_is_loaded() -> None:
    code = "import sys, runpy; runpy.run_module('jobs.check', run_name='__main__')"
    code += "; print(*sys.modules, file=sys.stderr)"
    run = Run("0" * 16, "benchmarl", {**GOOD, "experiment.gama": 1}, 0, 1, None)
    request = json.dumps({"trainer": "benchmarl", "plugins": [], "runs": [plain(run)]})
    done = subprocess.run(
        [sys.executable, "-c", code], input=request, capture_output=True, text=True, cwd=ROOT
    )
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["hint"] == "did you mean experiment.gamma?"
    loaded = set(done.stderr.split())
    assert "omegaconf" in loaded
    assert loaded & {"torch", "benchmarl", "torchrl", "tensordict"} == set()


def test_without_benchmarl_no_name_is_called_wrong() -> None:
    code = "import sys, runpy; sys.modules['benchmarl'] = None; "
    code += "runpy.run_module('jobs.check', run_name='__main__')"
    run = Run("0" * 16, "benchmarl", GOOD, 0, 1, None)
    request = json.dumps({"trainer": "benchmarl", "plugins": [], "runs": [plain(run)]})
    done = subprocess.run(
        [sys.executable, "-c", code], input=request, capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "ModuleNotFoundError" in done.stderr
    assert "benchmarl" in done.stderr


def test_the_names_of_loggers_are_those_of_the_loggers() -> None:
    assert set(values.LOGGERS) == {loggers.CSV, loggers.TENSORBOARD, loggers.WANDB}

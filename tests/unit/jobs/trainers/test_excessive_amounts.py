"""Amounts that no run has are named before the queue, and those of no grid of ours."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from jobs.check import MEMORY
from jobs.trainers.actor_critic import memory
from jobs.trainers.amounts import Amounts, excessive_amounts
from jobs.trainers.ppo.training import TRAINER
from orchestrator.config.check import distinct
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.core.types import Run
from tests.helpers import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # of TorchRL

FOUR_GB = 4_000
CARTPOLE, COINRUN, GAME = (
    f"task: {name}" for name in ("gymnasium/CartPole-v1", "procgen/coinrun", "bucket_brigade/hard")
)
OFTEN = "experiment.off_policy_collected_frames_per_batch: 100, experiment.checkpoint_interval: 100"
MAPPO, IQL = (f"task: vmas/navigation, algorithm: {name}" for name in ("mappo", "iql"))


def distinct_runs(trainer: str, base: str) -> Sequence[Run]:
    text = f"name: a\ntrainer: {trainer}\nbase: {{{base}}}\nmatrix: {{seed: [0, 1]}}\n"
    return tuple(distinct(runs_of(parse_grid(text, "a.yaml")).runs).values())


def amounts_of(run: Run) -> Amounts:
    if run.trainer == "benchmarl":
        from jobs.trainers.benchmarl.configuration import config, rules

        composed = config.compose(run)
        return rules.amounts_of(composed.experiment, composed.on_policy)
    config = import_module(f"jobs.trainers.{run.trainer}.config").CONFIG.compose(run.overrides)
    return memory.amounts_of(config)


def warned(runs: Sequence[Run]) -> dict[str | None, str]:
    found = excessive_amounts([(run, amounts_of(run)) for run in runs], FOUR_GB)
    return {one.key: one.message for one in found}


@pytest.mark.parametrize(
    ("trainer", "base", "key", "figure"),
    [
        ("ppo", f"{GAME}, envs: 1_000_000, rollout_steps: 1024", "envs", "1,024,000,000 frames"),
        (
            "ppo",
            f"{GAME}, evaluation_interval: 1, evaluation_episodes: 1_000_000",
            "evaluation_episodes",
            "16,384",
        ),
        (
            "ppo",
            f"{GAME}, minutes: 2, evaluation_episodes: 1_000_000",
            "evaluation_episodes",
            "100,000 frames",
        ),
        ("ppo", f"{COINRUN}, steps: 100_000_000, checkpoint_interval: 1", "checkpoint_interval", "24,414"),
        ("a2c", f"{CARTPOLE}, checkpoint_interval: 1", "checkpoint_interval", "125,000"),
        ("a2c", f"{CARTPOLE}, evaluation_interval: 1", "evaluation_interval", "80 frames"),
        ("a2c", f"{CARTPOLE}, rollout_steps: 50_000_000", "rollout_steps", "800,000,000 frames"),
        (
            "impala",
            f"{CARTPOLE}, envs: 2, batch_envs: 2, checkpoint_interval: 1",
            "checkpoint_interval",
            "39,062",
        ),
        (
            "benchmarl",
            f"{IQL}, experiment.off_policy_memory_size: 10_000_000_000",
            "experiment.off_policy_memory_size",
            "10,000,000,000 frames",
        ),
        (
            "benchmarl",
            f"{MAPPO}, ++experiment.evaluation_episodes: 1_000_000",
            "experiment.evaluation_episodes",
            "120,000 frames",
        ),
        (
            "benchmarl",
            f"{IQL}, {OFTEN}",
            "experiment.checkpoint_interval",
            "30,000",
        ),
    ],
)
def test_what_cannot_be_is_named_with_figures(trainer: str, base: str, key: str, figure: str) -> None:
    assert figure in warned(distinct_runs(trainer, base))[key]


@pytest.mark.parametrize(
    ("trainer", "base"),
    [
        ("ppo", f"{GAME}, envs: 4096, evaluation_interval: 0, evaluation_episodes: 1_000_000"),
        ("ppo", f"{GAME}, steps: 1000, envs: 8, rollout_steps: 16"),
        ("ppo", f"{GAME}, minutes: 2, envs: 1, rollout_steps: 1, checkpoint_interval: 1"),
        ("ppo", f"{GAME}, device: cuda, envs: 1_000_000, rollout_steps: 1024"),
        ("a2c", f"{CARTPOLE}, rollout_steps: 500_000"),
        ("impala", f"{CARTPOLE}, evaluation_interval: 1"),
        ("benchmarl", f"{MAPPO}, experiment.off_policy_memory_size: 10_000_000_000"),
        (
            "benchmarl",
            f"{IQL}, experiment.buffer_device: disk, experiment.off_policy_memory_size: 10_000_000_000",
        ),
        ("benchmarl", f"{MAPPO}, experiment.evaluation: false, experiment.evaluation_episodes: 1_000_000"),
        (
            "benchmarl",
            f"{IQL}, experiment.max_n_iters: 100, {OFTEN}",
        ),
        ("benchmarl", f"{IQL}, experiment.max_n_frames: null, experiment.max_n_iters: 10"),
        ("benchmarl", f"{MAPPO}, experiment: debug, experiment.checkpoint_interval: 200"),
    ],
)
def test_what_can_be_is_not(trainer: str, base: str) -> None:
    assert warned(distinct_runs(trainer, base)) == {}


@pytest.mark.parametrize("grid", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.name)
def test_no_grid_of_ours_is_warned_of(grid: Path) -> None:
    assert warned(tuple(distinct(load_sweep(grid).runs).values())) == {}


def test_a_check_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY, str(FOUR_GB))
    ppo = TRAINER.check(distinct_runs("ppo", f"{GAME}, envs: 1_048_576, rollout_steps: 1024"))
    from jobs.trainers.benchmarl.configuration.checking import check

    iql = check(distinct_runs("benchmarl", f"{IQL}, experiment.off_policy_memory_size: 10_000_000_000"))
    assert [(one.key, one.blocks) for one in ppo + iql] == [
        ("envs", False),
        ("experiment.off_policy_memory_size", False),
    ]

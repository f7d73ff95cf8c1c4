"""Amounts that no machine has are named before the queue, and no grid of ours is."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.amounts import excessive_amounts
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import expand, load_sweep
from tests.helpers import ROOT

FOUR_GB = 4_000


def warned(trainer: str, base: str) -> dict[str, str]:
    text = f"name: a\ntrainer: {trainer}\nbase: {{{base}}}\nmatrix: {{seed: [0, 1]}}\n"
    found = excessive_amounts(expand(parse_grid(text, "a.yaml")), FOUR_GB)
    return {str(one["key"]): str(one["message"]) for one in found}


@pytest.mark.parametrize(
    ("trainer", "base", "key", "figure"),
    [
        ("ppo", "task: x, envs: 1_000_000, rollout_steps: 1024", "envs", "1,024,000,000 frames"),
        (
            "ppo",
            "task: x, evaluation_interval: 1, evaluation_episodes: 1_000_000",
            "evaluation_episodes",
            "1,000,000",
        ),
        (
            "a2c",
            "task: x, envs: 1, rollout_steps: 1, checkpoint_interval: 1",
            "checkpoint_interval",
            "10,000,000",
        ),
        (
            "benchmarl",
            "algorithm: iql, task: vmas/navigation, experiment.off_policy_memory_size: 10_000_000_000",
            "experiment.off_policy_memory_size",
            "10,000,000,000 frames",
        ),
        (
            "benchmarl",
            "algorithm: mappo, task: vmas/navigation, experiment.evaluation_episodes: 1_000_000",
            "experiment.evaluation_episodes",
            "25 evaluations of 1,000,000 episodes",
        ),
    ],
)
def test_what_cannot_be_is_named_with_figures(trainer: str, base: str, key: str, figure: str) -> None:
    assert figure in warned(trainer, base)[key]


@pytest.mark.parametrize(
    ("trainer", "base"),
    [
        ("ppo", "task: x, envs: 4096, evaluation_interval: 0, evaluation_episodes: 1_000_000"),
        ("ppo", "task: x, steps: 1000, envs: 8, rollout_steps: 16"),
        (
            "benchmarl",
            "algorithm: mappo, task: vmas/navigation, experiment.off_policy_memory_size: 10_000_000_000",
        ),
        ("command", "command: [sh, -c, ':'], envs: 1_000_000_000, steps: 1_000_000"),
    ],
)
def test_what_can_be_is_not(trainer: str, base: str) -> None:
    assert warned(trainer, base) == {}


@pytest.mark.parametrize("grid", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.name)
def test_no_grid_of_ours_is_warned_of(grid: Path) -> None:
    assert excessive_amounts(load_sweep(grid), 8_000) == []

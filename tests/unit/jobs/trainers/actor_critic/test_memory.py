"""Advice on the number of environments by memory, before a run starts."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.check import MEMORY
from jobs.trainers.actor_critic.memory import memory_warning
from jobs.trainers.impala.config import CONFIG as IMPALA
from jobs.trainers.ppo.config import CONFIG
from orchestrator.config.check import check_sweep
from orchestrator.config.trainers import get_trainer
from orchestrator.config.trainers.actor_critic import PPO
from orchestrator.core.types import Resources, Sweep

COINRUN = {"task": "procgen/coinrun", "evaluation_interval": 0}


@pytest.mark.parametrize(
    ("keys", "available", "told", "hint"),
    [
        ({"envs": 256}, 2048, None, ""),
        (
            {"envs": 256},
            1024,
            "256 envs of procgen/coinrun with 128 rollout_steps take about 1.4 GB",
            "envs: 64",
        ),
        (
            {"envs": 4096, "rollout_steps": 16},
            4096,
            "about 7.4 GB of memory, and a run has 4.0 GB",
            "mem: 8G",
        ),
        (
            {"envs": 32, "evaluation_interval": 10, "evaluation_episodes": 600},
            1024,
            "about 1.7 GB",
            "ask for",
        ),
        ({"envs": 32, "actors": 4, "mode": "parallel"}, 1024, "about 1.2 GB", "ask for"),
        ({"task": "bucket_brigade/hard", "envs": 65536}, 100, None, ""),
    ],
)
def test_a_run_is_told_to_be_too_large(
    keys: dict[str, Any], available: int, told: str | None, hint: str
) -> None:
    run = PPO.identify({**COINRUN, **keys}, 0, 1)
    found = memory_warning(run, CONFIG.compose(run.overrides), available)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert told in found.message
        assert hint in str(found.hint)
        assert not found.blocks


# MB that runs of impala took at their peak (PSS of all processes), on CoinRun with 128 steps.
TAKEN = [
    ({"envs": 32}, 855),
    ({"envs": 32, "network": "resnet"}, 2162),
    ({"envs": 32, "network": "resnet", "batch_envs": 2}, 1174),
    ({"envs": 128, "mode": "parallel", "max_lag": 1}, 1419),
    ({"envs": 128, "mode": "parallel", "max_lag": 4}, 2013),
]


@pytest.mark.parametrize(("keys", "taken"), TAKEN)
def test_the_estimate_is_about_what_a_run_takes(keys: dict[str, Any], taken: int) -> None:
    run = get_trainer("impala").identify({**COINRUN, **keys}, 0, 1)
    config = IMPALA.compose(run.overrides)
    assert memory_warning(run, config, int(0.9 * taken)) is not None
    assert memory_warning(run, config, int(1.2 * taken)) is None


def test_the_check_has_the_memory_that_the_grid_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEMORY, raising=False)
    runs = tuple(PPO.identify({**COINRUN, "envs": envs}, 0, 1) for envs in (32, 512, 1024))
    sweep = Sweep("large", "ppo", runs, "", resources=Resources(mem="1G"))
    report = check_sweep(sweep)
    assert not report.problems
    (warning,) = report.warnings
    assert warning.message.startswith("512 envs of procgen/coinrun")

"""Advice on what makes a training slow, before a run starts: products in 16 bits, tiny batches."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.check import ELSEWHERE
from jobs.trainers.actor_critic import trainer
from jobs.trainers.actor_critic.trainer import batch_warning, precision_warning
from jobs.trainers.ppo.config import CONFIG
from orchestrator.config.trainers.actor_critic import PPO

COINRUN = {"task": "procgen/coinrun", "precision": "bf16"}


@pytest.mark.parametrize(
    ("keys", "times", "elsewhere", "told"),
    [
        ({}, 12.3, False, "12 times slower"),
        ({}, 0.6, False, ""),
        ({}, 1.2, False, ""),
        ({}, 0.6, True, "not known here"),
        ({"precision": "fp32"}, 12.3, False, ""),
        ({"precision": "fp32"}, 12.3, True, ""),
        ({"device": "cuda"}, 12.3, False, ""),
    ],
)
def test_slow_products_are_told_by_measurement(
    keys: dict[str, Any], times: float, elsewhere: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "slowdown", lambda _: times)
    if elsewhere:
        monkeypatch.setenv(ELSEWHERE, "1")
    run = PPO.identify({**COINRUN, **keys}, 0, 1)
    found = precision_warning(run, CONFIG.compose(run.overrides))
    assert bool(found) is bool(told)
    if found is not None:
        assert told in found.message
        assert (found.key, found.blocks) == ("precision", False)


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        ({}, False),
        ({"batch_size": 4}, True),
        ({"batch_size": 64, "actors": 16, "envs": 64, "mode": "parallel"}, True),
        ({"batch_size": 8, "envs": 1, "rollout_steps": 128}, False),
        ({"batch_size": 16}, False),
    ],
)
def test_tiny_batches_are_told(keys: dict[str, Any], is_told: bool) -> None:
    run = PPO.identify({"task": "gymnasium/CartPole-v1", "rollout_steps": 128, "envs": 16, **keys}, 0, 1)
    found = batch_warning(run, CONFIG.compose(run.overrides))
    assert (found is not None) is is_told

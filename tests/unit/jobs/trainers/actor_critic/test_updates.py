"""The updates of the trainers against each other, where they are the same."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from jobs.trainers.a2c.training import CONFIG as A2C
from jobs.trainers.a2c.training import A2cLearner
from jobs.trainers.actor_critic.group import ALONE
from jobs.trainers.impala.training import CONFIG as IMPALA
from jobs.trainers.impala.training import ImpalaLearner, ImpalaUpdate
from jobs.trainers.ppo import training as ppo

SAME: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "task.opponents": 2,
    "envs": 6,
    "rollout_steps": 8,
    "hidden": [8],
    "lr": 1e-2,
    "max_gradient_norm": 0.5,
}


def test_impala_in_one_chunk_is_a2c() -> None:
    """The network that learns is then the one that played, and V-trace is the return of many steps."""
    a2c = A2cLearner(A2C.compose(SAME), 0)
    impala = ImpalaUpdate(IMPALA.compose({**SAME, "batch_envs": 6}), deepcopy(a2c.policy), ALONE)
    for _ in range(3):
        rollout, _ = collected = a2c.collect()
        found = impala(rollout, torch.Generator())
        expected = a2c.learn(collected, 0.0)
        assert found["loss/value"] == pytest.approx(expected["loss/value"], rel=1e-3)
        assert found["train/rho"] > 0.99
    torch.testing.assert_close(impala.network.state_dict(), a2c.policy.state_dict(), rtol=1e-3, atol=1e-4)


def test_later_chunks_weigh_steps_by_how_likely_they_have_become() -> None:
    learner = ImpalaLearner(IMPALA.compose({**SAME, "batch_envs": 1, "lr": 0.1}), 0)
    found = learner.learn(learner.collect(), 0.0)
    assert found["train/rho"] < 0.95
    assert found["train/approx_kl"] > 0.01


def test_a_batch_in_parts_is_like_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rows in (48, 20):
        monkeypatch.setattr(ppo, "at_once", lambda _, rows=rows: rows)
        learner = ppo.PpoLearner(ppo.CONFIG.compose({**SAME, "batch_size": 48}), 0)
        found.append((learner.learn(learner.collect(), 0.0)["loss/policy"], learner.policy.state_dict()))
    torch.testing.assert_close(*found)

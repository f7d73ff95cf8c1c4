"""The updates of the trainers against each other, where they are the same."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.trainers.a2c.training import CONFIG as A2C
from jobs.trainers.a2c.training import A2cLearner
from jobs.trainers.actor_critic import learner as learners
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.environments.interface import Step
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
LEARNERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a2c": (A2C, A2cLearner, {}),
    "impala": (IMPALA, ImpalaLearner, {"batch_envs": 3}),
    "ppo": (ppo.CONFIG, ppo.PpoLearner, {"batch_size": 24}),
}


class Scaled:
    """Environments with rewards and observations in other units."""

    def __init__(self, environments: Any, rewards: float, seen: float) -> None:
        self._environments, self._rewards, self._seen = environments, rewards, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)

    def reset(self) -> Tensor:
        seen: Tensor = self._environments.reset() * self._seen
        return seen

    def step(self, actions: Tensor) -> Step:
        step: Step = self._environments.step(actions)
        rewards, seen = step.rewards * self._rewards, step.seen * self._seen
        return replace(step, rewards=rewards, seen=seen, last=lambda: step.last() * self._seen)


@pytest.mark.parametrize("trainer", LEARNERS)
@pytest.mark.parametrize("task", [{"task": "gymnasium/Acrobot-v1"}, {}], ids=["acrobot", "brigade"])
@pytest.mark.parametrize(
    ("rewards", "seen"), [(2.0**10, 1.0), (2.0**-10, 1.0), (1.0, 2.0**-10), (2.0**-30, 2.0**20)]
)
def test_learning_is_free_of_scales(
    trainer: str, task: dict[str, Any], rewards: float, seen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, as these scales are powers of two."""
    keys, kind, own = LEARNERS[trainer]
    base = {name: value for name, value in SAME.items() if not task or name != "task.opponents"}
    config, found = keys.compose({**base, **own, **task}), []
    for scales in ((1.0, 1.0), (rewards, seen)):
        monkeypatch.setattr(learners, "build", lambda *of, scales=scales: Scaled(build(*of), *scales))
        learner = kind(config, 0)
        losses = [learner.learn(learner.collect(), 0.0) for _ in range(4)]
        found.append((losses[-1]["loss/policy"], losses[-1]["loss/value"], *learner.policy.parameters()))
    assert all(map(torch.equal, map(torch.as_tensor, found[0]), map(torch.as_tensor, found[1])))
    assert found[0][0] != 0


@pytest.mark.parametrize("trainer", LEARNERS)
@pytest.mark.parametrize("before", [(0.0, 0.0), (-500.0, 1e6)], ids=["fresh", "drifted"])
def test_policies_learn_alike_whatever_returns_were_before(trainer: str, before: tuple[float, float]) -> None:
    """Advantages are scaled by their own deviation: a wrong value of all states takes nothing from them."""
    keys, kind, own = LEARNERS[trainer]
    learner = kind(keys.compose({**SAME, **own}), 0)
    mean, variance = (torch.tensor([one]) for one in before)
    learner.policy.returns.update(1_000_000, mean, variance)
    rollout, _ = learner.collect()
    gained = torch.randn(rollout.rewards.numel(), generator=torch.Generator().manual_seed(0))
    found = learner._update.standardized(gained + 40)
    assert float(found.mean()) == pytest.approx(0, abs=1e-5)
    assert float(found.std(correction=0)) == pytest.approx(1, abs=1e-5)
    other = kind(keys.compose({**SAME, **own}), 0)._update.standardized(0.01 * gained)
    torch.testing.assert_close(found, other, rtol=1e-3, atol=1e-4)


def test_noise_of_an_update_counts_by_the_deviation_of_those_before() -> None:
    """But for PPO, whose updates are of many rows."""
    gained = torch.randn(500, generator=torch.Generator().manual_seed(0))
    a2c, ppo_update = (
        kind(keys.compose({**SAME, **own}), 0)._update
        for keys, kind, own in (LEARNERS["a2c"], LEARNERS["ppo"])
    )
    for update in (a2c, ppo_update):
        update.standardized(gained)
    assert float(ppo_update.standardized(0.01 * gained).std(correction=0)) == pytest.approx(1, rel=1e-3)
    assert float(a2c.standardized(0.01 * gained).std(correction=0)) == pytest.approx(0.01414, rel=1e-2)
    for _ in range(2000):
        found = a2c.standardized(0.01 * gained)
    assert float(found.std(correction=0)) == pytest.approx(1, rel=1e-2)


def test_advantages_that_are_alike_but_for_rounding_are_nothing() -> None:
    learner = A2cLearner(A2C.compose(SAME), 0)
    learner.policy.returns.update(100, torch.tensor([1000.0]), torch.tensor([4.0]))
    gained = 1 + torch.tensor([0.0, 6e-5, -6e-5])  # as far apart as numbers near 1,000 of single precision
    assert learner._update.standardized(gained).tolist() == [0, 0, 0]


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

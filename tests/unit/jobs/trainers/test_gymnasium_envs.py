"""Gymnasium's tasks side by side: equal to Gymnasium by itself, and restored by a replay."""

from __future__ import annotations

import io
import sys

import gymnasium
import pytest
import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments import build
from jobs.trainers.actor_critic.gymnasium_envs import TASKS, Gymnasium, GymnasiumConfig
from jobs.trainers.actor_critic.interface import Step
from jobs.training.context import BadConfigError
from orchestrator.core.installation import install_package

ENVS = 3


def made(task: str, seed: int = 0) -> Gymnasium:
    return Gymnasium(GymnasiumConfig(f"gymnasium/{task}"), ENVS, seed, "cpu")


def actions_of(task: str, steps: int) -> Tensor:
    random = torch.Generator().manual_seed(7)
    return torch.randint(0, *made(task).parts, (steps, ENVS, 1), generator=random)


def values(step: Step) -> list[Tensor]:
    return [step.seen, step.last(), step.rewards, step.terminated, step.truncated]


@pytest.mark.parametrize("task", TASKS)
def test_they_are_what_gymnasium_plays(task: str) -> None:
    environments, plain = made(task), gymnasium.make(task)
    seen = environments.reset()
    start = environments.state_dict()["starts"][1]
    plain.unwrapped.np_random.bit_generator.state = start
    assert torch.equal(seen[1], torch.tensor(plain.reset()[0]))
    ended = 0
    for actions in actions_of(task, 600):
        step = environments.step(actions)
        found, reward, terminated, truncated, _ = plain.step(int(actions[1]))
        assert torch.equal(step.last()[1], torch.tensor(found))
        assert (step.rewards[1], step.terminated[1], step.truncated[1]) == (reward, terminated, truncated)
        if terminated or truncated:
            ended, found = ended + 1, plain.reset()[0]
        assert torch.equal(step.seen[1], torch.tensor(found))
    assert ended


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_state_continues_bit_for_bit(task: str) -> None:
    one, other = made(task), made(task, seed=1)
    assert not torch.equal(one.reset(), other.reset())
    played = actions_of(task, 1100)
    for actions in played[:250]:
        one.step(actions)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for actions in played[250:]:
        for left, right in zip(values(one.step(actions)), values(other.step(actions)), strict=True):
            assert torch.equal(left, right)


def test_a_replay_that_leads_elsewhere_is_refused() -> None:
    environments = made("CartPole-v1")
    environments.reset()
    environments.step(torch.zeros(ENVS, 1, dtype=torch.int64))
    saved = environments.state_dict()
    saved["actions"][2] = torch.ones(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="a replay of CartPole-v1 leads elsewhere"):
        made("CartPole-v1").load_state_dict(saved)


def test_an_episode_over_in_both_ways_is_terminated() -> None:
    environments = made("CartPole-v1")
    environments.reset()
    environments.step(torch.ones(ENVS, 1, dtype=torch.int64))
    for env in environments._envs:
        env._elapsed_steps = env._max_episode_steps - 1
    environments._envs[0].unwrapped.state = (9.0, 0.0, 0.0, 0.0)
    step = environments.step(torch.ones(ENVS, 1, dtype=torch.int64))
    assert step.terminated.tolist() == [True, False, False]
    assert step.truncated.tolist() == [False, True, True]


def test_gymnasium_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(BadConfigError, match="gymnasium is not installed") as raised:
        build(GymnasiumConfig("gymnasium/CartPole-v1"), 1, 0, "cpu")
    assert raised.value.hint == install_package("gymnasium")

"""Environments continue from what was saved of them: VMAS without a reset, PettingZoo by replay."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from pettingzoo import ParallelEnv
from torchrl.envs import PettingZooWrapper
from torchrl.envs.libs.vmas import VmasEnv

from jobs.trainers.benchmarl.engine.environments import Environments, logged
from jobs.trainers.benchmarl.engine.random_states import load_vmas_random, save_vmas_random
from jobs.trainers.benchmarl.engine.replay import ReplayError
from jobs.trainers.benchmarl.engine.snapshot import ObjectGraph, SnapshotError

# TorchRL and VMAS warn of their dependencies' versions; that is theirs to say.
pytestmark = pytest.mark.filterwarnings("ignore")

# Between them: joints, lidars, controllers, scripted agents, splines, distributions made anew at every reset.
SCENARIOS = ("navigation", "balance", "ball_trajectory", "flocking", "football", "sampling", "simple_tag")


def on_disk(value: Any) -> Any:
    """The value as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# VMAS


def vmas(name: str) -> Any:
    return VmasEnv(scenario=name, num_envs=3, continuous_actions=True, seed=0, device="cpu", max_steps=20)


def play(env: Any, actions: list[Any]) -> list[Any]:
    seen = []
    for number, action in enumerate(actions):
        seen.append(env.step(action.clone())["next"])
        if number == len(actions) // 2:
            env._env.reset_at(1)
    return seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_vmas_environment_goes_on_as_if_nothing_had_been(name: str) -> None:
    env = vmas(name)
    environments = Environments(env, repeat=True)
    start = env.reset()
    actions = [env.rand_action(start.empty()) for _ in range(24)]
    play(env, actions[:12])
    saved = on_disk({"state": environments.save(), "random": save_vmas_random()})
    expected = play(env, actions[12:])

    again = vmas(name)
    resumed = Environments(again, repeat=True)
    resumed.load(saved["state"])
    load_vmas_random(saved["random"])

    for one, other in zip(expected, play(again, actions[12:]), strict=True):
        for key in one.keys(True, True):
            assert torch.equal(one[key].nan_to_num(), other[key].nan_to_num()), key


class Thing:
    """An object as scenarios have them."""

    def __init__(self) -> None:
        self.numbers = [1, 2.5, None]
        self.table: dict[Any, Any] = {"self": self, 1: (2, "three")}
        self.memory: deque[int] = deque([1], maxlen=3)
        self.tensor = torch.zeros(3)
        self.view = self.tensor[1:]
        self.array = np.arange(3, dtype=np.int16)
        self.generator = np.random.default_rng(1)
        self.kinds = {int, str}
        self.function = len


def test_aliases_views_containers_and_generators_come_back() -> None:
    thing = Thing()
    graph = ObjectGraph(thing, (Thing.__module__.split(".")[0],))
    thing.tensor += 4
    thing.numbers.append("more")
    thing.late = shared = [7]
    thing.table["late"] = shared
    thing.memory.extend([2, 3, 4])
    thing.generator.random(5)
    saved = on_disk(graph.save())
    expected = thing.generator.random()

    other = Thing()
    ObjectGraph(other, (Thing.__module__.split(".")[0],)).load(saved)

    other.view += 1  # still a view of the other tensor
    assert other.tensor.tolist() == [4, 5, 5]
    assert other.numbers == [1, 2.5, None, "more"]
    assert other.table["self"] is other
    assert other.table["late"] is other.late
    assert other.memory == deque([2, 3, 4], maxlen=3)
    assert (other.array == thing.array).all()
    assert other.array.dtype == np.int16
    assert other.generator.random() == expected
    assert other.function is len
    assert other.kinds == {int, str}


def test_another_object_in_its_place_is_refused() -> None:
    package = (Thing.__module__.split(".")[0],)
    saved = ObjectGraph(Thing(), package).save()
    other = Thing()
    other.numbers, other.table = other.table, other.numbers  # type: ignore[assignment]
    with pytest.raises(SnapshotError, match="the snapshot has a list"):
        ObjectGraph(other, package).load(saved)


# PettingZoo


class Dice(ParallelEnv):
    """Two agents see dice. ``source``: the environment's own generator, NumPy's, or nobody knows."""

    metadata: dict[str, Any] = {"name": "dice"}  # noqa: RUF012 (PettingZoo's interface)
    thrown = 0

    def __init__(self, source: str) -> None:
        self.possible_agents = ["a_0", "a_1"]
        self.agents = self.possible_agents[:]
        self.source = source
        self.generator = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents, self.sum = self.possible_agents[:], 0.0
        return self._look()

    def step(self, actions: dict[str, Any]) -> Any:
        self.sum += float(sum(action.sum() for action in actions.values()))
        observations, infos = self._look()
        never = dict.fromkeys(self.agents, False)
        return observations, dict.fromkeys(self.agents, 0.0), never, never, infos

    def _look(self) -> Any:
        seen = {agent: np.array([self.sum + self._throw()], np.float32) for agent in self.agents}
        return seen, {agent: {} for agent in self.agents}

    def _throw(self) -> float:
        if self.source == "hidden":
            Dice.thrown += 1
            return float(Dice.thrown)
        return float(np.random.random() if self.source == "global" else self.generator.random())


def dice(source: str) -> tuple[Any, Environments]:
    env = logged(lambda: PettingZooWrapper(Dice(source), seed=5, done_on_any=False))()
    return env, Environments(env, repeat=True)


@pytest.mark.parametrize("source", ["own", "global"])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_an_episode_is_replayed_to_where_it_was(source: str, steps: int) -> None:
    np.random.seed(1)
    env, environments = dice(source)
    env.reset()
    step = env.reset().clone()
    step["a", "action"] = torch.full((2, 1), 0.5)
    for _ in range(steps):
        env.step(step.clone())
        np.random.random()  # others draw from it too
    saved, position = on_disk(environments.save()), np.random.get_state()
    expected = [env.step(step.clone())["next", "a", "observation"] for _ in range(5)]

    np.random.seed(99)
    again, resumed = dice(source)
    resumed.load(saved)
    np.random.set_state(position)
    seen = [again.step(step.clone())["next", "a", "observation"] for _ in range(5)]

    assert all(torch.equal(one, other) for one, other in zip(expected, seen, strict=True))
    assert on_disk(resumed.save())[0]["actions"]["a"].shape == (steps + 5, 2, 1)


def test_an_episode_that_cannot_be_replayed_is_refused() -> None:
    env, environments = dice("hidden")
    env.reset()
    saved = environments.save()
    _, resumed = dice("hidden")
    with pytest.raises(ReplayError, match="depends on more than its generators and actions"):
        resumed.load(saved)

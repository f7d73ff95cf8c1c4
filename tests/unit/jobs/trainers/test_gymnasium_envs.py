"""Gymnasium's environments side by side: equal to Gymnasium by itself, restored by a replay, or refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.families import build, take_plugin
from jobs.trainers.actor_critic.environments.gymnasium_envs import Gymnasium, _observations
from jobs.trainers.actor_critic.environments.interface import Step
from jobs.trainers.actor_critic.environments.keys import CLASSIC_CONTROL, GymnasiumConfig
from jobs.trainers.ppo.training import TRAINER, PpoLearner
from jobs.training.context import EXACT, NO_PROGRESS_LOST, BadConfigError
from jobs.training.loop import iterate
from jobs.training.parts import restore, state_of
from jobs.training.plugins import Plugin
from orchestrator.config.trainers.actor_critic import PPO
from orchestrator.core.machine.installation import install_package

ENVS = 3


class Toy(gymnasium.Env[Any, Any]):
    """A number to guess, seen with another one; ``first``: the least choice. Six steps at most."""

    picture = False
    drifts = False
    size = 40, 38

    def __init__(self, space: gymnasium.Space[Any] | None = None) -> None:
        self.action_space = space or gymnasium.spaces.MultiDiscrete([2, 3], start=[1, 5])
        box = gymnasium.spaces.Box
        self.observation_space = (
            box(0, 1, (2, 2)) if not self.picture else box(0, 255, (*self.size, 3), np.uint8)
        )
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        seen = self._seen()
        return seen, float(np.sum(action)), bool(seen.flat[0] > 0.9 * seen.max()), self.steps == 6, {}

    def _seen(self) -> Any:
        if self.picture:
            return self.np_random.integers(0, 256, (*self.size, 3), np.uint8)
        drift = self.episodes if self.drifts else 0
        return self.np_random.random((2, 2), np.float32) + drift


class ToyPictures(Toy):
    picture = True


class SmallPictures(ToyPictures):
    size = 30, 36


class Tuples(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)])


class Drifting(Toy):
    """An environment that depends on what came before the episode."""

    drifts = True


class LateDrift(Toy):
    """The same after so many episodes that no trial sees it."""

    @property
    def drifts(self) -> bool:  # type: ignore[override]
        return self.episodes > 2


class Field(Toy):
    """One of five fields is seen, numbered from 2 on."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Discrete(5, start=2)

    def _seen(self) -> Any:
        return np.int64(2 + self.np_random.integers(5))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), 1.0, False, self.steps == 6, {}


class Endless(Toy):
    """A game without an end, which counts its environments that are open."""

    open = 0

    def reset(self, **more: Any) -> tuple[Any, dict[str, Any]]:
        Endless.open += 1
        return super().reset(**more)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen(), 0.5, False, False, {}

    def close(self) -> None:
        Endless.open -= 1


for toy in (Field, Endless, Tuples, Toy, ToyPictures, SmallPictures, Drifting, LateDrift):
    gymnasium.register(f"{toy.__name__}-v0", toy)
SPACES = {
    "Continuous-v0": gymnasium.spaces.Box(-1, 1, (2,)),
    "Offset-v0": gymnasium.spaces.Discrete(3, start=5),
}
for name, space in SPACES.items():
    gymnasium.register(name, Toy, kwargs={"space": space})


def made(task: str, seed: int = 0) -> Gymnasium:
    return Gymnasium(GymnasiumConfig(f"gymnasium/{task}"), ENVS, seed, "cpu")


def actions_of(task: str, steps: int) -> Tensor:
    random = torch.Generator().manual_seed(7)
    parts = made(task).parts
    return torch.stack([torch.randint(0, n, (steps, ENVS), generator=random) for n in parts], -1)


def values(step: Step) -> list[Tensor]:
    return [step.seen, step.last(), step.rewards, step.terminated, step.truncated]


def shaped(seen: Any) -> Tensor:
    return torch.tensor(seen if seen.ndim == 3 else seen.ravel())


@pytest.mark.parametrize("task", [*CLASSIC_CONTROL, "Toy-v0", "ToyPictures-v0", "Offset-v0"])
def test_they_are_what_gymnasium_plays(task: str) -> None:
    environments, plain = made(task), gymnasium.make(task)
    seen = environments.reset()
    assert torch.equal(seen[1], shaped(plain.reset(seed=environments._episode_seed(1))[0]))
    ended, least = 0, getattr(plain.action_space, "start", 0)
    for actions in actions_of(task, 600):
        step = environments.step(actions)
        action = actions[1].numpy() + least
        found, reward, terminated, truncated, _ = plain.step(action if len(action) > 1 else int(action[0]))
        assert torch.equal(step.last()[1], shaped(found))
        over = terminated, truncated and not terminated
        assert (step.rewards[1], step.terminated[1], step.truncated[1]) == (reward, *over)
        if terminated or truncated:
            ended, found = ended + 1, plain.reset(seed=environments._episode_seed(1))[0]
        assert torch.equal(step.seen[1], shaped(found))
    assert ended


def test_a_state_of_several_is_a_row_with_a_one_in_its_place() -> None:
    environments, plain = made("Field-v0"), gymnasium.make("Field-v0", disable_env_checker=True)
    assert environments.shape == (5,)
    seen, found = environments.reset()[1], plain.reset(seed=environments._episode_seed(1))[0]
    for actions in actions_of("Field-v0", 5):
        assert seen.tolist() == [float(place == found - 2) for place in range(5)]
        seen, found = environments.step(actions).seen[1], plain.step(actions[1].numpy())[0]


def test_an_evaluation_cuts_endless_episodes_says_so_and_closes_its_environments() -> None:
    keys = {"task": "gymnasium/Endless-v0", "envs": 2, "rollout_steps": 2, "batch_size": 4, "hidden": [4]}
    learner = PpoLearner(TRAINER.config.compose({**keys, "evaluation_steps": 7}), 0)
    training = Endless.open
    played = learner.play(3, 1, deterministic=True)
    assert played.figures == {"cut_episodes": 3.0}
    assert (played.lengths, played.returns) == ([7] * 3, [3.5] * 3)
    assert Endless.open == training
    finite = PpoLearner(TRAINER.config.compose({**keys, "task": "gymnasium/Toy-v0"}), 0)
    assert finite.play(3, 1, deterministic=True).figures == {}


@pytest.mark.parametrize("task", [*CLASSIC_CONTROL, "Toy-v0", "ToyPictures-v0", "Field-v0"])
def test_a_saved_state_continues_bit_for_bit(task: str) -> None:
    one, other = made(task), made(task)
    assert not torch.equal(one.reset(), made(task, seed=1).reset())
    played = actions_of(task, 1100)
    for actions in played[:250]:
        one.step(actions)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.exactness == EXACT
    for actions in played[250:]:
        for left, right in zip(values(one.step(actions)), values(other.step(actions)), strict=True):
            assert torch.equal(left, right)


@pytest.mark.parametrize(("task", "trial"), [("Drifting-v0", NO_PROGRESS_LOST), ("LateDrift-v0", EXACT)])
def test_what_cannot_be_replayed_goes_on_with_new_episodes(task: str, trial: str) -> None:
    config = TRAINER.config.compose(
        {"task": f"gymnasium/{task}", "envs": ENVS, "rollout_steps": 20, "batch_size": 20, "hidden": [4]}
    )
    learner, resumed = PpoLearner(config, 0), PpoLearner(config, 0)
    assert learner.exactness == trial
    iterate(learner, 0.0)
    saved = state_of(learner.running)
    restore(resumed.running, saved)
    assert resumed.exactness == NO_PROGRESS_LOST
    assert resumed.games.state_dict()["environments"]["exactness"] == NO_PROGRESS_LOST
    assert not resumed.games.state_dict()["sums"]["open"].any(), "the open episodes count no more"
    assert resumed.games.environments._episodes == [
        count + 1 for count in saved["games"]["environments"]["episodes"]
    ]
    metrics = iterate(resumed, 0.5)
    assert metrics["train/total_episodes"] > saved["episodes"]["number"]
    assert metrics["episode/length"] <= 6


def test_pictures_of_any_package_are_learned_from() -> None:
    keys = {"task": "gymnasium/ToyPictures-v0", "envs": 2, "rollout_steps": 4, "batch_size": 4}
    config = TRAINER.config.compose({**keys, "network": "cnn", "epochs": 1})
    learner = PpoLearner(config, 0)
    assert learner.games.environments.shape == (40, 38, 3)
    assert iterate(learner, 0.0)["loss/value"] >= 0


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        (
            {"task": "gymnasium/Continuous-v0"},
            "Continuous-v0: its actions are a Box, expected Discrete",
            "DiscretizeAction",
        ),
        ({"task": "gymnasium/Tuples-v0"}, "its observations are a Tuple, expected a Box", ""),
        ({"task": "gymnasium/CartPole-v1", "evaluation_steps": 0}, "evaluation_steps: found 0, expected", ""),
        ({"task": "gymnasium/CartPol-v1"}, "found 'gymnasium/CartPol-v1'", "mean gymnasium/CartPole-v1?"),
        ({"task": "gymnasium/Ant-v5"}, "Ant-v5: MuJoCo is not installed", "'gymnasium[mujoco]'"),
        ({"task": "gymnasium/phys2d/CartPole-v1"}, "it needs flax, which is not installed", "install"),
        ({"task": "gymnasium/no_such:Foo-v0"}, "no_such:Foo-v0: ModuleNotFoundError: No module", ""),
        ({"task": "gymnasium/json:Foo-v0"}, "NameNotFound: Environment `Foo` doesn't exist.", ""),
        ({"task": "gymnasium/ToyPictures-v0"}, "network: found mlp, expected cnn or resnet", ""),
        ({"task": "gymnasium/SmallPictures-v0", "network": "cnn"}, "shows 30 × 36 pixels, cnn needs 36", ""),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_line(keys: dict[str, Any], message: str, hint: str) -> None:
    (problem,) = TRAINER.check([PPO.identify({**keys, "envs": 128}, 0, 1)])
    assert message in problem.message
    assert "\n" not in problem.message
    assert hint in str(problem.hint)


@pytest.mark.parametrize("task", ["Toy-v0", "Offset-v0", "json:Toy-v0", "FrozenLake-v1"])
def test_any_registered_environment_is_a_task(task: str) -> None:
    assert TRAINER.check([PPO.identify({"task": f"gymnasium/{task}", "envs": 128}, 0, 1)]) == []


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


def test_a_plug_in_registers_environments_when_it_is_imported_and_has_no_parts_of_benchmarl() -> None:
    take_plugin("toys", Plugin(), Path())
    with pytest.raises(BadConfigError, match="plug-in toys: its tasks, models and algorithms are those of"):
        take_plugin("toys", Plugin(models={"mine": Toy}), Path())


@pytest.mark.parametrize(
    ("shape", "kind", "found"),
    [
        ((84, 84), np.uint8, (84, 84, 1)),
        ((4, 84, 80), np.uint8, (84, 80, 4)),
        ((84, 80, 4), np.uint8, (84, 80, 4)),
        ((128,), np.uint8, (128,)),
        ((3, 4, 5), np.float64, (60,)),
        ((), np.float32, (1,)),
    ],
)
def test_pictures_end_with_their_channels_and_numbers_are_a_row(shape: Any, kind: Any, found: Any) -> None:
    box = gymnasium.spaces.Box(0, 255, shape, kind)
    told, dtype, shaped = _observations("any", box)
    assert (told, shaped(box.sample()).shape) == (found, found)
    assert dtype == (np.uint8 if len(found) == 3 else np.float32)

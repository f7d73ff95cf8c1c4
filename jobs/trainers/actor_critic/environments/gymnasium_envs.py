"""Environments of Gymnasium, side by side in one process.

An environment has no state that can be saved. Each episode begins with a seed of its own: a replay of the
open episode's actions restores it, if the environment depends on nothing else.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.interface import Step, without_picture
from jobs.trainers.actor_critic.environments.keys import GymnasiumConfig
from jobs.training.config_errors import MissingHereError, RefusedKeyError
from jobs.training.context import EXACT, NO_PROGRESS_LOST, BadConfigError
from jobs.training.records.video import Frame
from orchestrator.core.machine.installation import install_package

# Steps that are played twice to see whether an environment can be replayed.
_PROBE_STEPS = 64
# A picture has at most so many channels: colours, or gray pictures of several steps.
_MOST_CHANNELS = 16
_DISCRETIZE = (
    "policies choose among actions, and have no continuous ones: register the environment in "
    "gymnasium.wrappers.DiscretizeAction, or train it by a program of your own (trainer: command)"
)


class Gymnasium:
    """Environments of one task. Their episodes are independent, all decided by the seed."""

    def __init__(self, config: GymnasiumConfig, envs: int, seed: int, device: str) -> None:
        self._name, self._seed, self._device = config.name.partition("/")[2], seed, device
        self._envs = [_make(self._name) for _ in range(envs)]
        self.envs, self.learners = envs, 1
        self.shape, kind, self._shaped = _observations(self._name, self._envs[0].observation_space)
        self.parts, self._action = _actions(self._name, self._envs[0].action_space)
        self._seen = np.zeros((envs, *self.shape), kind)
        self._episodes = [0] * envs
        self._show: Callable[[Frame], None] | None = None
        # Of each open episode, one step after the other.
        self._actions = [array("i") for _ in range(envs)]

    @cached_property
    def exactness(self) -> str:
        """Exact if an episode that is played twice is the same, by a trial."""
        env = _make(self._name)
        random = np.random.default_rng(self._seed)
        actions = [[int(random.integers(size)) for size in self.parts] for _ in range(_PROBE_STEPS)]
        same = self._trial(env, actions) == self._trial(env, actions)
        env.close()
        return EXACT if same else NO_PROGRESS_LOST

    def _trial(self, env: Any, actions: Sequence[Sequence[int]]) -> list[Any]:
        """Play these actions until the episode ends; return all that is seen and gained."""
        found: list[Any] = [self._bytes(env.reset(seed=self._seed % 2**31)[0])]
        for action in actions:
            seen, reward, terminated, truncated, _ = env.step(self._action(action))
            found += [self._bytes(seen), float(reward), bool(terminated), bool(truncated)]
            if terminated or truncated:
                break
        return found

    def film(self, show: Callable[[Frame], None]) -> None:
        if "rgb_array" not in self._envs[0].metadata.get("render_modes", ()):
            raise without_picture(f"gymnasium/{self._name}")
        self._envs[0].close()
        self._envs[0], self._show = _make(self._name, render_mode="rgb_array"), show

    def reset(self) -> Tensor:
        for number in range(self.envs):
            self._seen[number] = self._begin(number)
        self._film()
        return self._tensor(self._seen)

    def step(self, actions: Tensor) -> Step:
        seen, last = np.empty_like(self._seen), np.empty_like(self._seen)
        outcomes = np.empty((3, self.envs), np.float32)
        for number, action in enumerate(actions.tolist()):
            found, reward, terminated, truncated, _ = self._envs[number].step(self._action(action))
            last[number] = self._shaped(found)
            outcomes[:, number] = reward, terminated, truncated and not terminated
            self._actions[number].extend(action)
            if number == 0:
                self._film()
            seen[number] = self._begin(number) if terminated or truncated else last[number]
        self._seen = seen
        rewards, terminated, truncated = self._tensor(outcomes)
        return Step(
            self._tensor(seen), lambda: self._tensor(last), rewards, terminated.bool(), truncated.bool()
        )

    def measures(self) -> Tensor:
        return torch.zeros(0, self.envs, device=self._device)

    def figures(self, sums: Tensor, steps: float) -> dict[str, float]:  # noqa: ARG002 (there are none)
        return {}

    def state_dict(self) -> dict[str, Any]:
        replayed = self.exactness == EXACT
        return {
            "exactness": self.exactness,
            "episodes": list(self._episodes),
            "actions": [
                torch.tensor(actions if replayed else (), dtype=torch.int32) for actions in self._actions
            ],
            "seen": torch.from_numpy(self._seen.copy()),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Replay the open episodes; where that leads elsewhere, the state is no longer exact."""
        exact = saved["exactness"] == self.exactness == EXACT
        if not (exact and self._replays(saved)):
            self.exactness = NO_PROGRESS_LOST
        self._episodes = list(saved["episodes"])

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _replays(self, saved: Mapping[str, Any]) -> bool:
        width = len(self.parts)
        for number, (env, actions) in enumerate(zip(self._envs, saved["actions"], strict=True)):
            self._episodes[number] = saved["episodes"][number] - 1
            self._seen[number] = self._begin(number)
            for action in actions.view(-1, width).tolist():
                found, _, terminated, truncated, _ = env.step(self._action(action))
                if terminated or truncated:
                    return False
                self._seen[number] = self._shaped(found)
                self._actions[number].extend(action)
        return torch.equal(torch.from_numpy(self._seen), saved["seen"])

    def _film(self) -> None:
        if self._show is None or self._episodes[0] > 1:
            return
        try:
            picture = self._envs[0].render()
        except Exception as error:  # of any package
            raise _not_made(self._name, error) from error
        self._show(np.ascontiguousarray(picture, np.uint8))

    def _begin(self, number: int) -> Any:
        """Begin an episode; return what is seen."""
        self._episodes[number] += 1
        self._actions[number] = array("i")
        return self._shaped(self._envs[number].reset(seed=self._episode_seed(number))[0])

    def _episode_seed(self, number: int) -> int:
        words = np.random.SeedSequence((self._seed, number, self._episodes[number])).generate_state(1)
        return int(words[0]) >> 1

    def _bytes(self, seen: Any) -> bytes:
        return np.ascontiguousarray(self._shaped(seen), self._seen.dtype).tobytes()

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self._device)


def _make(name: str, **more: Any) -> Any:
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        missing = "gymnasium is not installed"
        raise MissingHereError("task", missing, hint=install_package("gymnasium")) from error
    try:
        return gymnasium.make(name, disable_env_checker=True, **more)
    except Exception as error:  # of any package
        raise _not_made(name, error) from error


def _not_made(name: str, error: Exception) -> BadConfigError:
    """Name what an environment lacks, and how it is installed."""
    said = " ".join(str(error).split())
    if extra := re.search(r"gymnasium\[[\w-]+\]", said):
        return _lacking(name, said.partition(",")[0], install_package(extra[0]))
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        return _lacking(name, f"it needs {missing}, which is not installed", install_package(missing))
    return _refused(name, f"{type(error).__name__}: {said}".rstrip(": "))


def _lacking(name: str, what: str, hint: str) -> BadConfigError:
    return MissingHereError("task", f"task: gymnasium/{name}: {what}", hint=hint)


def _refused(name: str, why: str, hint: str | None = None) -> BadConfigError:
    return RefusedKeyError("task", f"task: gymnasium/{name}: {why}", hint=hint)


def _observations(name: str, space: Any) -> tuple[tuple[int, ...], Any, Callable[[Any], Any]]:
    """Return the shape of observations, their type, and the function that brings one into the shape.

    One of several states, such as the field of a board, is a row with a 1 in its place. Raises
    :class:`BadConfigError` for other spaces.
    """
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        states, first = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return (len(states),), np.float32, lambda seen: states[seen - first]
    if not isinstance(space, Box):
        kind = type(space).__name__
        raise _refused(
            name, f"its observations are a {kind}, expected a Box of numbers or pictures, or Discrete"
        )
    shape = space.shape
    if space.dtype != np.uint8 or len(shape) not in (2, 3):
        width = int(np.prod(shape))
        return (width,), np.float32, lambda seen: np.reshape(seen, width)
    if len(shape) == 2:
        return (*shape, 1), np.uint8, lambda seen: np.asarray(seen)[..., None]
    if shape[2] > _MOST_CHANNELS >= shape[0]:
        return (*shape[1:], shape[0]), np.uint8, lambda seen: np.moveaxis(seen, 0, -1)
    return shape, np.uint8, np.asarray


def _actions(name: str, space: Any) -> tuple[tuple[int, ...], Callable[[Sequence[int]], Any]]:
    """Return the choices in each part of an action, and the function that makes an action of choices.

    Raises :class:`BadConfigError` for other spaces than discrete ones.
    """
    from gymnasium.spaces import Box, Discrete, MultiDiscrete

    if isinstance(space, Discrete):
        first = int(space.start)
        return (int(space.n),), lambda chosen: chosen[0] + first
    if isinstance(space, MultiDiscrete):
        least, sizes = np.asarray(space.start), space.nvec.flatten().tolist()
        return tuple(sizes), lambda chosen: np.array(chosen).reshape(least.shape) + least
    kind = type(space).__name__
    hint = _DISCRETIZE if isinstance(space, Box) else None
    raise _refused(name, f"its actions are a {kind}, expected Discrete or MultiDiscrete", hint)

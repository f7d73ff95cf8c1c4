"""Tasks of Gymnasium's classic control with discrete actions, side by side in one process.

An environment has no state that can be saved. What decides it is the state of its random generator at the
beginning of the episode and the actions since: a replay of these restores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jobs.trainers.actor_critic.interface import Step
from jobs.training.context import EXACT, BadConfigError
from orchestrator.core.installation import install_package

TASKS = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0")


@dataclass
class GymnasiumConfig:
    """The keys of the task. ``name``: the environment, as in a grid."""

    name: str


class Gymnasium:
    """Environments of one task. Their random generators are independent, all decided by the seed."""

    exactness = EXACT

    def __init__(self, config: GymnasiumConfig, envs: int, seed: int, device: str) -> None:
        self._name, self._device = config.name.partition("/")[2], device
        self._envs = [_make(self._name) for _ in range(envs)]
        for env, seeds in zip(self._envs, np.random.SeedSequence(seed).spawn(envs), strict=True):
            env.unwrapped.np_random = np.random.Generator(np.random.PCG64(seeds))
        self.envs, self.learners = envs, 1
        self.parts = (int(self._envs[0].action_space.n),)
        self.shape = self._envs[0].observation_space.shape
        self._seen = np.zeros((envs, *self.shape), np.float32)
        # Of each open episode: the generator's state at its beginning, and the actions.
        self._starts: list[dict[str, Any]] = [{} for _ in range(envs)]
        self._actions: list[list[int]] = [[] for _ in range(envs)]

    def reset(self) -> Tensor:
        self._seen = np.stack([self._begin(number) for number in range(self.envs)])
        return self._tensor(self._seen)

    def step(self, actions: Tensor) -> Step:
        seen, last = np.empty_like(self._seen), np.empty_like(self._seen)
        outcomes = np.empty((3, self.envs), np.float32)
        for number, action in enumerate(actions[:, 0].tolist()):
            last[number], reward, terminated, truncated, _ = self._envs[number].step(action)
            outcomes[:, number] = reward, terminated, truncated and not terminated
            self._actions[number].append(action)
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
        return {
            "starts": list(self._starts),
            "actions": [torch.tensor(actions, dtype=torch.int64) for actions in self._actions],
            "generators": self._generators(),
            "seen": torch.from_numpy(self._seen.copy()),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Replay the open episodes. Raises ``ValueError`` if they do not lead to where they ended."""
        starts, episodes = saved["starts"], [actions.tolist() for actions in saved["actions"]]
        for number, (env, start, actions) in enumerate(zip(self._envs, starts, episodes, strict=True)):
            env.unwrapped.np_random.bit_generator.state = start
            self._seen[number] = self._begin(number)
            for action in actions:
                self._seen[number] = env.step(action)[0]
            self._actions[number] = actions
        same = torch.equal(torch.from_numpy(self._seen), saved["seen"])
        if not same or self._generators() != saved["generators"]:
            raise ValueError(f"a replay of {self._name} leads elsewhere")

    def _begin(self, number: int) -> Any:
        """Begin an episode; return what is seen."""
        env = self._envs[number]
        self._starts[number], self._actions[number] = env.unwrapped.np_random.bit_generator.state, []
        return env.reset()[0]

    def _generators(self) -> list[dict[str, Any]]:
        return [env.unwrapped.np_random.bit_generator.state for env in self._envs]

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self._device)


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        raise BadConfigError("gymnasium is not installed", hint=install_package("gymnasium")) from error
    return gymnasium.make(name, disable_env_checker=True)

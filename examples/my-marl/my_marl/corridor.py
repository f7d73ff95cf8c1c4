"""Two agents in a corridor that should meet. Each sees where both are and steps left, right or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarl.environments.pettingzoo.common import PettingZooClass
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv
from torchrl.envs import EnvBase, PettingZooWrapper


@dataclass
class CorridorConfig:
    """The keys of ``conf/task/corridor/meet.yaml`` and their types, which `check` holds grids against."""

    length: int
    max_steps: int

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"task.length: found {self.length}, expected 2 or more")


class Corridor(ParallelEnv):
    """Two agents; both earn a negative reward in every step, by the distance between them."""

    metadata = {"name": "corridor"}  # noqa: RUF012 (PettingZoo's interface)

    def __init__(self, length: int, max_steps: int) -> None:
        self.possible_agents = ["walker_0", "walker_1"]
        self.length, self.max_steps = length, max_steps
        self.generator = np.random.default_rng()

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, self.length, (2,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.places, self.steps = self.generator.integers(0, self.length, 2), 0
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        moves = np.array([int(actions[agent]) - 1 for agent in self.possible_agents])
        self.places, self.steps = np.clip(self.places + moves, 0, self.length - 1), self.steps + 1
        distance = abs(int(self.places[0] - self.places[1]))
        met, late = distance == 0, self.steps >= self.max_steps
        everybody = self.possible_agents
        self.agents = [] if met or late else list(everybody)
        return (
            self._see(),
            dict.fromkeys(everybody, -distance / self.length),
            dict.fromkeys(everybody, met),
            dict.fromkeys(everybody, late and not met),
            {agent: {} for agent in everybody},
        )

    def _see(self) -> dict[str, np.ndarray]:
        ordered = {"walker_0": self.places, "walker_1": self.places[::-1]}
        return {agent: places.astype(np.float32) for agent, places in ordered.items()}


class CorridorTask(PettingZooClass):
    """A TaskClass of BenchMARL; this one takes all but the environment from BenchMARL's PettingZoo tasks."""

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], EnvBase]:
        config = dict(self.config)
        return lambda: PettingZooWrapper(Corridor(**config), seed=seed, device=device)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def max_steps(self, env: EnvBase) -> int:
        return self.config["max_steps"]

    def has_render(self, env: EnvBase) -> bool:
        return False

    @staticmethod
    def env_name() -> str:
        return "corridor"

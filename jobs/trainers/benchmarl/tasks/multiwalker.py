"""PettingZoo's multiwalker with one reward for all: each walker gets the mean of the walkers' rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pettingzoo
from benchmarl.environments.pettingzoo.common import PettingZooClass
from torchrl.envs import EnvBase, PettingZooWrapper

from jobs.training.config_errors import RefusedKeyError


@dataclass
class MultiwalkerConfig:
    """The arguments of ``multiwalker_v9`` except ``shared_reward``, which makes the task."""

    n_walkers: int
    max_cycles: int
    position_noise: float
    angle_noise: float
    forward_reward: float
    fall_reward: float
    terminate_reward: float
    terminate_on_fall: bool
    remove_on_fall: bool
    terrain_length: int

    def __post_init__(self) -> None:
        if not self.terminate_on_fall:
            raise RefusedKeyError(
                "task.terminate_on_fall",
                "task.terminate_on_fall: found false, expected true: a walker that falls would leave the "
                "episode before the others, which BenchMARL's agents cannot",
            )


class MultiwalkerShared(PettingZooClass):
    """``pettingzoo/multiwalker`` with ``shared_reward=True``, otherwise the same bit for bit."""

    def get_env_fun(
        self,
        num_envs: int,  # noqa: ARG002 (BenchMARL makes several of it by itself)
        continuous_actions: bool,  # noqa: ARG002 (there are no others)
        seed: int | None,
        device: Any,
    ) -> Callable[[], EnvBase]:
        arguments = {**self.config, "shared_reward": True, "render_mode": "rgb_array"}
        return lambda: PettingZooWrapper(
            pettingzoo.make("parallel", "sisl/multiwalker-v9", **arguments), seed=seed, device=device
        )

    def supports_continuous_actions(self) -> bool:
        return True

    def supports_discrete_actions(self) -> bool:
        return False

    @staticmethod
    def env_name() -> str:
        return "multiwalker"

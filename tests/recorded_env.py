"""CartPole that writes down the seed of each episode, for a test of other processes."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

TASK = f"gymnasium/{__name__}:Recorded-v0"
# In the environment: the file with a line for each episode.
EPISODES = "TEST_EPISODES"


class Recorded(CartPoleEnv):
    """The same game."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        with open(os.environ[EPISODES], "a") as file:
            file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


gymnasium.register("Recorded-v0", Recorded, max_episode_steps=500)

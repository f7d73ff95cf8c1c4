"""Knights, archers, zombies: PettingZoo's ``knights_archers_zombies_v11``, seen as vectors or as images.

Three things differ from PettingZoo. An agent that died stays until the episode is over, sees zeros, earns
nothing and does nothing, because BenchMARL's agents never leave. The time to the next zombie begins anew with
every episode, where PettingZoo carries it over: an episode then depends on its generator and its actions
alone, so it can be resumed. All observations are float32, as networks want them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pettingzoo
from benchmarl.environments.pettingzoo.common import PettingZooClass
from gymnasium.spaces import Box
from pettingzoo.utils.wrappers import BaseParallelWrapper
from torchrl.envs import EnvBase, PettingZooWrapper

from jobs.training.config_errors import unexpected

_VECTORS = ("vector", "vector-masked")
# What an agent sees is 512 pixels wide, and the whole screen 720 by 1280: these widths divide all three.
_IMAGE_SIZES = (32, 64, 128, 256, 512)
_FULL_SIZE = 512


@dataclass
class _Game:
    spawn_delay: int
    num_archers: int
    num_knights: int
    max_zombies: int
    max_arrows: int
    killable_knights: bool
    killable_archers: bool
    line_death: bool
    max_cycles: int

    def __post_init__(self) -> None:
        for name in ("spawn_delay", "num_archers", "num_knights", "max_zombies", "max_arrows", "max_cycles"):
            if getattr(self, name) < 1:
                raise unexpected(f"task.{name}", getattr(self, name), "a whole number from 1")


@dataclass
class VectorConfig(_Game):
    """The game's arguments. ``obs_method``: "vector", or "vector-masked" with the kind of each entity."""

    obs_method: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.obs_method not in _VECTORS:
            raise unexpected("task.obs_method", self.obs_method, " or ".join(_VECTORS))


@dataclass
class ImageConfig(_Game):
    """The game's arguments. ``image_size``: pixels across an agent's view, a square around it."""

    image_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size not in _IMAGE_SIZES:
            sizes = ", ".join(map(str, _IMAGE_SIZES))
            raise unexpected("task.image_size", self.image_size, f"one of: {sizes}")


class Kaz(PettingZooClass):
    """Two groups of agents, ``archer`` and ``knight``; discrete actions.

    ``kaz/vector``: an agent sees (entities + 1, 5), itself first; the state is (entities, 4). With masks they
    have 6 features more. ``kaz/image``: an agent sees (size, size, 3), and the state is the screen at the
    same scale; values from 0 to 1.
    """

    def get_env_fun(
        self,
        num_envs: int,  # noqa: ARG002 (BenchMARL makes several of it by itself)
        continuous_actions: bool,  # noqa: ARG002 (there are no others)
        seed: int | None,
        device: Any,
    ) -> Callable[[], EnvBase]:
        config = dict(self.config)
        return lambda: PettingZooWrapper(_game(config), return_state=True, seed=seed, device=device)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def has_state(self) -> bool:
        return True

    @staticmethod
    def env_name() -> str:
        return "kaz"


def _game(config: Mapping[str, Any]) -> KazEnv:
    arguments = {"obs_method": "image", "render_mode": "rgb_array", **config}
    size = arguments.pop("image_size", None)
    env = pettingzoo.make("parallel", "butterfly/knights_archers_zombies-v11", **arguments)
    return KazEnv(env, _FULL_SIZE // size if size else None)


class KazEnv(BaseParallelWrapper):
    """The game with agents that stay. ``scale``: its pixels to one of an image; ``None`` for vectors."""

    def __init__(self, env: Any, scale: int | None) -> None:
        super().__init__(env)
        self._scale = scale
        self.possible_agents = list(env.possible_agents)
        self.agents = list(self.possible_agents)
        self.state_space = self._space(env.state_space)
        self._observation_space = self._space(env.observation_space(self.possible_agents[0]))
        self._nothing = np.zeros(self._observation_space.shape, np.float32)

    def observation_space(self, agent: str) -> Box:  # noqa: ARG002 (the same for all)
        return self._observation_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.env.unwrapped.zombie_spawn_interval.reset()
        seen, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._all(seen), infos

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        agents, acted = self.possible_agents, set(self.env.agents)
        seen, rewards, terminated, truncated, _ = self.env.step(actions)
        alive = {agent: what for agent, what in seen.items() if not terminated[agent]}
        lost, time_is_up = not alive, any(truncated[agent] for agent in alive)
        if lost or time_is_up:
            self.agents = []
        return (
            self._all(alive),
            {agent: float(rewards[agent]) if agent in acted else 0.0 for agent in agents},
            dict.fromkeys(agents, lost),
            dict.fromkeys(agents, time_is_up),
            {agent: {} for agent in agents},
        )

    def state(self) -> np.ndarray:
        return self._plain(self.env.state())

    def _all(self, seen: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {
            agent: self._plain(seen[agent]) if agent in seen else self._nothing
            for agent in self.possible_agents
        }

    def _plain(self, values: np.ndarray) -> np.ndarray:
        if self._scale is None:
            return values.astype(np.float32)
        return _shrunk(values, self._scale)

    def _space(self, space: Box) -> Box:
        shape = self._plain(np.zeros(space.shape, space.dtype)).shape
        return Box(-1.0 if self._scale is None else 0.0, 1.0, shape, np.float32)


def _shrunk(image: np.ndarray, scale: int) -> np.ndarray:
    """Return the mean, 0 to 1, of each ``scale`` × ``scale`` pixels of bytes (height, width, colours)."""
    height, width, colours = image.shape
    rows = np.ascontiguousarray(image).reshape(height // scale, scale, width * colours)
    rows = rows.sum(axis=1, dtype=np.uint16)
    blocks = rows.reshape(height // scale, width // scale, scale, colours).sum(axis=2, dtype=np.uint32)
    return blocks.astype(np.float32) / np.float32(255 * scale**2)

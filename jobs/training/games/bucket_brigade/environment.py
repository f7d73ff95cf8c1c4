"""The game as an environment of TorchRL, a batch of games at once."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from jobs.training.games.bucket_brigade import game
from jobs.training.games.bucket_brigade.batch import Episodes, GameBatch

GROUP = "agents"


class BucketBrigadeEnv(EnvBase):
    """The learners of a :class:`GameBatch` as the group ``agents``.

    ``state`` (B, W) is what every agent sees: :func:`game.observations`, or with ``one_hot``
    :func:`game.one_hot`. ``observation`` (B, L, W + N) is this, and then which agent it is: 1 in the place of
    its number. ``action`` (B, L) is a choice of H × 4 (:func:`game.actions_of`). ``info/team_reward`` (B, 1)
    is the sum of all agents' rewards; with ``shared_reward`` each learner earns its mean over the agents
    instead of its own reward. What learners earn is multiplied by ``reward_scale``.
    """

    def __init__(
        self,
        games: GameBatch,
        *,
        one_hot: bool = False,
        shared_reward: bool = False,
        reward_scale: float = 1.0,
    ) -> None:
        super().__init__(device=games.device, batch_size=[games.games])
        self._games, self._shared, self._scale = games, shared_reward, reward_scale
        self._look = game.one_hot if one_hot else game.observations
        self._seats = games.seats.learners
        self.group_map = {GROUP: [f"agent_{number}" for number in games.learners]}
        self._identity = torch.eye(games.agents, device=games.device)[self._seats].expand(games.games, -1, -1)
        self._make_specs()

    def save_state(self) -> dict[str, Tensor]:
        """Return all that decides how the games go on."""
        return self._games.state_dict()

    def load_state(self, saved: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self._games.load_state_dict(saved)

    def _make_specs(self) -> None:
        games, learners, width = (
            self._games.games,
            len(self._seats),
            self._seen(self._games.episodes).shape[1],
        )
        houses, modes, signals = self._games.actions

        def numbers(*shape: int) -> Unbounded:
            return Unbounded(shape=(games, *shape), device=self.device)

        def group(**specs: Any) -> Composite:
            return Composite({GROUP: Composite(specs, shape=(games, learners))}, shape=(games,))

        def flag() -> Categorical:
            return Categorical(2, shape=(games, 1), dtype=torch.bool, device=self.device)

        choices = Categorical(houses * modes * signals, shape=(games, learners), device=self.device)
        self.observation_spec = group(observation=numbers(learners, width + self._games.agents))
        self.observation_spec["state"] = numbers(width)
        self.observation_spec["info"] = Composite(team_reward=numbers(1), shape=(games,))
        self.action_spec = group(action=choices)
        self.reward_spec = group(reward=numbers(learners, 1))
        self.done_spec = Composite(done=flag(), terminated=flag(), truncated=flag(), shape=(games,))

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        self._games.reset(None if chosen is None else chosen.reshape(-1))
        seen = self._seen(self._games.episodes)
        return self._tensordict(seen, torch.zeros(len(seen), self._games.agents, device=self.device))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = game.actions_of(tensordict[GROUP, "action"])
        rewards, terminated, truncated = self._games.step(actions)
        step = self._tensordict(self._seen(self._games.ended), rewards)
        own = rewards.mean(1, keepdim=True).expand_as(rewards) if self._shared else rewards
        step[GROUP, "reward"] = own[:, self._seats, None] * self._scale
        step["done"] = (terminated | truncated)[:, None]
        step["terminated"], step["truncated"] = terminated[:, None], truncated[:, None]
        return step

    def _seen(self, episodes: Episodes) -> Tensor:
        return self._look(self._games.rules, episodes.state)

    def _tensordict(self, seen: Tensor, rewards: Tensor) -> TensorDict:
        each = torch.cat((seen[:, None].expand(-1, len(self._seats), -1), self._identity), -1)
        group = TensorDict({"observation": each}, batch_size=each.shape[:2], device=self.device)
        info = TensorDict({"team_reward": rewards.sum(1, keepdim=True)}, self.batch_size, device=self.device)
        source = {GROUP: group, "state": seen, "info": info}
        return TensorDict(source, batch_size=self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self._games.seed(seed)

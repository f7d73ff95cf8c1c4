"""The game Bucket Brigade as environments: learners beside scripted players, or alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.interface import Step, without_picture
from jobs.trainers.actor_critic.environments.keys import BucketBrigadeConfig
from jobs.training.context import EXACT
from jobs.training.games.bucket_brigade.baselines import (
    TEAM_REWARD,
    baseline_figures,
    behaviour_figures,
    with_gap,
)
from jobs.training.games.bucket_brigade.batch import GameBatch
from jobs.training.games.bucket_brigade.behaviour import measures
from jobs.training.games.bucket_brigade.catalogue import AGENTS, ScenarioError
from jobs.training.games.bucket_brigade.seats import seats
from jobs.training.records.video import Frame


def players_of(opponents: Any) -> int | list[str]:
    """Return the value of ``opponents`` as a number or names."""
    if isinstance(opponents, int):
        return opponents
    return [opponents] if isinstance(opponents, str) else [str(one) for one in opponents]


class BucketBrigade:
    """The game Bucket Brigade. A row sees what every agent sees, and if several learn which agent it is."""

    exactness = EXACT

    def __init__(self, config: BucketBrigadeConfig, envs: int, seed: int, device: str) -> None:
        opponents = players_of(config.opponents)
        if config.nights < 1:
            raise ScenarioError(f"found {config.nights} nights, expected a number from 1")
        self._batch = GameBatch(
            [config.name.partition("/")[2]],
            envs,
            opponents=opponents,
            nights=config.nights,
            seeds=[seed],
            device=device,
        )
        self.envs, self.learners = envs, len(self._batch.learners)
        if not self.learners:
            raise ScenarioError(f"{opponents!r} leaves no agent to learn")
        self.parts = self._batch.actions
        self._identified = config.identity and self.learners > 1
        self.shape = (self._batch.width + (self._batch.agents if self._identified else 0),)
        self._agents = torch.tensor(self._batch.learners, device=device)
        self._identity = torch.eye(self._batch.agents, device=device)[self._agents]
        self._before, self._team = self._batch.episodes.state, torch.zeros(envs, device=device)

    def film(self, show: Callable[[Frame], None]) -> None:  # noqa: ARG002 (there is nothing to show)
        raise without_picture("bucket_brigade")

    def reset(self) -> Tensor:
        return self._rows(self._batch.reset())

    def step(self, actions: Tensor) -> Step:
        batch, self._before = self._batch, self._batch.episodes.state
        rewards, terminated, truncated = batch.step(actions.view(self.envs, self.learners, -1))
        self._team = rewards.sum(1)
        return Step(
            self._rows(batch.observations()),
            lambda: self._rows(batch.observations(batch.ended.state)),
            rewards[:, self._agents].flatten(),
            terminated.repeat_interleave(self.learners),
            truncated.repeat_interleave(self.learners),
            self._team,
        )

    def measures(self) -> Tensor:
        """Return the reward of all agents, and :func:`behaviour.measures` of learners (1 + 5 L, games)."""
        found = measures(self._batch.rules, self._before, self._batch.ended.state)
        return torch.cat((self._team[None], found[..., self._agents].movedim(1, -1).flatten(0, 1)))

    def figures(self, sums: Tensor, steps: float) -> dict[str, float]:
        found, batch = behaviour_figures(sums[1:].unflatten(0, (-1, self.learners)), steps), self._batch
        found[TEAM_REWARD] = float(sums[0]) / steps
        return with_gap(found, batch.scenarios[0], batch.nights, batch.games, batch.seeds[0])

    def state_dict(self) -> dict[str, Any]:
        return dict(self._batch.state_dict())

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._batch.load_state_dict(saved)

    def close(self) -> None:
        """They hold memory alone."""

    def _rows(self, seen: Tensor) -> Tensor:
        shape = (self.envs, self.learners)
        every = seen[:, None].expand(*shape, -1)
        if self._identified:
            every = torch.cat((every, self._identity.expand(*shape, -1)), -1)
        return every.flatten(0, 1)


def bucket_brigade_baselines(
    config: BucketBrigadeConfig, episodes: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return the figures of scripted players in the places of the learners."""
    players = seats(players_of(config.opponents), AGENTS).names
    name = config.name.partition("/")[2]
    found = baseline_figures(name, players, episodes, seed, config.nights)
    return {
        player: with_gap(figures, name, config.nights, episodes, seed) for player, figures in found.items()
    }

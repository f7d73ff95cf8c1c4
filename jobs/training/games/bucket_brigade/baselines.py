"""Teams of scripted players, and how much of the way from random play to the specialist a team goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from jobs.training.games.bucket_brigade.batch import NIGHTS, GameBatch
from jobs.training.games.bucket_brigade.opponents import ARCHETYPES
from jobs.training.games.bucket_brigade.scenarios import AGENTS
from jobs.training.games.bucket_brigade.seats import SPECIALIST

RANDOM_PLAY = "uniform"


@dataclass(frozen=True)
class ScriptedTeams:
    """Rewards per night of teams, summed over their agents, by player: four of a kind."""

    rewards: Mapping[str, float]

    def gap_closed(self, reward: float) -> float | None:
        """Return where a team's reward lies between random play (0) and the specialist (1).

        ``None`` in a scenario where the specialist earns no more than random play.
        """
        low, high = self.rewards[RANDOM_PLAY], self.rewards[SPECIALIST]
        return (reward - low) / (high - low) if high > low else None


@lru_cache(maxsize=256)
def scripted_teams(scenario: str, games: int, seed: int, nights: int = NIGHTS) -> ScriptedTeams:
    """Play an episode in so many games with each team."""
    rewards = {
        name: _reward_per_night(
            GameBatch([scenario], games, opponents=[name] * AGENTS, nights=nights, seeds=[seed])
        )
        for name in (SPECIALIST, *ARCHETYPES)
    }
    return ScriptedTeams(rewards)


def _reward_per_night(batch: GameBatch) -> float:
    """Play an episode in each game, without learners."""
    nothing = torch.zeros(batch.games, 0, len(batch.actions), dtype=torch.int64)
    over = torch.zeros(batch.games, dtype=torch.bool)
    rewards, nights = torch.zeros(batch.games), torch.zeros(batch.games)
    while not over.all():
        earned, terminated, truncated = batch.step(nothing)
        rewards += torch.where(over, 0.0, earned.sum(1))
        nights += ~over
        over |= terminated | truncated
    return float(rewards.sum() / nights.sum())

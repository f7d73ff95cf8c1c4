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

# Uniform house, mode and signal; the player "random" draws its traits instead.
RANDOM_PLAY = "random play"
# Added to the seed for its actions: those of a generator with the games' seed would depend on the fires.
_ACTIONS = 1_000_003


@dataclass(frozen=True)
class ScriptedTeams:
    """Rewards per night of teams, summed over their agents, by player: four of a kind, or random play."""

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
    teams = {name: [name] * AGENTS for name in (SPECIALIST, *ARCHETYPES)}
    rewards = {
        name: _reward_per_night(
            GameBatch([scenario], games, opponents=team, nights=nights, seeds=[seed]), seed
        )
        for name, team in {RANDOM_PLAY: [], **teams}.items()
    }
    return ScriptedTeams(rewards)


def _reward_per_night(batch: GameBatch, seed: int) -> float:
    """Play an episode in each game; learners, if there are any, act at random."""
    random = torch.Generator().manual_seed(seed + _ACTIONS)
    shape = (batch.games, len(batch.learners))
    over = torch.zeros(batch.games, dtype=torch.bool)
    rewards, nights = torch.zeros(batch.games), torch.zeros(batch.games)
    while not over.all():
        actions = [torch.randint(choices, shape, generator=random) for choices in batch.actions]
        earned, terminated, truncated = batch.step(torch.stack(actions, -1))
        rewards += torch.where(over, 0.0, earned.sum(1))
        nights += ~over
        over |= terminated | truncated
    return float(rewards.sum() / nights.sum())

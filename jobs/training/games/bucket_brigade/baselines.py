"""Scripted players in the places of learners, and the gap between random play and the specialist."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.batch import GameBatch
from jobs.training.games.bucket_brigade.behaviour import behaviour, measures
from jobs.training.games.bucket_brigade.catalogue import AGENTS, NIGHTS
from jobs.training.games.bucket_brigade.opponents import ARCHETYPES
from jobs.training.games.bucket_brigade.seats import LEARNER, SPECIALIST

RANDOM_PLAY = "uniform"
BASELINES = (SPECIALIST, *ARCHETYPES)
RETURN, TEAM_REWARD, GAP_CLOSED = "return", "team/reward_per_night", "team/gap_closed"
# The fewest games that place the ends of a gap: to 1 % of it in most scenarios, 9 % where it is small.
_REFERENCE_GAMES = 2_000


def baseline_figures(
    scenario: str, players: Sequence[str], games: int, seed: int, nights: int = NIGHTS
) -> dict[str, dict[str, float]]:
    """Return the figures of each scripted player in the places of the learners, in an episode of each game.

    ``players``: the name of each agent's player, "learner" among them. The figures are the learners' return
    and behaviour, and the reward of the team.
    """
    learners = tuple(agent for agent, player in enumerate(players) if player == LEARNER)
    found = {}
    for name in BASELINES:
        seated = tuple(name if player == LEARNER else player for player in players)
        found[name] = dict(_play(scenario, seated, learners, games, seed, nights))
    return found


def with_gap(
    figures: Mapping[str, float], scenario: str, nights: int = NIGHTS, games: int = 0, seed: int = 0
) -> dict[str, float]:
    """Add where a team's reward lies between four random players (0) and four specialists (1).

    These play ``games`` of that seed, or 2,000 if that is more. Adds nothing in a scenario where specialists
    earn no more than random play.
    """
    games = max(games, _REFERENCE_GAMES)
    low, high = (
        _play(scenario, (name,) * AGENTS, tuple(range(AGENTS)), games, seed, nights)[TEAM_REWARD]
        for name in (RANDOM_PLAY, SPECIALIST)
    )
    if high <= low:
        return dict(figures)
    return {**figures, GAP_CLOSED: (figures[TEAM_REWARD] - low) / (high - low)}


def behaviour_figures(sums: Tensor, nights: float) -> dict[str, float]:
    """Return the finite figures of behaviour, means over agents, from sums of measures (5, N)."""
    found = {name: float(value.nanmean()) for name, value in behaviour(sums, nights).items()}
    return {f"behaviour/{name}": value for name, value in found.items() if math.isfinite(value)}


@lru_cache(maxsize=512)
def _play(
    scenario: str, players: tuple[str, ...], watched: tuple[int, ...], games: int, seed: int, nights: int
) -> Mapping[str, float]:
    """Play an episode in each game with scripted players; return the figures, of ``watched`` agents."""
    batch = GameBatch([scenario], games, opponents=players, nights=nights, seeds=[seed])
    nothing = torch.zeros(games, 0, len(batch.actions), dtype=torch.int64)
    agents, over = list(watched), torch.zeros(games, dtype=torch.bool)
    returns, team, played, counted = (torch.zeros((), dtype=torch.float64) for _ in range(4))
    while not over.all():
        before, open_ = batch.episodes.state, (~over).double()
        rewards, terminated, truncated = batch.step(nothing)
        returns = returns + open_ @ rewards[:, agents].double().mean(1)
        team = team + open_ @ rewards.double().sum(1)
        played = played + open_.sum()
        counted = counted + open_ @ measures(batch.rules, before, batch.ended.state)[..., agents].double()
        over |= terminated | truncated
    return {
        RETURN: float(returns / games),
        TEAM_REWARD: float(team / played),
        **behaviour_figures(counted, float(played)),
    }

"""Scripted players for a batch of games: archetypes, also with random traits, and the specialist."""

from __future__ import annotations

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.game import BURNING, REST, WORK, GameState, is_burning
from jobs.training.games.bucket_brigade.scenarios import Parameters

# A character, each from 0 to 1.
TRAITS = (
    *("honesty", "work_tendency", "neighbor_help", "own_house_priority", "risk_aversion"),
    *("coordination", "exploration", "fatigue_memory", "rest_bias", "altruism"),
)
ARCHETYPES = {
    "firefighter": (1.0, 0.9, 0.5, 0.8, 0.5, 0.7, 0.1, 0.0, 0.0, 0.8),
    "free_rider": (0.7, 0.2, 0.0, 0.9, 0.0, 0.0, 0.1, 0.0, 0.9, 0.0),
    "hero": (1.0, 1.0, 1.0, 0.5, 0.1, 0.5, 0.0, 0.9, 0.0, 1.0),
    "coordinator": (0.9, 0.6, 0.7, 0.6, 0.8, 1.0, 0.05, 0.0, 0.2, 0.6),
    "liar": (0.1, 0.7, 0.0, 0.9, 0.2, 0.8, 0.3, 0.0, 0.4, 0.2),
    # Every house, mode and signal as likely as any other.
    "uniform": (0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
}
RANDOM = "random"
# Random numbers of an agent and night: truth of the signal, house, mode, whether it explores, the house and
# mode of that, whether it does the same again.
DRAWS = 7
_LOWEST_SCORE = 0.01


def archetype_actions(rules: Parameters, state: GameState, traits: Tensor, draws: Tensor) -> Tensor:
    """Return the actions (B, N, 3) of players with these traits (B, N, 10); ``draws`` (B, N, 7) in [0, 1)."""
    honesty, _, _, _, _, _, exploration, fatigue, _, altruism = traits.unbind(-1)
    truth, where, how, explores, other_house, other_mode, tired = draws.unbind(-1)
    wants = intent(rules, state, traits)
    signal = (wants > 0.5) ^ (truth >= honesty)
    works = how < torch.where(signal, honesty, wants * altruism)
    upto = house_scores(rules, state, traits).cumsum(-1)
    passed = (upto <= (where * upto[..., -1])[..., None]).to(upto.dtype).sum(-1)
    house = passed.clamp(max=rules.houses - 1)
    elsewhere = explores < exploration
    house = torch.where(elsewhere, (other_house * rules.houses).floor(), house)
    mode = torch.where(elsewhere, other_mode >= 0.5, works).to(house.dtype)
    again = (tired < fatigue)[..., None]
    chosen = torch.where(again, state.actions[..., :2], torch.stack((house, mode), -1))
    return torch.cat((chosen, signal[..., None]), -1).long()


def intent(rules: Parameters, state: GameState, traits: Tensor) -> Tensor:
    """Return how much each player wants to work (B, N), from 0 to 1."""
    _, work, _, own, risk, _, _, _, rest_bias, _ = traits.unbind(-1)
    burning = is_burning(state.houses)
    own_burns = burning.gather(1, rules.home)
    wants = work + risk * burning.mean(1, keepdim=True) + own_burns * own * 0.5
    return (wants * (1 - rest_bias)).clamp(0, 1)


def work_probability(rules: Parameters, state: GameState, traits: Tensor) -> Tensor:
    """Return each player's probability to work (B, N) in a night."""
    honesty, _, _, _, _, _, exploration, fatigue, _, altruism = traits.unbind(-1)
    wants = intent(rules, state, traits)
    says = torch.where(wants > 0.5, honesty, 1 - honesty)
    works = says * honesty + (1 - says) * wants * altruism
    works = exploration / 2 + (1 - exploration) * works
    return fatigue * state.modes + (1 - fatigue) * works


def house_scores(rules: Parameters, state: GameState, traits: Tensor) -> Tensor:
    """Return each player's weight of each house (B, N, H); it goes to one in proportion to them."""
    _, _, help_, own, risk, coordination, _, _, _, _ = (one[..., None] for one in traits.unbind(-1))
    burning = is_burning(state.houses)
    near = burning.roll(1, 1) + burning.roll(-1, 1)
    there = torch.zeros_like(burning).scatter_add(1, state.locations.long(), torch.ones_like(state.modes))
    score = (
        0.1 / (1 + rules.distance)
        + own * (rules.distance == 0)
        + 0.5 * burning[:, None]
        + help_ * (0.3 * near.clamp(max=1))[:, None]
        + coordination * (0.1 * there)[:, None]
        - risk * (0.2 * near)[:, None]
    )
    return score.clamp(min=_LOWEST_SCORE)


def specialist_actions(rules: Parameters, state: GameState) -> Tensor:
    """Return the actions (B, N, 3) of players that work only where a house of their own burns."""
    owned = rules.owned[:, : rules.agents].bool().T
    burns = owned & (state.houses == BURNING)[:, None]
    at_home = owned.long().argmax(-1).where(owned.any(-1), rules.home)
    works = burns.any(-1)
    house = burns.long().argmax(-1).where(works, at_home)
    mode = torch.where(works, WORK, REST)
    return torch.stack((house, mode, mode), -1)

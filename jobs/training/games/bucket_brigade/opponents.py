"""Scripted players for a batch of games: archetypes, also with random traits, and the specialist."""

from __future__ import annotations

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.game import BURNING, REST, WORK, GameState, happens, is_burning
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
# Random numbers of an agent and night: truth of the signal, house, mode, whether it explores, whether it does
# the same again. House and mode are drawn once: an agent that explores makes other use of the same numbers.
DRAWS = 5
_LOWEST_SCORE = 0.01


def archetype_actions(rules: Parameters, state: GameState, traits: Tensor, draws: Tensor) -> Tensor:
    """Return the actions (B, N, 3) of players with these traits (B, N, 10); ``draws`` (B, N, 5) in [0, 1)."""
    honesty, _, _, _, _, _, exploration, fatigue, _, altruism = traits.unbind(-1)
    truth, where, how, explores, tired = draws.unbind(-1)
    wants = intent(rules, state, traits)
    signal = (wants > 0.5) ^ (truth >= honesty)
    works = torch.where(signal, honesty, wants * altruism)
    preferred = _drawn(house_scores(rules, state, traits), where)
    elsewhere, again = explores < exploration, tired < fatigue
    house = torch.where(elsewhere, (where * rules.houses).floor(), preferred)
    mode = happens(torch.where(elsewhere, 0.5, works), how)
    house = torch.where(again, state.locations, house)
    mode = torch.where(again, state.modes, mode)
    return _actions(house, mode, signal.to(mode.dtype))


def _drawn(weights: Tensor, draws: Tensor) -> Tensor:
    """Return numbers (B, N) drawn in proportion to weights (B, N, H), by draws (B, N) in [0, 1)."""
    houses = weights.shape[-1]
    columns = weights.permute(2, 1, 0)
    # Sums up to each house, in a third of the time of cumsum.
    upto = torch.ones(houses, houses, device=weights.device).tril() @ columns.flatten(1)
    upto = upto.unflatten(1, columns.shape[1:])
    return upto.le_(draws.T * upto[-1]).sum(0).clamp(max=houses - 1).T


def _actions(house: Tensor, mode: Tensor, signal: Tensor) -> Tensor:
    """Return actions (B, N, 3) of their parts (B, N), stored by column."""
    return torch.stack((house.T, mode.T, signal.T), 1).movedim(-1, 0)


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
    # Columns of B numbers: (H, B) of houses, (N, B) of players, (H, N, B) of both.
    _, _, help_, own, risk, coordination, _, _, _, _ = traits.permute(2, 1, 0)
    burning = is_burning(state.houses).T
    near = burning.roll(1, 0) + burning.roll(-1, 0)
    places = state.locations.T
    there = torch.zeros_like(burning).scatter_add_(0, places.long(), torch.ones_like(places))
    score = torch.add(rules.nearness.movedim(0, -1), burning[:, None], alpha=0.5)
    score.addcmul_(rules.at_home.movedim(0, -1), own)
    score.addcmul_((0.3 * near.clamp(max=1))[:, None], help_)
    score.addcmul_((0.1 * there)[:, None], coordination)
    score.addcmul_((-0.2 * near)[:, None], risk)
    return score.clamp_(min=_LOWEST_SCORE).permute(2, 1, 0)


def specialist_actions(rules: Parameters, state: GameState) -> Tensor:
    """Return the actions (B, N, 3) of players that work only where a house of their own burns."""
    owned = rules.owned[:, : rules.agents].bool().T
    burns = owned & (state.houses == BURNING)[:, None]
    at_home = owned.long().argmax(-1).where(owned.any(-1), rules.home)
    works = burns.any(-1)
    house = burns.long().argmax(-1).where(works, at_home)
    mode = torch.where(works, WORK, REST)
    return _actions(*(one.to(state.houses.dtype) for one in (house, mode, mode)))

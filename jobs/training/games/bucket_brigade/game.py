"""The rules, for a batch of games at once: no loop over games, houses or agents, no number leaves the device.

B games, N agents, H houses. An action is [house, mode, signal]. House h is owned by agent h mod N.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.scenarios import Parameters

SAFE, BURNING, RUINED = 0, 1, 2
REST, WORK = 0, 1
# Random numbers of a night and house: is the fire put out, does it spread here, does a spark set fire.
DRAWS = 3


@dataclass(frozen=True)
class GameState:
    """``houses`` (B, H) and their fires' ``progress`` (B, H); what agents did last: ``signals`` (B, N),
    ``locations`` (B, N), ``modes`` (B, N); ``night`` (B, 1), from 0."""

    houses: Tensor
    progress: Tensor
    signals: Tensor
    locations: Tensor
    modes: Tensor
    night: Tensor


def first_night(rules: Parameters, draws: Tensor) -> GameState:
    """Return games at their beginning; ``draws`` (B, H) are uniform in [0, 1)."""
    games, device = len(draws), draws.device
    nothing = torch.zeros(games, rules.agents, dtype=torch.int64, device=device)
    houses = (draws < rules.spark).to(torch.int64)
    night = torch.zeros(games, 1, dtype=torch.int64, device=device)
    return GameState(houses, torch.zeros_like(draws), nothing, nothing, nothing, night)


def actions_of(choices: Tensor) -> Tensor:
    """Return the actions (…, 3) of choices (…) among houses × 4: house × 4 + mode × 2 + signal."""
    return torch.stack((choices // 4, choices // 2 % 2, choices % 2), -1)


def play_night(
    rules: Parameters, state: GameState, actions: Tensor, draws: Tensor
) -> tuple[GameState, Tensor, Tensor]:
    """Play one night: the state after it, rewards (B, N) and which games are over (B, 1).

    ``actions`` (B, N, 3) are whole numbers, ``draws`` (B, 3, H) are uniform in [0, 1).
    """
    house, mode, signal = actions.unbind(-1)
    workers = torch.zeros_like(state.progress).scatter_add(1, house, mode.to(state.progress.dtype))
    houses, progress = _put_out(rules, state, workers, draws[:, 0])
    burning = houses == BURNING
    near = burning.roll(1, 1).to(draws.dtype) + burning.roll(-1, 1).to(draws.dtype)
    caught = (houses == SAFE) & (draws[:, 1] < 1 - (1 - rules.spread) ** near)
    caught = caught | ((houses == SAFE) & (draws[:, 2] < rules.spark))
    houses = torch.where(caught, BURNING, houses)
    done = over(rules, houses, state.night)
    after = GameState(houses, progress, signal, house, mode, state.night + 1)
    return after, rewards(rules, state.houses, houses, actions), done


def _put_out(rules: Parameters, state: GameState, workers: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Return houses and progress after the work; without "continuous" what still burns is ruined."""
    burning = state.houses == BURNING
    progress = torch.where(burning, state.progress + workers * rules.suppression, state.progress)
    by_chance = draws < 1 - (1 - rules.extinguish) ** workers
    out = burning & torch.where(rules.continuous, progress >= 1, by_chance)
    ruined = burning & ~out & ~rules.continuous
    houses = torch.where(out, SAFE, torch.where(ruined, RUINED, state.houses))
    return houses, torch.where(out | ruined, 0.0, progress)


def rewards(rules: Parameters, before: Tensor, after: Tensor, actions: Tensor) -> Tensor:
    """Return each agent's reward (B, N) of a night, from the houses before and after it, both (B, H)."""
    house, mode, _ = actions.unbind(-1)
    dtype = rules.work_cost.dtype
    saved = ((before != SAFE) & (after == SAFE)).to(dtype)
    ruined = (after == RUINED).to(dtype)
    owned = ownership(rules, dtype, after.device)
    own_saved, own_ruined = saved @ owned, ruined @ owned
    all_saved, all_ruined = saved.sum(1, keepdim=True), ruined.sum(1, keepdim=True)
    safe = (after == SAFE).to(dtype).mean(1, keepdim=True)
    cost = rules.work_cost + rules.distance_cost * ring_distance(rules.home, house, rules.houses)
    return (
        torch.where(mode == WORK, -cost, rules.rest)
        + rules.own_reward * own_saved
        + rules.other_reward * (all_saved - own_saved)
        - rules.own_penalty * own_ruined
        - rules.other_penalty * (all_ruined - own_ruined)
        + rules.team_reward * safe
        - rules.team_penalty * all_ruined / rules.houses
    )


def over(rules: Parameters, houses: Tensor, night: Tensor) -> Tensor:
    """Whether games are over (B, 1) after a night, counted from 0: late enough, and no house burns."""
    return (night >= rules.min_nights) & ~(houses == BURNING).any(1, keepdim=True)


def ownership(rules: Parameters, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1 where a house (H rows) is owned by an agent (N columns), else 0."""
    owner = torch.arange(rules.houses, device=device) % rules.agents
    return (owner[:, None] == torch.arange(rules.agents, device=device)).to(dtype)


def ring_distance(one: Tensor, other: Tensor, houses: int) -> Tensor:
    """Return the number of steps between houses on the ring, the shorter way."""
    apart = (one - other).abs()
    return torch.minimum(apart, houses - apart)


def observations(rules: Parameters, state: GameState) -> Tensor:
    """Return what every agent sees (B, H + 4 N + 12): houses, signals, locations, last actions, scenario."""
    last = torch.stack((state.locations, state.modes), -1).flatten(1)
    seen = torch.cat((state.houses, state.signals, state.locations, last), 1)
    return torch.cat((seen.to(rules.info.dtype), rules.info), 1)


def observation_width(rules: Parameters) -> int:
    """Return the width of :func:`observations`."""
    return rules.houses + 4 * rules.agents + rules.info.shape[1]

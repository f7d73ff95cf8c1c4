"""The rules, for a batch of games at once: no loop over games, houses or agents, no number leaves the device.

B games, N agents, H houses. An action is [house, mode, signal]. House h is owned by agent h mod N.

For speed, state is floats, masks are 0.0 and 1.0, and tensors lie in memory column by column:
:func:`scenarios.by_column` makes them so, and operations pass it on. A column of one number for each game
then meets contiguous ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.scenarios import Parameters, by_column, ring_distance

SAFE, BURNING, RUINED = 0, 1, 2
REST, WORK = 0, 1


@dataclass(frozen=True)
class GameState:
    """``houses`` (B, H), the ``progress`` (B, H) of work on their fires, the last ``actions`` (B, N, 3), and
    the ``night`` (B, 1), from 0."""

    houses: Tensor
    progress: Tensor
    actions: Tensor
    night: Tensor

    @property
    def locations(self) -> Tensor:
        """The house (B, N) where each agent was last."""
        return self.actions[..., 0]

    @property
    def modes(self) -> Tensor:
        """What each agent (B, N) did there."""
        return self.actions[..., 1]

    @property
    def signals(self) -> Tensor:
        """What each agent (B, N) signalled."""
        return self.actions[..., 2]


def first_night(rules: Parameters, draws: Tensor) -> GameState:
    """Return games at their beginning; ``draws`` (B, H) are uniform in [0, 1)."""
    houses = first_houses(rules, draws)
    nothing = torch.zeros(rules.agents, 3, len(houses), device=houses.device).movedim(-1, 0)
    return GameState(houses, torch.zeros_like(houses), nothing, nothing[:, 0, :1])


def first_houses(rules: Parameters, draws: Tensor) -> Tensor:
    """Return the houses (B, H) of games at their beginning; ``draws`` (B, H) are uniform in [0, 1)."""
    return happens(rules.spark, draws)


def actions_of(choices: Tensor) -> Tensor:
    """Return the actions (…, 3) of choices (…) among houses × 4: house × 4 + mode × 2 + signal."""
    return torch.stack((choices // 4, choices // 2 % 2, choices % 2), -1)


def play_night(
    rules: Parameters, state: GameState, actions: Tensor, draws: Tensor
) -> tuple[GameState, Tensor, Tensor]:
    """Play one night: the state after it, rewards (B, N) and which games are over (B, 1).

    ``actions`` (B, N, 3) are whole numbers, ``draws`` (B, H) are uniform in [0, 1).
    """
    taken = by_column(actions, rules.spark.dtype)
    house, mode, _ = taken.unbind(-1)
    workers = torch.zeros_like(state.houses).scatter_add_(1, house.long(), mode)
    left = torch.exp(workers * rules.log_not_extinguished * is_burning(state.houses))
    ruined = left * state.houses.clamp(max=BURNING)
    chances = _Chances(ruined, torch.addcmul(ruined, 1 - ruined, rules.spark), state.progress)
    if rules.any_continuous:
        chances = _with_progress(rules, state, workers, chances)
    # A draw below both is RUINED (2), below one BURNING (1), else SAFE (0).
    houses = happens(chances.lost, draws) + happens(chances.ruined, draws)
    after = GameState(houses, chances.progress, taken, state.night + 1)
    return after, rewards(rules, state.houses, houses, taken), over(rules, houses, state.night)


@dataclass(frozen=True)
class _Chances:
    """The probability that each house is ruined after a night, the probability that it is ruined or burns
    (``lost``), and the progress of work on its fire."""

    ruined: Tensor
    lost: Tensor
    progress: Tensor


def _with_progress(rules: Parameters, state: GameState, workers: Tensor, by_chance: _Chances) -> _Chances:
    """Return the same where work is not "continuous"; where it is, fires go on and spread."""
    burning = is_burning(state.houses)
    progress = state.progress + burning * workers * rules.suppression
    out = burning * (progress >= 1)
    left = (burning - out) * rules.continuous
    near = left.roll(1, 1) + left.roll(-1, 1)
    stays_safe = (is_safe(state.houses) + out) * (1 - rules.spark) * torch.exp(near * rules.log_not_spread)
    return _Chances(
        torch.where(rules.continuous, is_ruined(state.houses), by_chance.ruined),
        torch.where(rules.continuous, 1 - stays_safe, by_chance.lost),
        progress * left,
    )


def rewards(rules: Parameters, before: Tensor, after: Tensor, actions: Tensor) -> Tensor:
    """Return each agent's reward (B, N) of a night, from the houses before and after it, both (B, H)."""
    house, mode, _ = actions.unbind(-1)
    safe = is_safe(after)
    own_saved, all_saved = _by_owner(rules, safe * before.clamp(max=BURNING))
    own_ruined, all_ruined = _by_owner(rules, is_ruined(after))
    return (
        rules.rest
        - mode * (rules.rest + _cost(rules, house))
        + rules.own_reward * own_saved
        + rules.other_reward * (all_saved - own_saved)
        - rules.own_penalty * own_ruined
        - rules.other_penalty * (all_ruined - own_ruined)
        + (rules.team_reward * safe.sum(1, keepdim=True) - rules.team_penalty * all_ruined) / rules.houses
    )


def _by_owner(rules: Parameters, houses: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums over each agent's own houses (B, N), and over all of them (B, 1)."""
    own, every = (rules.owned.T @ houses.T).split((rules.agents, 1))
    return own.T, every.T


def _cost(rules: Parameters, house: Tensor) -> Tensor:
    if not rules.any_distance:
        return rules.work_cost
    return rules.work_cost + rules.distance_cost * ring_distance(rules.home, house, rules.houses)


def is_safe(houses: Tensor) -> Tensor:
    """Return 1.0 where a house is safe, else 0.0."""
    return (BURNING - houses).clamp(min=0)


def is_burning(houses: Tensor) -> Tensor:
    """Return 1.0 where a house burns, else 0.0."""
    return houses * (RUINED - houses)


def is_ruined(houses: Tensor) -> Tensor:
    """Return 1.0 where a house is ruined, else 0.0."""
    return (houses - BURNING).clamp(min=0)


def happens(probability: Tensor, draws: Tensor) -> Tensor:
    """Return 1.0 where a draw from [0, 1) is below the probability, else 0.0."""
    return (probability - draws).ceil()


def over(rules: Parameters, houses: Tensor, night: Tensor) -> Tensor:
    """Whether games are over (B, 1) after a night, counted from 0: late enough, and no house burns."""
    return (night >= rules.min_nights) & (is_burning(houses).sum(1, keepdim=True) == 0)


def observations(rules: Parameters, state: GameState) -> Tensor:
    """Return what every agent sees (B, H + 4 N + 12): houses, signals, locations, last actions, scenario."""
    agents = state.actions.movedim(0, -1)  # (N, 3, B)
    last = agents[:, :2].flatten(0, 1)
    return torch.cat((state.houses.T, agents[:, 2], agents[:, 0], last, rules.info.T)).T


def one_hot(rules: Parameters, state: GameState) -> Tensor:
    """Return what every agent sees but the scenario, as zeros and ones (B, 3 H + N H + 2 N).

    Whether each house is safe, burning and ruined, whether each agent is at each house; modes; signals.
    """
    numbers = torch.arange(max(rules.houses, 3), device=state.houses.device)
    conditions = state.houses[..., None] == numbers[:3]
    places = state.locations[..., None] == numbers[: rules.houses]
    both = torch.cat((conditions.flatten(1), places.flatten(1)), 1)
    return torch.cat((both.to(state.modes.dtype), state.modes, state.signals), 1)


def one_hot_state(rules: Parameters, seen: Tensor) -> GameState:
    """Return the state in :func:`one_hot`, as :func:`seen_state` does."""
    houses, agents = rules.houses, rules.agents
    parts = seen.split((3 * houses, agents * houses, agents, agents), 1)
    conditions, places = parts[0].unflatten(1, (-1, 3)), parts[1].unflatten(1, (-1, houses))
    actions = torch.stack((places.argmax(-1).to(seen.dtype), *parts[2:]), -1)
    return _without_history(conditions.argmax(-1).to(seen.dtype), actions)


def seen_state(rules: Parameters, seen: Tensor) -> GameState:
    """Return the state in observations; fires' progress and the night, which they lack, are 0."""
    houses, signals, _, last, _ = seen.split(
        (rules.houses, rules.agents, rules.agents, 2 * rules.agents, rules.info.shape[1]), 1
    )
    return _without_history(houses, torch.cat((last.unflatten(1, (-1, 2)), signals[..., None]), -1))


def _without_history(houses: Tensor, actions: Tensor) -> GameState:
    return GameState(houses, torch.zeros_like(houses), actions, torch.zeros_like(houses[:, :1]))


def observation_width(rules: Parameters) -> int:
    """Return the width of :func:`observations`."""
    return rules.houses + 4 * rules.agents + rules.info.shape[1]

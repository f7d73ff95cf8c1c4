"""Scenarios of the game, and their parameters as tensors with a row for each game of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.catalogue import AGENTS, Scenario, ScenarioError

_OF_ALL = (
    *("prob_fire_spreads_to_neighbor", "prob_solo_agent_extinguishes_fire", "team_reward_house_survives"),
    *("team_penalty_house_burns", "cost_to_work_one_night", "prob_house_catches_fire", "min_nights"),
)
# The order of a scenario's numbers in observations; of the last four, which may differ by agent, the means.
OBSERVED = (
    *(*_OF_ALL, "num_agents"),
    *("reward_own_house_survives", "reward_other_house_survives"),
    *("penalty_own_house_burns", "penalty_other_house_burns"),
)


@dataclass(frozen=True)
class Parameters:
    """Parameters of a batch of B games with N agents and H houses.

    Probabilities, costs and team rewards are (B, 1), what differs by agent is (B, N), ``home`` is (B, N)
    house numbers; ``nearness`` (B, H, N) is 0.1 / (1 + distance) of a house from there, ``at_home`` (B, H, N)
    is 1 at distance 0; ``continuous`` is (B, 1) and boolean; ``info`` is the (B, 12) part of observations;
    ``owned`` (H, N + 1), the same for all games, is 1 where an agent owns a house, and in its last column.
    Logarithms are finite, also those of 0.
    """

    log_not_spread: Tensor
    log_not_extinguished: Tensor
    spark: Tensor
    team_reward: Tensor
    team_penalty: Tensor
    work_cost: Tensor
    rest: Tensor
    min_nights: Tensor
    own_reward: Tensor
    other_reward: Tensor
    own_penalty: Tensor
    other_penalty: Tensor
    continuous: Tensor
    suppression: Tensor
    distance_cost: Tensor
    home: Tensor
    nearness: Tensor
    at_home: Tensor
    info: Tensor
    owned: Tensor
    agents: int
    houses: int
    any_continuous: bool
    any_distance: bool

    def take(self, games: Tensor) -> Parameters:
        """Return the parameters of the games with these numbers (B), which may repeat, on their device.

        Columns are contiguous: see :mod:`game`.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        tensors = {name: one.to(games.device) for name, one in values.items() if isinstance(one, Tensor)}
        owned = tensors.pop("owned")
        return replace(self, owned=owned, **{name: by_column(one[games]) for name, one in tensors.items()})


def parameters(scenarios: Sequence[Scenario], agents: int = AGENTS) -> Parameters:
    """Return the parameters of one game for each scenario given, which all have as many houses.

    Raises :class:`ScenarioError` for scenarios of different sizes or of another number of agents.
    """
    sizes = {one.num_houses: one.name for one in scenarios}
    if len(sizes) > 1:
        found = ", ".join(f"{name} has {houses}" for houses, name in sorted(sizes.items()))
        raise ScenarioError(f"scenarios of one batch need the same number of houses: {found}")

    def column(name: str) -> Tensor:
        return torch.tensor([[float(getattr(one, name))] for one in scenarios])

    def log_not(name: str) -> Tensor:
        return torch.log((1 - column(name)).clamp(min=torch.finfo().tiny))

    def by_agent(name: str) -> Tensor:
        return torch.tensor([_for_agents(one, name, agents) for one in scenarios])

    own_reward, other_reward = by_agent("reward_own_house_survives"), by_agent("reward_other_house_survives")
    own_penalty, other_penalty = by_agent("penalty_own_house_burns"), by_agent("penalty_other_house_burns")
    houses = scenarios[0].num_houses
    home = torch.tensor([_homes(one, agents) for one in scenarios])
    distance = ring_distance(home[:, None], torch.arange(houses)[:, None], houses).float()
    means = [one.mean(1, keepdim=True) for one in (own_reward, other_reward, own_penalty, other_penalty)]
    number = torch.full((len(scenarios), 1), float(agents))
    return Parameters(
        log_not_spread=log_not("prob_fire_spreads_to_neighbor"),
        log_not_extinguished=log_not("prob_solo_agent_extinguishes_fire"),
        spark=column("prob_house_catches_fire"),
        team_reward=column("team_reward_house_survives"),
        team_penalty=column("team_penalty_house_burns"),
        work_cost=column("cost_to_work_one_night"),
        rest=column("reward_rest"),
        min_nights=column("min_nights"),
        own_reward=own_reward,
        other_reward=other_reward,
        own_penalty=own_penalty,
        other_penalty=other_penalty,
        continuous=torch.tensor([[one.extinguish_mode == "continuous"] for one in scenarios]),
        suppression=column("suppression_per_worker"),
        distance_cost=column("distance_cost_alpha"),
        home=home,
        nearness=0.1 / (1 + distance),
        at_home=(distance == 0).float(),
        info=torch.cat([*map(column, _OF_ALL), number, *means], 1),
        owned=_owned(houses, agents),
        agents=agents,
        houses=houses,
        any_continuous=any(one.extinguish_mode == "continuous" for one in scenarios),
        any_distance=any(one.distance_cost_alpha for one in scenarios),
    )


def _for_agents(one: Scenario, name: str, agents: int) -> tuple[float, ...]:
    value = getattr(one, name)
    if not isinstance(value, tuple):
        return (float(value),) * agents
    if len(value) != agents:
        raise ScenarioError(
            f"{one.name}: {name} has {len(value)} values, one for each of its agents; found {agents} agents"
        )
    return value


def _homes(one: Scenario, agents: int) -> tuple[int, ...]:
    homes = one.homes(agents)
    if len(homes) != agents:
        raise ScenarioError(f"{one.name}: {len(homes)} agents have a home; found {agents} agents")
    return homes


def by_column(rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the same values (B, …), stored with the B numbers of each place side by side."""
    columns = rows.movedim(0, -1)
    return columns.to(dtype or rows.dtype).contiguous().movedim(-1, 0)


def ring_distance(one: Tensor, other: Tensor, houses: int) -> Tensor:
    """Return the number of steps between houses on the ring, the shorter way."""
    apart = (one - other).abs()
    return torch.minimum(apart, houses - apart)


def _owned(houses: int, agents: int) -> Tensor:
    own = torch.eye(agents).repeat(-(-houses // agents), 1)[:houses]
    return torch.cat((own, torch.ones(houses, 1)), 1)

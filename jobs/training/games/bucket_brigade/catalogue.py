"""Scenarios of the game by name, and their parameters. Imports nothing that loads slowly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

AGENTS, HOUSES = 4, 10
# Episodes are cut after so many, unless a task says otherwise.
NIGHTS = 50
PerAgent = float | tuple[float, ...]


class ScenarioError(ValueError):
    """A scenario that does not exist, or scenarios that do not fit into one batch."""


@dataclass(frozen=True)
class Scenario:
    """A scenario's parameters, named as in its publication. ``PerAgent``: one number, or one for each agent.

    ``prob_*``: probabilities of a night. ``extinguish_mode``: "bernoulli" (a fire is out or the house is
    ruined, by chance) or "continuous" (work adds up to 1). ``distance_cost_alpha``: cost of work per step
    on the ring between an agent's home and its place.
    """

    name: str
    prob_fire_spreads_to_neighbor: float
    prob_solo_agent_extinguishes_fire: float
    prob_house_catches_fire: float
    team_reward_house_survives: float
    team_penalty_house_burns: float
    cost_to_work_one_night: float
    reward_rest: float
    min_nights: int
    reward_own_house_survives: PerAgent
    reward_other_house_survives: PerAgent
    penalty_own_house_burns: PerAgent
    penalty_other_house_burns: PerAgent
    num_houses: int = HOUSES
    extinguish_mode: str = "bernoulli"
    suppression_per_worker: float = 0.0
    distance_cost_alpha: float = 0.0
    distance_metric: str = "ring_arc"
    agent_home_positions: tuple[int, ...] = field(default=())

    def homes(self, agents: int) -> tuple[int, ...]:
        """The home of each agent: a house's number."""
        return self.agent_home_positions or tuple(agent % self.num_houses for agent in range(agents))


@cache
def _all() -> Mapping[str, Scenario]:
    text = files(__package__).joinpath("scenarios.yaml").read_text(encoding="utf-8")
    return {name: Scenario(name, **_hashable(given)) for name, given in yaml.safe_load(text).items()}


def _hashable(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}


def scenario_names() -> list[str]:
    """Return the names of all scenarios."""
    return list(_all())


def scenario(name: str) -> Scenario:
    """Return the named scenario. Raises :class:`ScenarioError` with the nearest names."""
    found = _all().get(name)
    if found is None:
        near = get_close_matches(name, _all(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_all())}"
        raise ScenarioError(f"no scenario named {name!r}; {hint}")
    return found

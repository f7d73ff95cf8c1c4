"""Observations of the game's original implementation, as policies that were trained here see them.

    seen = policy_observations(environment.reset(), learners=range(4))   # (4, 42): a row for each agent
    actions, _, _ = policy.act(seen, generator)                          # (4, 3): [house, mode, signal]

The original has the same parts, but its ``scenario_info`` stands in another order: fed as it is, a policy
that does not ignore constant columns plays without an error, and badly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.catalogue import ScenarioError
from jobs.training.games.bucket_brigade.scenarios import OBSERVED

# The order of the original's ``scenario_info``.
SCENARIO_INFO = (
    *("prob_fire_spreads_to_neighbor", "prob_solo_agent_extinguishes_fire", "prob_house_catches_fire"),
    *("team_reward_house_survives", "team_penalty_house_burns"),
    *("reward_own_house_survives", "reward_other_house_survives"),
    *("penalty_own_house_burns", "penalty_other_house_burns"),
    *("cost_to_work_one_night", "min_nights", "num_agents"),
)
_PLACES = [SCENARIO_INFO.index(name) for name in OBSERVED]
# Numbers of each agent in the parts that there are for agents.
_BY_AGENT = {"signals": 1, "locations": 1, "last_actions": 2}


def policy_observations(observation: Mapping[str, Any], learners: Sequence[int] = (0,)) -> Tensor:
    """Return what these agents see (L, H + 4 N + 12, and N more if several learn) of an observation there.

    ``observation``: ``houses``, ``signals``, ``locations``, ``last_actions`` and ``scenario_info``.
    ``learners``: the agents that learned in the policy's training: agent 0 alone beside
    ``task.opponents: 3``, all four with ``task.opponents: 0``. Raises :class:`ScenarioError` for parts of
    other sizes, such as the ten numbers of older versions.
    """
    parts = {
        name: torch.as_tensor(observation[name], dtype=torch.float32).flatten()
        for name in ("houses", *_BY_AGENT, "scenario_info")
    }
    _require_sizes(parts, learners)
    parts["scenario_info"] = parts["scenario_info"][_PLACES]
    seen = torch.cat([*parts.values()]).expand(len(learners), -1)
    if len(learners) == 1:
        return seen
    return torch.cat((seen, torch.eye(len(parts["signals"]))[list(learners)]), 1)


def _require_sizes(parts: Mapping[str, Tensor], learners: Sequence[int]) -> None:
    agents = len(parts["signals"])
    sizes = {name: agents * each for name, each in _BY_AGENT.items()} | {"scenario_info": len(SCENARIO_INFO)}
    for name, size in sizes.items():
        if len(parts[name]) != size:
            raise ScenarioError(
                f"{name}: found {len(parts[name])} numbers, expected {size} for {agents} agents"
            )
    if not learners or not set(learners) <= set(range(agents)):
        raise ScenarioError(f"learners: found {list(learners)}, expected agents from 0 to {agents - 1}")

"""Observations of the original implementation, encoded for policies, against recorded nights of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from jobs.trainers.actor_critic.environments.bucket_brigade import BucketBrigade
from jobs.trainers.actor_critic.environments.keys import BucketBrigadeConfig
from jobs.training.games.bucket_brigade.catalogue import ScenarioError, scenario, scenario_names
from jobs.training.games.bucket_brigade.game import GameState, observations
from jobs.training.games.bucket_brigade.original import SCENARIO_INFO, policy_observations
from tests.unit.jobs.training.games.test_bucket_brigade import column, games, recorded


def original(name: str, houses: Any, actions: Any) -> dict[str, Any]:
    """The original's observation after a night with these actions; of numbers by agent it has the means."""
    rules = {**vars(scenario(name)), "num_agents": 4}
    taken = np.asarray(actions, dtype=np.int8)
    return {
        "signals": taken[:, 2],
        "locations": taken[:, 0],
        "houses": np.asarray(houses, dtype=np.int8),
        "last_actions": taken[:, :2],
        "scenario_info": np.array([np.mean(rules[key]) for key in SCENARIO_INFO], dtype=np.float32),
    }


@pytest.mark.parametrize("name", scenario_names())
def test_recorded_nights_are_seen_as_in_training(name: str) -> None:
    nights = recorded()[name]
    houses, actions = column(nights, "houses_after"), column(nights, "actions")
    state = GameState(houses, torch.zeros_like(houses), actions, torch.zeros(len(nights), 1))
    found = [policy_observations(original(name, one["houses_after"], one["actions"])) for one in nights]
    torch.testing.assert_close(torch.cat(found), observations(games(name, len(nights)), state))


@pytest.mark.parametrize(("opponents", "learners"), [(3, [0]), (0, [0, 1, 2, 3])])
def test_each_learner_has_the_row_of_training(opponents: int, learners: list[int]) -> None:
    name = "minimal_specialization"
    config = BucketBrigadeConfig(name=f"bucket_brigade/{name}", opponents=opponents)
    environments = BucketBrigade(config, 1, 0, "cpu")
    seen = environments.reset()
    houses = seen[0, : scenario(name).num_houses].tolist()
    found = policy_observations(original(name, houses, np.zeros((4, 3))), learners)
    torch.testing.assert_close(found, seen)
    without = BucketBrigade(replace(config, identity=False), 1, 0, "cpu")
    torch.testing.assert_close(without.reset(), seen[:, : without.shape[0]])
    assert without.shape[0] == 10 + 4 * 4 + 12


def test_observations_of_other_sizes_are_refused() -> None:
    seen = original("hard", np.zeros(10), np.zeros((4, 3)))
    with pytest.raises(ScenarioError, match="scenario_info: found 10 numbers, expected 12"):
        policy_observations({**seen, "scenario_info": np.zeros(10)})
    with pytest.raises(ScenarioError, match="last_actions: found 12 numbers, expected 8"):
        policy_observations({**seen, "last_actions": np.zeros((4, 3))})
    with pytest.raises(ScenarioError, match=r"learners: found \[4\], expected agents from 0 to 3"):
        policy_observations(seen, [4])

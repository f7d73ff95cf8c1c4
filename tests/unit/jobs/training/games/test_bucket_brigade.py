"""The batched game against recorded nights of a reference implementation, and against its probabilities."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import plain_brigade
from jobs.training.games.bucket_brigade.catalogue import ScenarioError, scenario, scenario_names
from jobs.training.games.bucket_brigade.game import (
    BURNING,
    RUINED,
    SAFE,
    GameState,
    first_night,
    observations,
    over,
    play_night,
    rewards,
)
from jobs.training.games.bucket_brigade.scenarios import Parameters, parameters, ring_distance

NIGHTS = Path(__file__).parents[4] / "games" / "bucket_brigade_nights.jsonl.xz"
# Team reward a night of uniform play, as published; few games were played for it.
RANDOM_PLAY = {
    "default": 251.2,
    "easy": 355.1,
    "hard": 124.7,
    "trivial_cooperation": 400.0,
    "early_containment": 297.2,
    "greedy_neighbor": 292.8,
    "sparse_heroics": 246.1,
    "rest_trap": 302.9,
    "chain_reaction": 227.4,
    "deceptive_calm": 78.6,
    "overcrowding": 120.2,
    "mixed_motivation": 224.1,
    "minimal_specialization": -87.7,
    "positional_default": 250.7,
}


def recorded() -> dict[str, list[Mapping[str, Any]]]:
    """The recorded nights by scenario."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    with lzma.open(NIGHTS, "rt", encoding="utf-8") as file:
        for line in file:
            night = json.loads(line)
            found.setdefault(night["scenario"], []).append(night)
    return found


def games(name: str, number: int) -> Parameters:
    return parameters([scenario(name)]).take(torch.zeros(number, dtype=torch.int64))


@pytest.mark.parametrize("name", scenario_names())
def test_the_plain_game_of_the_benchmark_keeps_the_same_rules(name: str) -> None:
    rules = scenario(name)
    for night in recorded()[name]:
        before, after = night["houses_before"], night["houses_after"]
        found = plain_brigade.rewards_of(rules, before, after, night["actions"])
        assert found == pytest.approx(night["rewards"], abs=1e-3)
        assert plain_brigade.is_over(rules, after, night["night"]) == night["done"]
    game = plain_brigade.PlainGame(rules, 0)
    assert len(game.observation()) == rules.num_houses + 4 * 4 + 12


def column(nights: list[Mapping[str, Any]], key: str) -> Tensor:
    return torch.tensor([night[key] for night in nights], dtype=torch.float32)


def state_before(nights: list[Mapping[str, Any]]) -> GameState:
    houses = column(nights, "houses_before")
    nothing = torch.zeros(len(nights), 4, 3)
    progress, night = column(nights, "fire_progress_before"), column(nights, "night")[:, None]
    return GameState(houses, progress, nothing, night)


@pytest.mark.parametrize("name", scenario_names())
def test_rewards_and_the_end_of_every_recorded_night(name: str) -> None:
    nights = recorded()[name]
    rules, after = games(name, len(nights)), column(nights, "houses_after")
    found = rewards(rules, column(nights, "houses_before"), after, column(nights, "actions"))
    torch.testing.assert_close(found, column(nights, "rewards"), atol=1e-3, rtol=0)
    assert over(rules, after, column(nights, "night")[:, None]).squeeze(1).tolist() == [
        night["done"] for night in nights
    ]


@pytest.mark.parametrize("name", scenario_names())
def test_every_recorded_night_can_happen(name: str) -> None:
    """Some draws lead to it: each house's outcome is one that some draw brings about."""
    nights = recorded()[name]
    rules, state = games(name, len(nights)), state_before(nights)
    actions, target = column(nights, "actions").long(), column(nights, "houses_after")
    possible = torch.zeros_like(target, dtype=torch.bool)
    for draw in torch.arange(0, 1, 0.01):
        after, _, _ = play_night(rules, state, actions, draw.expand(len(nights), rules.houses))
        possible |= after.houses == target
    assert possible.all()


def test_scenarios_are_played_in_one_batch_as_alone() -> None:
    names = [name for name in scenario_names() if scenario(name).num_houses == 10]
    together = parameters([scenario(name) for name in names])
    draws = torch.rand(len(names), 10, generator=torch.Generator().manual_seed(1))
    actions = torch.randint(0, 2, (len(names), 4, 3), generator=torch.Generator().manual_seed(2))
    start = first_night(together, draws)
    after, paid, done = play_night(together, start, actions, draws)
    for number, name in enumerate(names):
        one = slice(number, number + 1)
        alone = games(name, 1)
        own, own_paid, own_done = play_night(alone, first_night(alone, draws[one]), actions[one], draws[one])
        torch.testing.assert_close(own.houses, after.houses[one])
        torch.testing.assert_close(own_paid, paid[one])
        torch.testing.assert_close(own_done, done[one])
        torch.testing.assert_close(observations(alone, own), observations(together, after)[one])


def frequency(happened: Tensor) -> float:
    return happened.double().mean().item()


@pytest.mark.parametrize(("name", "workers"), [("default", 1), ("default", 2), ("hard", 3), ("rest_trap", 1)])
def test_fires_are_put_out_as_often_as_the_rules_say(name: str, workers: int) -> None:
    number = 50_000
    rules = games(name, number)
    state = first_night(rules, torch.ones(number, rules.houses))
    state = GameState(**{**vars(state), "houses": torch.ones_like(state.houses)})
    actions = torch.zeros(number, 4, 3, dtype=torch.int64)
    actions[:, :workers, 1] = 1
    draws = torch.rand(number, rules.houses, generator=torch.Generator().manual_seed(3))
    after, _, _ = play_night(rules, state, actions, draws)
    given = scenario(name)
    expected = 1 - (1 - given.prob_solo_agent_extinguishes_fire) ** workers
    sparks = given.prob_house_catches_fire
    assert frequency(after.houses[:, 0] != RUINED) == pytest.approx(expected, abs=0.01)
    assert frequency(after.houses[:, 0] == BURNING) == pytest.approx(expected * sparks, abs=0.003)
    assert (after.houses[:, 1:] == RUINED).all(), "ruined without a worker"


def test_fires_spread_and_sparks_fly_as_often_as_the_rules_say() -> None:
    number = 50_000
    rules = games("default_continuous", number)
    state = first_night(rules, torch.ones(number, 10))
    houses = torch.zeros_like(state.houses)
    houses[:, [0, 2, 6]] = BURNING
    state = GameState(**{**vars(state), "houses": houses})
    actions = torch.zeros(number, 4, 3, dtype=torch.int64)
    draws = torch.rand(number, 10, generator=torch.Generator().manual_seed(4))
    after, _, _ = play_night(rules, state, actions, draws)
    spread, spark = 0.25, 0.02
    for house, fires in ((1, 2), (3, 1), (9, 1), (5, 1), (4, 0), (8, 0)):
        expected = 1 - (1 - spread) ** fires * (1 - spark)
        assert frequency(after.houses[:, house] == BURNING) == pytest.approx(expected, abs=0.01), house
    assert (after.houses[:, [0, 2, 6]] == BURNING).all(), "continuous: nothing burns down"


def test_work_adds_up_where_it_is_continuous() -> None:
    rules = games("default_continuous", 1)
    state = first_night(rules, torch.ones(1, 10))
    houses = torch.zeros_like(state.houses)
    houses[:, 0] = BURNING
    state = GameState(**{**vars(state), "houses": houses})
    never, work = torch.full((1, 10), 0.999999), torch.zeros(1, 4, 3, dtype=torch.int64)
    work[:, 0, 1] = 1
    half, _, _ = play_night(rules, state, work, never)
    assert (half.houses[0, 0].item(), half.progress[0, 0].item()) == (BURNING, 0.5)
    out, _, _ = play_night(rules, half, work, never)
    assert (out.houses[0, 0].item(), out.progress[0, 0].item()) == (SAFE, 0.0)


@pytest.mark.parametrize(("name", "published"), RANDOM_PLAY.items())
def test_random_play_earns_what_was_published(name: str, published: float) -> None:
    number, generator = 4_000, torch.Generator().manual_seed(5)
    rules = games(name, number)
    state = first_night(rules, torch.rand(number, rules.houses, generator=generator))
    playing = torch.ones(number, 1, dtype=torch.bool)
    total, nights = 0.0, 0
    while playing.any():
        house = torch.randint(0, rules.houses, (number, 4, 1), generator=generator)
        actions = torch.cat((house, torch.randint(0, 2, (number, 4, 2), generator=generator)), -1)
        draws = torch.rand(number, rules.houses, generator=generator)
        state, paid, done = play_night(rules, state, actions, draws)
        total += paid[playing.squeeze(1)].sum().item()
        nights += int(playing.sum())
        playing &= ~done
    assert total / nights == pytest.approx(published, rel=0.05)


def test_distances_go_the_shorter_way_round() -> None:
    assert ring_distance(torch.tensor([0, 0, 8, 3]), torch.tensor([9, 5, 1, 3]), 10).tolist() == [1, 5, 3, 0]


def test_what_does_not_fit_is_refused_in_a_line() -> None:
    with pytest.raises(ScenarioError, match="did you mean rest_trap"):
        scenario("rest_trip")
    with pytest.raises(ScenarioError, match="default has 10"):
        parameters([scenario("default"), scenario("v2_minimal")])
    with pytest.raises(ScenarioError, match="positional_default: 4 agents have a home; found 3"):
        parameters([scenario("positional_default")], agents=3)
    with pytest.raises(ScenarioError, match="minimal_specialization: reward_own"):
        parameters([scenario("minimal_specialization")], agents=3)

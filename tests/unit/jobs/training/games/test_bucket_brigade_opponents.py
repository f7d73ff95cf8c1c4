"""Scripted players against their rules, written out for one player, and against published rewards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jobs.training.games.bucket_brigade.catalogue import scenario, scenario_names
from jobs.training.games.bucket_brigade.game import BURNING, GameState, first_night, play_night
from jobs.training.games.bucket_brigade.opponents import (
    ARCHETYPES,
    DRAWS,
    TRAITS,
    archetype_actions,
    house_scores,
    intent,
    specialist_actions,
    work_probability,
)
from jobs.training.games.bucket_brigade.scenarios import Parameters, parameters
from jobs.training.games.bucket_brigade.seats import seats

GAMES = 20_000


def batch(name: str, number: int) -> Parameters:
    return parameters([scenario(name)]).take(torch.zeros(number, dtype=torch.int64))


def some_state(rules: Parameters, games: int, seed: int) -> GameState:
    """One state of many, in every game."""
    generator = torch.Generator().manual_seed(seed)

    def any_of(high: int, width: int) -> Tensor:
        return torch.randint(0, high, (1, width), generator=generator).expand(games, width).float()

    agents, houses = rules.agents, rules.houses
    progress, night, places = torch.zeros(games, houses), torch.zeros(games, 1), any_of(houses, agents)
    actions = torch.stack((places, any_of(2, agents), any_of(2, agents)), -1)
    return GameState(any_of(3, houses), progress, actions, night)


def wants(state: GameState, home: int, traits: tuple[float, ...]) -> float:
    _, work, _, own, risk, _, _, _, rest_bias, _ = traits
    burning = [house == BURNING for house in state.houses[0].tolist()]
    value = work + risk * sum(burning) / len(burning) + 0.5 * own * burning[home]
    return min(1.0, max(0.0, value * (1 - rest_bias)))


def weights(state: GameState, home: int, traits: tuple[float, ...]) -> list[float]:
    _, _, help_, own, risk, coordination, *_ = traits
    burning = [house == BURNING for house in state.houses[0].tolist()]
    number, found = len(burning), []
    for house in range(number):
        steps = min(abs(house - home), number - abs(house - home))
        near = burning[house - 1] + burning[(house + 1) % number]
        there = state.locations[0].tolist().count(house)
        score = 0.1 / (1 + steps) + own * (house == home) + 0.5 * burning[house]
        score += 0.3 * help_ * (near > 0) + 0.1 * coordination * there - 0.2 * risk * near
        found.append(max(0.01, score))
    return [one / sum(found) for one in found]


@pytest.mark.parametrize("name", ARCHETYPES)
@pytest.mark.parametrize("where", ["default", "positional_default", "v2_minimal"])
def test_an_archetype_acts_as_often_as_its_rules_say(name: str, where: str) -> None:
    traits = ARCHETYPES[name]
    honesty, _, _, _, _, _, exploration, fatigue, _, altruism = traits
    given = scenario(where)
    rules = batch(where, GAMES)
    generator = torch.Generator().manual_seed(7)
    players = seats([name] * 4, 4).traits(torch.empty(GAMES, 0))
    for seed in (1, 2):
        state = some_state(rules, GAMES, seed)
        draws = torch.rand(GAMES, 4, DRAWS, generator=generator)
        found = archetype_actions(rules, state, players, draws)
        for agent, home in enumerate(given.homes(4)):
            desire, own_weights = wants(state, home, traits), weights(state, home, traits)
            assert intent(rules, state, players)[0, agent].item() == pytest.approx(desire, abs=1e-6)
            says_work = honesty if desire > 0.5 else 1 - honesty
            works = says_work * honesty + (1 - says_work) * desire * altruism
            works = exploration * 0.5 + (1 - exploration) * works
            works = fatigue * state.modes[0, agent].item() + (1 - fatigue) * works
            house, mode, signal = found[:, agent].unbind(-1)
            expected = work_probability(rules, state, players)[0, agent].item()
            assert expected == pytest.approx(works, abs=1e-6)
            assert signal.double().mean().item() == pytest.approx(says_work, abs=0.016)
            assert mode.double().mean().item() == pytest.approx(works, abs=0.016)
            for number, weight in enumerate(own_weights):
                there = exploration / rules.houses + (1 - exploration) * weight
                there = fatigue * (state.locations[0, agent].item() == number) + (1 - fatigue) * there
                assert (house == number).double().mean().item() == pytest.approx(there, abs=0.016)


def test_random_players_differ_from_game_to_game_and_the_others_do_not() -> None:
    some = seats(["random", "hero"], 2)
    players = some.traits(torch.rand(1000, some.draws_to_begin, generator=torch.Generator().manual_seed(1)))
    assert players.shape == (1000, 2, len(TRAITS))
    assert len(players[:, 0].unique(dim=0)) == 1000
    assert players[:, 1].unique(dim=0).tolist() == [pytest.approx(ARCHETYPES["hero"])]
    assert players[:, 0].mean().item() == pytest.approx(0.5, abs=0.02)


def test_scores_have_a_floor() -> None:
    rules = parameters([scenario("default")])
    afraid = torch.tensor([[[0, 0, 0, 0, 1.0, 0, 0, 0, 0, 0]] * 4])
    houses = torch.tensor([[1.0, 0, 1, 0, 0, 0, 0, 0, 0, 0]])
    state = first_night(rules, torch.ones(1, 10))
    assert house_scores(rules, GameState(**{**vars(state), "houses": houses}), afraid)[0, 3, 1].item() == (
        pytest.approx(0.01)
    )


@pytest.mark.parametrize("name", scenario_names())
def test_the_specialist_by_its_rule(name: str) -> None:
    given = scenario(name)
    rules = batch(name, 500)
    houses = torch.randint(0, 3, (500, given.num_houses), generator=torch.Generator().manual_seed(1)).float()
    state = GameState(**{**vars(first_night(rules, torch.ones(500, given.num_houses))), "houses": houses})
    for row, actions in zip(houses.tolist(), specialist_actions(rules, state).tolist(), strict=True):
        for agent, action in enumerate(actions):
            owned = [house for house in range(len(row)) if house % 4 == agent]
            burning = [house for house in owned if row[house] == BURNING]
            home = owned[0] if owned else given.homes(4)[agent]
            assert action == ([burning[0], 1, 1] if burning else [home, 0, 0])


@pytest.mark.parametrize(("name", "published"), [("minimal_specialization", -28.38), ("rest_trap", 386.6)])
def test_four_specialists_earn_what_was_published(name: str, published: float) -> None:
    number, generator = 4_000, torch.Generator().manual_seed(5)
    rules = batch(name, number)
    state = first_night(rules, torch.rand(number, 10, generator=generator))
    playing, earned, nights = torch.ones(number, dtype=torch.bool), torch.zeros(number), torch.zeros(number)
    while playing.any():
        draws = torch.rand(number, 10, generator=generator)
        state, paid, done = play_night(rules, state, specialist_actions(rules, state), draws)
        earned += paid.sum(1) * playing
        nights += playing
        playing &= ~done.squeeze(1)
    a_night = earned / nights
    error = 4 * (a_night.std() / number**0.5).item()
    assert a_night.mean().item() == pytest.approx(published, abs=error + 0.5)

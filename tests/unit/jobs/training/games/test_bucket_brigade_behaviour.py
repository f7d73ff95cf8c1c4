"""Measures of behaviour against players whose behaviour follows from their rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from jobs.training.games.bucket_brigade.batch import GameBatch
from jobs.training.games.bucket_brigade.behaviour import behaviour, measures
from jobs.training.games.bucket_brigade.game import (
    GameState,
    observations,
    one_hot,
    one_hot_state,
    seen_state,
)


def played(*names: str, games: int = 1_000) -> dict[str, list[float]]:
    """What players do over 30 nights of many games."""
    batch, states = GameBatch(["hard"], games, opponents=names, seeds=[3]), []
    for _ in range(30):
        before = batch.episodes.state
        batch.step(torch.zeros(games, 0, 3, dtype=torch.int64))
        states.append((before, batch.ended.state))
    rules = batch.rules.take(torch.arange(games).repeat(30))
    counted = measures(rules, *(_joined(one) for one in zip(*states, strict=True)))
    found = behaviour(counted.sum(1), counted.shape[1])
    return {name: value.tolist() for name, value in found.items()}


def _joined(states: Sequence[GameState]) -> GameState:
    return GameState(
        *(torch.cat(parts) for parts in zip(*(vars(one).values() for one in states), strict=True))
    )


def test_archetypes_behave_as_their_rules_say() -> None:
    found = played("firefighter", "free_rider", "liar", "hero")
    firefighter, free_rider, liar, hero = found["work_rate"]
    assert firefighter == pytest.approx(0.95, abs=0.01), "always, but for half of where it explores"
    assert free_rider == pytest.approx(0.9 * 0.3 * 0.7 + 0.05, abs=0.01)
    assert liar < free_rider < hero < firefighter, "the hero begins late: it does as the night before"
    assert found["honesty"][0] == pytest.approx(0.95, abs=0.01)
    assert found["honesty"][2] == pytest.approx(0.7 * 0.18 + 0.3 * 0.5, abs=0.03)
    assert found["free_riding"][:2] == [pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02)]
    assert 0.2 < found["free_riding"][3] < 0.8


def test_the_specialist_works_for_itself_and_says_so_and_uniform_play_does_neither() -> None:
    found = played("specialist", "specialist", "specialist", "uniform")
    assert found["own_house_share"][:3] == [1, 1, 1]
    assert found["honesty"][:3] == [1, 1, 1]
    assert all(0 < rate < 0.5 for rate in found["work_rate"][:3])
    assert found["own_house_share"][3] == pytest.approx(0.2, abs=0.01), "it owns houses 3 and 7 of 10"
    assert [found["honesty"][3], found["work_rate"][3]] == [pytest.approx(0.5, abs=0.01)] * 2


def test_no_work_has_no_share() -> None:
    batch = GameBatch(["default"], 4)
    before = batch.episodes.state
    batch.step(torch.zeros(4, 4, 3, dtype=torch.int64))
    found = behaviour(measures(batch.rules, before, batch.ended.state).sum(1), 4)
    assert found["work_rate"].tolist() == [0] * 4
    assert found["honesty"].tolist() == [1] * 4
    assert all(math.isnan(share) for share in found["own_house_share"].tolist())


def test_states_are_read_from_what_is_seen() -> None:
    batch = GameBatch(["default"], 50, opponents=4)
    for _ in range(5):
        batch.step(torch.zeros(50, 0, 3, dtype=torch.int64))
    state, seen = batch.episodes.state, batch.observations()
    found = seen_state(batch.rules, seen)
    assert torch.equal(found.houses, state.houses)
    assert torch.equal(found.actions, state.actions)
    assert torch.equal(observations(batch.rules, found), seen)
    hot = one_hot(batch.rules, state)
    assert hot.shape == (50, 78)
    assert set(hot.unique().tolist()) == {0, 1}
    again = one_hot_state(batch.rules, hot)
    assert torch.equal(again.houses, state.houses)
    assert torch.equal(again.actions, state.actions)

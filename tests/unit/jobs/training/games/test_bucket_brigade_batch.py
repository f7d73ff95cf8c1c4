"""A batch of running games: new episodes, opponents, seeds, and continuing from a saved state."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor

from jobs.training.games.bucket_brigade import batch
from jobs.training.games.bucket_brigade.batch import GameBatch
from jobs.training.games.bucket_brigade.catalogue import ScenarioError
from jobs.training.games.bucket_brigade.opponents import ARCHETYPES

Night = tuple[Tensor, Tensor, Tensor]


def any_actions(batch: GameBatch, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (batch.games, len(batch.learners))
    return torch.stack([torch.randint(0, n, size, generator=generator) for n in batch.actions], -1)


def play(batch: GameBatch, nights: int, first: int = 0) -> list[Night]:
    return [batch.step(any_actions(batch, first + night)) for night in range(nights)]


def assert_same(one: object, other: object) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_game_that_is_over_begins_anew_and_the_others_go_on() -> None:
    batch = GameBatch(["hard"], 4_000, seeds=[3])
    assert batch.reset().shape == (4_000, batch.width)
    play(batch, 15)
    before = batch.episodes
    rewards, terminated, truncated = batch.step(any_actions(batch, 99))
    over, state, ended = terminated | truncated, batch.episodes.state, batch.ended
    assert 0.2 < terminated.double().mean().item() < 0.99
    assert not truncated.any()
    assert_same(ended.rewards, before.rewards + rewards)
    assert (ended.state.night[over] == 16).all()
    assert (state.night[over] == 0).all()
    assert (state.night[~over] == 16).all()
    assert (batch.episodes.rewards[over] == 0).all()
    begun = torch.stack((state.locations[over], state.signals[over], state.modes[over]))
    assert (begun == 0).all()
    assert (state.houses[over] == 1).double().mean().item() == pytest.approx(0.05, abs=0.01)
    assert (state.houses[over] < 2).all()
    assert_same(state.houses[~over], ended.state.houses[~over])
    assert_same(batch.observations(ended.state)[~over], batch.observations()[~over])


def test_episodes_are_truncated_after_so_many_nights() -> None:
    batch = GameBatch(["default_continuous"], 8, nights=3)
    ends = [(terminated.any().item(), truncated.all().item()) for _, terminated, truncated in play(batch, 6)]
    assert ends == [(False, False), (False, False), (False, True)] * 2


def test_a_seed_plays_the_same_games_alone_and_among_others() -> None:
    names = ["default", "rest_trap"]
    together = GameBatch(names, 24, seeds=[1, 2, 3], opponents=4)
    assert together.scenario_of_game.tolist() == ([0] * 4 + [1] * 4) * 3
    alone = GameBatch(names, 8, seeds=[2], opponents=4)
    for ours, theirs in zip(play(together, 20), play(alone, 20), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one[8:16], other)
    assert not torch.equal(together.episodes.state.houses[:8], together.episodes.state.houses[8:16])


def test_numbers_of_one_place_lie_side_by_side() -> None:
    batch = GameBatch(["hard"], 64, opponents=["liar", "hero"])
    play(batch, 2)
    rules, episodes = batch.rules, batch.episodes
    tensors = (rules.own_reward, rules.info, rules.nearness, episodes.state.houses, episodes.traits)
    assert [tensor.stride(0) for tensor in tensors] == [1] * len(tensors)


@pytest.mark.parametrize("opponents", [0, 3, ["liar", "hero"], ["liar", "learner", "specialist", "random"]])
def test_a_batch_continues_bit_for_bit_from_its_saved_state(opponents: int | list[str]) -> None:
    batch = GameBatch(["default", "default_continuous"], 64, seeds=[1, 2], opponents=opponents, nights=10)
    play(batch, 7)
    file = io.BytesIO()
    torch.save(batch.state_dict(), file)
    expected = play(batch, 30, first=7)
    file.seek(0)
    other = GameBatch(["default", "default_continuous"], 64, seeds=[8, 9], opponents=opponents, nights=10)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(play(other, 30, first=7), expected)
    assert_same(other.state_dict(), batch.state_dict())
    with pytest.raises(ValueError, match="of another batch"):
        GameBatch(["default"], 8).load_state_dict(batch.state_dict())


def test_three_opponents_are_two_random_ones_and_a_firefighter() -> None:
    batch = GameBatch(["hard"], 500, opponents=3, nights=20)
    assert batch.learners == (0,)
    first = batch.episodes.traits
    assert len(first[:, 1].unique(dim=0)) == len(first[:, 2].unique(dim=0)) == 500
    assert first[:, 3].unique(dim=0).tolist() == [pytest.approx(ARCHETYPES["firefighter"])]
    while True:
        actions = any_actions(batch, 5)
        _, terminated, truncated = batch.step(actions)
        assert_same(batch.ended.state.actions[:, :1], actions.float())
        if (over := terminated | truncated).any():
            break
        assert_same(batch.episodes.traits, first)
    changed = (batch.episodes.traits != first).any(-1)
    assert (changed == over[:, None] & torch.tensor([False, True, True, False])).all()


def test_learners_may_sit_anywhere() -> None:
    batch = GameBatch(["default"], 16, opponents=["specialist", "learner", "hero", "learner"])
    assert batch.learners == (1, 3)
    actions = any_actions(batch, 1)
    batch.step(actions)
    assert_same(batch.ended.state.actions[:, [1, 3]], actions.float())
    assert GameBatch(["default"], 16, opponents=["hero"]).learners == (0, 1, 2)
    assert GameBatch(["default"], 16, opponents=4).learners == ()


@pytest.mark.parametrize("opponents", [0, 3, ["specialist", "random"]])
def test_a_step_compiles_into_one_graph(opponents: int | list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = play(GameBatch(["default"], 16, opponents=opponents), 15)
    monkeypatch.setattr(batch, "advance", torch.compile(batch.advance, fullgraph=True, backend="eager"))
    assert_same(play(GameBatch(["default"], 16, opponents=opponents), 15), expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scenarios": ["defualt"]}, "did you mean default"),
        ({"games": 7}, "7 games cannot be dealt evenly to 1 scenarios and 2 seeds"),
        ({"games": 0}, "0 games"),
        ({"opponents": 5}, "5 opponents: expected 0 to 4 in a game of 4 agents"),
        ({"opponents": ["hreo"]}, "no player named 'hreo'; did you mean hero"),
        ({"opponents": ["hero"] * 5}, "5 opponents do not fit into a game of 4 agents"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(arguments: dict[str, object], words: str) -> None:
    given = {"scenarios": ["default"], "games": 8, "seeds": [1, 2], **arguments}
    with pytest.raises(ScenarioError, match=words):
        GameBatch(**given)

"""Scripted players in the places of learners, and the gap, against published rewards."""

from __future__ import annotations

import pytest

from jobs.training.games.bucket_brigade import baselines
from jobs.training.games.bucket_brigade.baselines import TEAM_REWARD, baseline_figures, with_gap

SELF_PLAY = ("learner",) * 4


def test_teams_earn_what_is_published() -> None:
    found = baseline_figures("rest_trap", SELF_PLAY, 500, 0)
    assert found["uniform"][TEAM_REWARD] == pytest.approx(302.9, rel=0.03)
    assert found["specialist"][TEAM_REWARD] == pytest.approx(386.6, rel=0.01)
    assert set(found) > {"firefighter", "free_rider", "hero", "coordinator", "liar"}
    baselines._play.cache_clear()
    assert baseline_figures("rest_trap", SELF_PLAY, 500, 0) == found


def test_a_scripted_player_takes_the_places_of_the_learners_only() -> None:
    opponents = ("specialist", "uniform", "uniform")
    alone = baseline_figures("hard", ("learner", *opponents), 300, 0)
    assert alone["specialist"]["behaviour/own_house_share"] == 1
    assert alone["specialist"]["behaviour/honesty"] == 1
    assert alone["firefighter"]["behaviour/free_riding"] == pytest.approx(0, abs=0.05)
    assert alone["free_rider"]["behaviour/free_riding"] == pytest.approx(1, abs=0.05)
    # Who sits where makes no difference to the team, which is measured whole.
    last = baseline_figures("hard", (*opponents, "learner"), 300, 0)
    assert last["hero"][TEAM_REWARD] == pytest.approx(alone["hero"][TEAM_REWARD], rel=0.1)
    together = baseline_figures("hard", SELF_PLAY, 300, 0)
    assert together["free_rider"][TEAM_REWARD] < alone["free_rider"][TEAM_REWARD]


def test_the_gap_is_measured_between_four_random_players_and_four_specialists() -> None:
    name = "minimal_specialization"
    team = baseline_figures(name, SELF_PLAY, 2_500, 1)

    def gap(reward: float) -> float:
        return with_gap({TEAM_REWARD: reward}, name, games=2_500, seed=1)["team/gap_closed"]

    low, high = team["uniform"][TEAM_REWARD], team["specialist"][TEAM_REWARD]
    assert (gap(low), gap(high), gap((low + high) / 2)) == (0, 1, pytest.approx(0.5))
    assert with_gap({TEAM_REWARD: low}, name, games=3)["team/gap_closed"] == pytest.approx(0, abs=0.05)


def test_there_is_no_gap_where_specialists_earn_no_more_than_random_play(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(baselines, "_REFERENCE_GAMES", 1)  # in three nights luck decides
    found = [with_gap({TEAM_REWARD: 1.0}, "hard", nights=3, seed=seed) for seed in range(20)]
    assert {"team/gap_closed" in one for one in found} == {False, True}

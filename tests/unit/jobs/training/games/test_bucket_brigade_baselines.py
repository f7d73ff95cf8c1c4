"""Scripted teams against their published rewards."""

from __future__ import annotations

import pytest

from jobs.training.games.bucket_brigade.baselines import ScriptedTeams, scripted_teams


def test_teams_earn_what_is_published() -> None:
    teams = scripted_teams("rest_trap", 500, 0)
    assert teams.rewards["uniform"] == pytest.approx(302.9, rel=0.03)
    assert teams.rewards["specialist"] == pytest.approx(386.6, rel=0.01)
    assert set(teams.rewards) > {"firefighter", "free_rider", "hero", "coordinator", "liar"}
    assert scripted_teams("rest_trap", 500, 0) == teams


def test_the_gap_between_uniform_play_and_the_specialist() -> None:
    teams = ScriptedTeams({"uniform": -90.0, "specialist": -30.0})
    assert [teams.gap_closed(reward) for reward in (-90.0, -60.0, -30.0, -15.0)] == [0, 0.5, 1, 1.25]
    assert ScriptedTeams({"uniform": 5.0, "specialist": 5.0}).gap_closed(6.0) is None

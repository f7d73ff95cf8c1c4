"""A run killed again and again = the same run left alone = plain BenchMARL, bit for bit."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.rundir import RunDir
from tests.resuming import Attempt, Kill, Nursery, bits, differences, train_plainly
from tests.tiny_benchmarl import MULTIWALKER_MAPPO, NAVIGATION_IQL, NAVIGATION_MAPPO, WITHOUT_EVALUATION

ITERATIONS = 6
CASES = {
    "mappo navigation": NAVIGATION_MAPPO,
    "iql navigation": NAVIGATION_IQL,
    "mappo multiwalker": MULTIWALKER_MAPPO,
}
# How often a process is at each place in one iteration (evaluations happen every second one).
PLACES = {"collecting": 30, "training": 6, "before rename": 1, "after rename": 1}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.nightly(but=["mappo multiwalker-evaluation"])
@pytest.mark.parametrize("evaluation", [True, False], ids=["evaluation", "no evaluation"])
@pytest.mark.parametrize("name", CASES)
def test_killed_equals_uninterrupted_equals_plain_benchmarl(
    name: str, evaluation: bool, nursery: Nursery, tmp_path: Path
) -> None:
    overrides = {**CASES[name], **({} if evaluation else WITHOUT_EVALUATION)}
    plain = [bits(metrics) for metrics in train_plainly(overrides, 3, tmp_path)]
    alone, killed = tmp_path / "alone", tmp_path / "killed"

    assert nursery.run(Attempt(str(alone), overrides, 3)) == 0
    kills = _kills(f"{name} {evaluation}", evaluation)
    for kill in kills:
        assert nursery.run(Attempt(str(killed), overrides, 3, kill)) == -9, kill
    assert nursery.run(Attempt(str(killed), overrides, 3)) == 0

    assert len(plain) == ITERATIONS
    assert [bits(row.metrics) for row in RunDir(alone).history()] == plain
    assert [bits(row.metrics) for row in RunDir(killed).history()] == plain, kills
    assert len(RunDir(killed).attempts()) == len(kills) + 1
    assert _same_state(alone, killed) == []
    assert json.loads((killed / "outcome.json").read_text())["exactness"] == "exact"


def _kills(seed: str, evaluation: bool) -> list[Kill]:
    """Four kills, each within an iteration and a half, so that the run needs all of its attempts."""
    draw = random.Random(seed)
    places = list(PLACES)
    kills = [Kill(place, draw.randint(1, PLACES[place] * 3 // 2)) for place in draw.sample(places, 3)]
    if evaluation:
        kills.insert(draw.randint(0, 2), Kill("evaluation", 1))
    else:
        kills.append(Kill("collecting", draw.randint(1, 45)))
    return kills


def _same_state(one: Path, other: Path) -> list[str]:
    """Where the states at the end of training differ, buffers' contents included, time apart."""
    states: list[Any] = [torch.load(path / "state.pt", weights_only=True) for path in (one, other)]
    for state in states:
        del state["counters"]["total_time"]
    return differences(*states)

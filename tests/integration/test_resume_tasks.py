"""The tasks that BenchMARL does not have: killed = left alone, bit for bit; and what is shared is shared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.rundir import RunDir
from tests.resuming import Attempt, Kill, Nursery, bits, differences, train_plainly
from tests.tiny_benchmarl import BUCKET_BRIGADE, KAZ_IMAGE, KAZ_VECTOR, MULTIWALKER_MAPPO

# In the middle of an episode, of an optimisation, and of writing a checkpoint.
KILLS = (Kill("collecting", 40), Kill("training", 8), Kill("before rename", 1))
CASES = {
    "multiwalker/shared": ({**MULTIWALKER_MAPPO, "task": "multiwalker/shared"}, KILLS),
    "kaz/vector": (KAZ_VECTOR, KILLS),
    "bucket_brigade/hard": (BUCKET_BRIGADE, KILLS),
    "kaz/image": (KAZ_IMAGE, (Kill("collecting", 30),)),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_killed_equals_left_alone(name: str, nursery: Nursery, tmp_path: Path) -> None:
    overrides, kills = CASES[name]
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert nursery.run(Attempt(str(alone), overrides, 3)) == 0, log(alone)
    for kill in kills:
        assert nursery.run(Attempt(str(killed), overrides, 3, kill)) == -9, kill
    assert nursery.run(Attempt(str(killed), overrides, 3)) == 0, log(killed)

    assert history(killed) == history(alone)
    assert same_state(alone, killed) == []
    assert json.loads((killed / "outcome.json").read_text())["exactness"] == "exact"
    if name == "multiwalker/shared":
        theirs = {**MULTIWALKER_MAPPO, "task.shared_reward": True}
        assert history(alone) == [bits(metrics) for metrics in train_plainly(theirs, 3, tmp_path)]


def history(run: Path) -> list[dict[str, bytes]]:
    return [bits(row.metrics) for row in RunDir(run).history()]


def log(run: Path) -> str:
    return "".join(attempt.log.read_text() for attempt in RunDir(run).attempts())


def same_state(one: Path, other: Path) -> list[str]:
    states: list[Any] = [torch.load(path / "state.pt", weights_only=True) for path in (one, other)]
    for state in states:
        del state["counters"]["total_time"]
    return differences(*states)

"""Speed that depends on when runs were started: found where it does, and seldom where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.speeds import drift_of


def groups(algorithms: int, seeds: int, factor: Callable[[float], float], seed: int = 0) -> list[SeedGroup]:
    """Runs of one minute, one after the other and in turns, whose speeds differ by 3 % by chance.

    ``factor``: how fast the machine is at a time, from 0 at the first start to 1.
    """
    generator = np.random.default_rng(seed)
    rows: dict[int, list[dict[str, Any]]] = {number: [] for number in range(algorithms)}
    for at in range(algorithms * seeds):
        turn, place = divmod(at, algorithms)
        number = place if turn % 2 == 0 else algorithms - 1 - place
        fps = 1000.0 * (number + 1) * factor(at / (algorithms * seeds)) * math.exp(generator.normal(0, 0.03))
        facts = {"threads": 1, "cpu_model": "x", "gpu_model": None}
        rows[number].append(
            {"state": "done", "started": 1e9 + 60 * at, "training_fps": fps, "end_to_end_fps": fps, **facts}
        )
    return [SeedGroup(tuple(own), "s", at, 0, f"a{at}", {}, {}) for at, own in rows.items()]


@pytest.mark.parametrize(
    "factor",
    [
        lambda at: 0.8 if 1 / 3 < at < 2 / 3 else 1.0,
        lambda at: 0.8 if at > 2 / 3 else 1.0,
        lambda at: 1.0 - 0.25 * at,
    ],
    ids=["a busy hour", "a busy end", "slower and slower"],
)
def test_a_machine_that_is_slower_for_a_while_is_found(factor: Callable[[float], float]) -> None:
    found = drift_of(groups(4, 6, factor))
    assert found is not None
    assert found.runs == 24
    assert 0.7 < found.times < 0.9
    assert "speed depends on when runs were started" in str(found)


def test_the_slow_part_of_the_time_is_named() -> None:
    told = str(drift_of(groups(4, 6, lambda at: 0.8 if 1 / 3 <= at < 2 / 3 else 1.0)))
    assert "those started 8:00 to 15:00 after the first one trained 0." in told


def test_chance_is_seldom_taken_for_it() -> None:
    """A test at 1 % is wrong in one of a hundred: in a hundred families by chance up to four times."""
    found = [drift_of(groups(3, 4, lambda at: 1.0, seed)) for seed in range(100)]
    assert sum(one is not None for one in found) <= 4


def test_runs_started_at_once_are_not_ordered_by_their_speed() -> None:
    found = []
    for seed in range(20):
        [one] = groups(1, 24, lambda at: 1.0, seed)
        rows = tuple({**row, "started": row["started"] // 720} for row in one.rows)
        found.append(drift_of([SeedGroup(rows, "s", 0, 0, "a", {}, {})]))
    assert sum(one is not None for one in found) <= 1


def test_too_few_runs_or_too_small_a_difference_says_nothing() -> None:
    assert drift_of(groups(2, 4, lambda at: 1.0 - 0.5 * at)) is None
    assert drift_of(groups(20, 1, lambda at: 1.0 - 0.5 * at)) is None
    assert drift_of(groups(4, 60, lambda at: 1.0 - 0.03 * at)) is None
    assert drift_of([]) is None


def test_all_at_once_or_without_a_time_says_nothing() -> None:
    for started in (1e9, None):
        alike = [
            SeedGroup(tuple({**row, "started": started} for row in one.rows), "s", 0, 0, "a", {}, {})
            for one in groups(2, 10, lambda at: 1.0 - 0.5 * at)
        ]
        assert drift_of(alike) is None

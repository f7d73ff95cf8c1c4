"""Points take turns: no part of the time, and no job, is one value's alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.types import Capacity, RunState, Sweep
from orchestrator.planning.interleave import interleaved
from orchestrator.planning.plan import make_plan
from orchestrator.rundir import IndexRow
from orchestrator.status.survey import RunStatus, Survey


def points(matrix: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """In the order of a grid."""
    return [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]


def algorithms(number: int) -> list[str]:
    return [f"a{at}" for at in range(number)]


@pytest.mark.parametrize("number", [2, 3, 4, 5])
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 8])
def test_no_algorithm_comes_early_or_late_or_has_a_job_for_itself(
    number: int, seeds: int, lanes: int
) -> None:
    every = points({"algorithm": algorithms(number), "seed": range(seeds)})
    order = [every[at]["algorithm"] for at in interleaved(every, lanes)]
    middles = [
        fmean(at for at, own in enumerate(order) if own == name) / len(every) for name in algorithms(number)
    ]
    assert max(middles) - min(middles) < 0.1
    for lane in range(min(lanes, len(order))):
        share = Counter(order[lane::lanes])
        fair = len(order[lane::lanes]) / number
        assert max(share.values()) <= fair + 1.7
    rounds = [set(order[start : start + number]) for start in range(0, len(order), number)]
    assert all(len(one) == number for one in rounds), "each algorithm once before any comes again"


def test_every_key_takes_turns_within_a_seed_too() -> None:
    every = points({"algorithm": algorithms(5), "lr": [1, 2, 3, 4], "task": ["x", "y", "z"], "seed": [0, 1]})
    order = [every[at] for at in interleaved(every)]
    assert {point["seed"] for point in order[:60]} == {0}
    for key, most in (("algorithm", 3), ("lr", 3), ("task", 4)):
        values = {str(point[key]) for point in every}
        for start in range(0, 120, 10):
            counted = Counter(str(point[key]) for point in order[start : start + 10])
            assert max(counted.values()) <= 10 / len(values) + most / 2, f"{key} from {start} on"


def test_thousands_of_points_are_shuffled_by_rounds() -> None:
    every = points({"algorithm": algorithms(5), "lr": list(range(200)), "seed": range(3)})
    order = interleaved(every, lanes=7)
    assert sorted(order) == list(range(3000))
    assert {every[at]["seed"] for at in order[:1000]} == {0}
    for start in range(0, 3000, 500):
        counted = Counter(every[at]["algorithm"] for at in order[start : start + 500])
        assert max(counted.values()) < 150


def test_points_of_one_kind_stay_in_their_order() -> None:
    assert interleaved([{"seed": seed} for seed in (3, 1, 2)]) == [0, 1, 2]
    assert interleaved([]) == []
    assert interleaved([{}]) == [0]


@example([{"b": 0}, {}, {}, {}, {}, {"b": ""}, {"a": 0, "b": 0, "c": 0}, {"a": 1}, {"b": 0}, {"b": ""}], 3)
@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | st.text(max_size=2)), max_size=15),
    st.integers(1, 6),
)
def test_any_points_are_put_in_an_order_that_is_always_the_same(
    every: list[dict[str, Any]], lanes: int
) -> None:
    order = interleaved(every, lanes)
    assert sorted(order) == list(range(len(every)))
    assert order == interleaved([dict(reversed(point.items())) for point in every], lanes)


def test_a_plan_starts_the_compared_values_in_turns() -> None:
    """One run of each algorithm starts before the next of any, though the grid lists seeds together."""
    runs = tuple(
        BENCHMARL.identify({"algorithm": name}, seed, 1) for name in algorithms(3) for seed in range(5)
    )
    statuses = {run.run_id: RunStatus(run.run_id, RunState.PENDING) for run in runs}
    seen = Survey([IndexRow(run.run_id, True, run.point) for run in runs], statuses, frozenset())
    plan = make_plan(Sweep("s", "benchmarl", runs, "text"), seen, Capacity("local", 1, 0), submission=1)
    (job,) = plan.jobs
    algorithm = {run.run_id: run.overrides["algorithm"] for run in runs}
    order = [algorithm[run_id] for run_id in job.run_ids]
    assert all(set(order[start : start + 3]) == set(algorithms(3)) for start in range(0, 15, 3))

"""The sample that `orchestrate verify` proposes, and how it compares rows of metrics."""

from __future__ import annotations

import math
import random
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.verify.compare import differences, first_difference, unrepeatable
from orchestrator.control.verify.sample import chance, drawn, falsified_of, proposed
from orchestrator.rundir import Row

sizes, shares = st.integers(1, 500), st.floats(0.001, 1.0)


def rows(*values: float, **more: float) -> list[Row]:
    return [Row(number, 10 * number, metrics={"return": one, **more}) for number, one in enumerate(values)]


def test_the_proposed_sample_finds_falsified_segments() -> None:
    names = [f"{number:016x}" for number in range(100)]
    caught = 0
    for case in range(100):
        falsified = set(random.Random(f"case {case}").sample(names, 10))
        caught += bool(falsified & set(drawn(names, proposed(100, 0.1), seed=case)))
    assert caught >= 95
    assert proposed(100, 0.1) == 31


@given(st.integers(1, 9), shares, st.integers(1, 9))
def test_the_chance_is_that_of_all_samples(segments: int, share: float, sample: int) -> None:
    sample = min(sample, segments)
    every = list(combinations(range(segments), sample))
    caught = sum(min(one) < falsified_of(segments, share) for one in every)
    assert math.isclose(chance(segments, share, sample), caught / len(every))


@given(sizes, shares)
def test_no_smaller_sample_is_as_likely_to_find_one(segments: int, share: float) -> None:
    size = proposed(segments, share)
    assert 1 <= size <= segments
    assert chance(segments, share, size) >= 0.98 > chance(segments, share, size - 1)


@given(st.sets(st.text(max_size=4)), st.integers(), st.integers(0, 9))
def test_a_larger_sample_contains_a_smaller_one(names: set[str], seed: int, size: int) -> None:
    sample = drawn(names, size, seed)
    assert len(set(sample)) == min(size, len(names))
    assert drawn(names, size + 1, seed)[:size] == sample


def test_the_first_difference_is_named() -> None:
    found = first_difference(rows(1.0, 2.0, 3.0), rows(1.0, 2.5, 3.5))
    assert str(found) == "iteration 1, 10 frames: return is 2.0 on record, 2.5 trained again"
    assert first_difference(rows(1.0, math.nan), rows(1.0, math.nan)) is None
    assert first_difference(rows(0.0), rows(-0.0)) is not None
    assert first_difference(rows(1.0, **{"timers/x": 1.0}), rows(1.0, **{"timers/x": 2.0})) is None


def test_missing_rows_and_metrics_are_differences() -> None:
    lost = first_difference(rows(1.0, 2.0), rows(1.0))
    assert lost is not None
    assert (lost.iteration, lost.recorded, lost.trained) == (1, "that of iteration 1, 10 frames", "missing")
    more = first_difference(rows(1.0, loss=0.5), rows(1.0))
    assert more is not None
    assert (more.metric, more.recorded, more.trained) == ("loss", "0.5", "missing")
    other = [Row(7, 70, metrics={"return": 1.0})]
    assert [one.metric for one in differences(rows(1.0), other)] == ["the row of metrics"]


def test_metrics_that_differ_between_two_trainings_are_not_compared() -> None:
    one, other = rows(1.0, 2.0, speed=5.0), rows(1.0, 2.0, speed=6.0)
    assert unrepeatable(one, other) == {"speed"}
    assert first_difference(rows(1.0, 2.0, speed=7.0), one, without={"speed"}) is None
    assert first_difference(rows(1.5, 2.0, speed=7.0), one, without={"speed"}) is not None
    assert unrepeatable(rows(1.0), rows(2.0)) is None
    assert unrepeatable(rows(1.0), rows(1.0, 2.0)) is None

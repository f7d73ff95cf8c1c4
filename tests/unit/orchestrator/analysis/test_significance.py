"""Tests of a difference: exact where they say so, as other libraries have them, and corrected."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, ttest_1samp

from orchestrator.analysis.significance import chance_of_wins, holm, least_chance, mean_with_chance, wins

SMALL = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SMALL, SMALL)
def test_the_chance_of_wins_is_the_part_of_all_ways_to_deal_the_runs(
    mine: list[float], theirs: list[float]
) -> None:
    every, n = np.array([*mine, *theirs]), len(mine)

    def off(own: tuple[int, ...]) -> float:
        picked = np.zeros(len(every), dtype=bool)
        picked[list(own)] = True
        return float(abs(wins(every[picked], every[~picked]).mean() - 0.5))

    seen = off(tuple(range(n)))
    ways = [off(own) for own in combinations(range(len(every)), n)]
    expected = np.mean([one >= seen - 1e-9 for one in ways])
    assert chance_of_wins([np.array(mine)], [np.array(theirs)]) == pytest.approx(expected)


def test_without_ties_it_is_scipys() -> None:
    generator = np.random.default_rng(0)
    few = generator.normal(size=7), generator.normal(0.5, 1, size=9)
    assert chance_of_wins([few[0]], [few[1]]) == pytest.approx(mannwhitneyu(*few, method="exact").pvalue)
    many = generator.normal(size=60).round(1), generator.normal(0.3, 1, size=50).round(1)
    expected = mannwhitneyu(*many, method="asymptotic", use_continuity=False).pvalue
    assert chance_of_wins([many[0]], [many[1]]) == pytest.approx(expected)


def test_several_tasks_together_tell_what_one_cannot() -> None:
    low, high = np.arange(5.0), np.arange(5.0, 10.0)
    assert chance_of_wins([high], [low]) == pytest.approx(2 / 252)
    assert chance_of_wins([high] * 3, [low] * 3) < 1e-4
    assert chance_of_wins([high, low], [low, high]) == pytest.approx(1)
    assert chance_of_wins([low, low], [low, low]) == pytest.approx(1)
    assert chance_of_wins([np.ones(5)] * 2, [np.ones(5)] * 2) == 1
    assert least_chance([(5, 5)]) == pytest.approx(2 / 252)


def test_several_tasks_are_right_as_often_as_they_say() -> None:
    """Two equal variants on three tasks of five seeds: one in twenty is called different, no more."""
    generator = np.random.default_rng(1)
    called = [
        chance_of_wins(list(generator.normal(size=(3, 5))), list(generator.normal(size=(3, 5)))) <= 0.05
        for _ in range(1000)
    ]
    assert 0.02 < np.mean(called) < 0.07


def test_holms_method() -> None:
    assert holm([0.01, 0.04, 0.03], 3) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01, 0.4], 10) == pytest.approx([0.1, 1.0])
    assert holm([], 0) == []


def test_the_interval_and_the_chance_of_a_mean_are_students() -> None:
    values = np.random.default_rng(2).normal(0.1, 1, size=6)
    told = mean_with_chance(values.tolist())
    known = ttest_1samp(values, 0)
    assert told == pytest.approx((*known.confidence_interval(0.95), known.pvalue))
    assert mean_with_chance([1.0]) is None
    assert mean_with_chance([0.3] * 5) == pytest.approx((0.3, 0.3, 0))
    assert mean_with_chance([0.0] * 5) == (0, 0, 1)

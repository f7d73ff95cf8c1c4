"""Tests of a difference: exact where they say so, as other libraries have them, and corrected."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import brunnermunzel, kruskal, mannwhitneyu, ttest_1samp

from orchestrator.analysis.statistics import significance
from orchestrator.analysis.statistics.significance import (
    chance_alike,
    chance_of_placements,
    chance_of_ranks,
    chance_of_wins,
    holm,
    least_chance,
    mean_with_chance,
    wins,
)

SMALL = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SMALL, SMALL)
def test_the_chance_of_ranks_is_the_part_of_all_ways_to_deal_the_runs(
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
    assert chance_of_ranks([np.array(mine)], [np.array(theirs)]) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=2), st.booleans())
def test_over_two_tasks_it_is_the_part_of_all_ways_in_both(
    tasks: list[tuple[list[float], list[float]]], coarse: bool
) -> None:
    """Whichever side is smaller, and with a grid of sums too coarse to hold them all no less than that."""

    def offs(mine: list[float], theirs: list[float]) -> list[float]:
        every, found = np.array([*mine, *theirs]), []
        for own in combinations(range(len(every)), len(mine)):
            picked = np.zeros(len(every), dtype=bool)
            picked[list(own)] = True
            found.append(float(wins(every[picked], every[~picked]).mean() - 0.5))
        return found

    first, second = (offs(*task) for task in tasks)
    seen = abs(first[0] + second[0])  # the first combination is that of the runs themselves
    expected = np.mean([abs(one + other) >= seen - 1e-9 for one in first for other in second])
    with pytest.MonkeyPatch.context() as patched:
        if coarse:
            patched.setattr(significance, "_MOST_SUMS", 10)
        found = chance_of_ranks(*([np.array(task[side]) for task in tasks] for side in (0, 1)))
    if coarse:
        assert found >= expected - 1e-9
    else:
        assert found == pytest.approx(expected)


def test_without_ties_it_is_scipys(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    few = generator.normal(size=7), generator.normal(0.5, 1, size=9)
    assert chance_of_ranks([few[0]], [few[1]]) == pytest.approx(mannwhitneyu(*few, method="exact").pvalue)
    assert chance_of_placements([few[0]], [few[1]]) == pytest.approx(brunnermunzel(*few).pvalue)
    assert chance_of_wins([few[0]], [few[1]]) == chance_of_ranks([few[0]], [few[1]])
    wide, narrow = np.array([-9.0, 6, 7, 8, 9]), np.linspace(-1, 1, 20)
    assert chance_of_ranks([wide], [narrow]) < 0.05
    assert chance_of_wins([wide], [narrow]) == pytest.approx(brunnermunzel(wide, narrow).pvalue)
    assert chance_of_wins([wide], [narrow]) > 0.1
    many = generator.normal(size=60).round(1), generator.normal(0.3, 1, size=50).round(1)
    expected = mannwhitneyu(*many, method="asymptotic", use_continuity=False).pvalue
    assert chance_of_ranks([many[0]], [many[1]]) == pytest.approx(expected, rel=0.02)
    monkeypatch.setattr(significance, "_MOST_EXACT", 0)
    assert chance_of_ranks([many[0]], [many[1]]) == pytest.approx(expected)


def test_one_that_was_solved_of_very_many_proves_nothing() -> None:
    """By the normal distribution one run of five that differs from sixty would be far too rare."""
    five, sixty = np.array([1.0, 0, 0, 0, 0]), np.zeros(60)
    assert chance_of_ranks([five], [sixty]) == pytest.approx(5 / 65)
    assert chance_of_ranks([five] * 2, [sixty] * 2) == pytest.approx((5 / 65) ** 2)


def test_all_together_are_tested_as_scipy_does() -> None:
    generator = np.random.default_rng(0)
    several = [generator.normal(size=20).round(1) for _ in range(3)]
    assert chance_alike([several]) == pytest.approx(kruskal(*several).pvalue, rel=0.05)
    assert chance_alike([several] * 9) < chance_alike([several]) / 2
    assert chance_alike([several]) == chance_alike([several])
    assert chance_alike([[np.ones(5)] * 3]) == 1
    apart = [np.arange(5.0) + 10 * by for by in range(3)]
    assert chance_alike([apart]) == chance_alike([apart], 0.5) == 1 / 10_000
    assert chance_alike([apart], 1e-6) == 1e-6
    assert chance_alike([several], 1e-6) == chance_alike([several]), "permutations as extreme decide alone"


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
    tiny = mean_with_chance([1e-15 * value for value in values.tolist()])
    assert tiny == pytest.approx((1e-15 * told[0], 1e-15 * told[1], told[2]), rel=1e-9, abs=0)

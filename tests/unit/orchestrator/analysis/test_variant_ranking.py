"""Performance profiles and probabilities of improvement: what rliable says, and what must hold of any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import create_sweep, finish, matrix_runs, training_rows
from orchestrator.analysis.collect import collect
from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.groups.improvement import (
    Improvement,
    by_wins,
    probability_of_improvement,
    standing,
)
from orchestrator.analysis.groups.variants import (
    over_tasks,
    overall_profiles,
    performance_profile,
    task_profiles,
)
from orchestrator.analysis.statistics.significance import least_chance

Scores = Mapping[tuple[str, str], Sequence[float]]


def columns(matrix: Any) -> list[Any]:
    """(runs, tasks) as this project holds it: an array per task."""
    return list(np.asarray(matrix).T)


def finals(results: Path, *sweeps: Scores, lengths: Mapping[str, int] | None = None) -> list[Final]:
    """What the report has of sweeps with these final returns: (task, algorithm) → one per seed. ``lengths``:
    iterations of an algorithm's runs, 1 for the others.
    """
    folders = []
    for number, scores in enumerate(sweeps):
        runs, returns = [], {}
        for (task, algorithm), values in scores.items():
            matrix = {"task": [task], "algorithm": [algorithm], "seed": range(len(values))}
            own = matrix_runs(matrix)
            runs += own
            returns |= {run.run_id: value for run, value in zip(own, values, strict=True)}
        folders.append(create_sweep(results, f"sweep{number}", runs))
        for run in runs:
            rows = training_rows(run, (lengths or {}).get(str(run.overrides["algorithm"]), 1))
            finish(folders[-1].run(run.run_id), run, rows, final_return=returns[run.run_id])
    return final_returns(groups(collect(folders)))


# Against numbers of rliable 1.2.0 (20,000 resamples for a profile, 5,000 for an improvement)


def test_a_profile_is_rliables() -> None:
    scores = np.random.default_rng(0).normal(size=(7, 3)).round(1)
    thresholds = np.unique(scores)
    value, low, high = performance_profile(columns(scores), thresholds)
    above = (20, 19, 18, 16, 15, 13, 12, 11, 9, 8, 6, 4, 3, 2, 1, 0)
    assert value == pytest.approx([number / 21 for number in above])
    assert low is not None
    assert high is not None
    lows = (18, 17, 15, 12, 11, 9, 8, 7, 5, 4, 2, 1, 0, 0, 0, 0)
    highs = (21, 21, 21, 19, 19, 17, 16, 15, 13, 12, 10, 8, 6, 5, 3, 0)
    assert low == pytest.approx([number / 21 for number in lows], abs=0.06)  # both are drawn
    assert high == pytest.approx([number / 21 for number in highs], abs=0.06)


def test_a_probability_of_improvement_is_rliables() -> None:
    generator = np.random.default_rng(1)
    mine, theirs = generator.normal(0.5, 1, (6, 4)).round(1), generator.normal(0, 1, (9, 4)).round(1)
    value, low, high = probability_of_improvement(columns(mine), columns(theirs))
    assert value == pytest.approx(0.743056, abs=1e-6)
    assert (low, high) == pytest.approx((0.618056, 0.861111), abs=0.05)


# What must hold of any

SEEDS = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=6).map(np.array)
PAIRS = st.lists(st.tuples(SEEDS, SEEDS), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_either_one_is_better_or_they_share_it(pairs: list[tuple[Any, Any]]) -> None:
    mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    value, low, high = probability_of_improvement(mine, theirs)
    assert value + probability_of_improvement(theirs, mine)[0] == pytest.approx(1)
    assert probability_of_improvement(mine, mine)[0] == 0.5
    assert (low is None) == (high is None) == any(min(len(x), len(y)) == 1 for x, y in pairs)
    if low is not None and high is not None:
        assert 0 <= low <= value <= high <= 1
    better = [own + 10 for own in theirs]
    assert probability_of_improvement(better, theirs)[0] == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(SEEDS, min_size=1, max_size=3))
def test_a_profile_falls_from_all_to_none(scores: list[Any]) -> None:
    thresholds = np.arange(-4.0, 5.0)
    value, low, high = performance_profile(scores, thresholds)
    assert (value[0], value[-1]) == (1, 0)
    assert (np.diff(value) <= 1e-12).all()
    assert (low is None) == any(len(own) < 4 for own in scores)
    if low is not None and high is not None:
        assert ((low <= value + 1e-12) & (value <= high + 1e-12)).all()


def test_the_same_scores_give_the_same_intervals_and_numpys_state_is_left_alone() -> None:
    scores = columns(np.random.default_rng(2).normal(size=(5, 2)))
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()
    first = (performance_profile(scores, np.zeros(1)), probability_of_improvement(scores, scores[::-1]))
    again = (performance_profile(scores, np.zeros(1)), probability_of_improvement(scores, scores[::-1]))
    assert repr(first) == repr(again)
    assert np.random.get_state()[1].tolist() == before


# What stands against what

FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


def named(pairs: Sequence[Improvement]) -> list[tuple[str, str, float]]:
    return [(one.better.label, one.other.label, one.value) for one in pairs]


def test_the_best_of_a_task_stands_against_the_others(results: Path) -> None:
    told = finals(
        results,
        {
            ("a", "low"): FIVE,
            ("a", "high"): [value + 20 for value in FIVE],
            ("a", "mid"): [3, 4, 5, 6, 30],
            ("b", "one"): FIVE,
        },
    )
    found = standing(told)
    assert named(found.pairs) == [("high", "mid", 0.8), ("high", "low", 1.0)]
    assert [one.tasks for one in found.pairs] == [("a",), ("a",)]
    assert [one.beyond_chance for one in found.pairs] == [False, True]
    together = found.pairs[1].chance
    assert together == pytest.approx(0.009, abs=0.003), "the pair's own p, 2 / 252, and that of all three"
    assert str(found.pairs[1]) == "1.00 [1.00, 1.00]"
    assert found.left_out == ()
    assert [profiles.tasks for profiles in task_profiles(told)] == [("a",)]


def test_under_five_seeds_there_is_no_pair_and_it_is_said_of_whom(results: Path) -> None:
    found = standing(finals(results, {("a", "x"): [9] * 4, ("a", "w"): FIVE, ("b", "x"): FIVE}))
    assert found.pairs == ()
    assert found.left_out == ("a: fewer than 5 seeds, too few for a verdict: x (n=4)",)


def test_one_lucky_seed_is_not_the_best_and_hides_no_pair(results: Path) -> None:
    found = standing(
        finals(results, {("a", "lucky"): [1000], ("a", "x"): FIVE, ("a", "w"): [7, 8, 9, 10, 11]})
    )
    assert named(found.pairs) == [("w", "x", 1.0)]
    assert found.pairs[0].beyond_chance
    assert "lucky (n=1)" in found.left_out[0]


def test_the_reference_has_the_most_seeds(results: Path) -> None:
    """Few seeds reach an extreme by luck: who has fewer is held against the best of the others."""
    ten = [value + 10 for value in range(10)]
    found = standing(
        finals(results, {("a", "few"): [50, 51, 52, 53, 54], ("a", "x"): ten, ("a", "w"): range(10)})
    )
    assert named(found.pairs) == [("x", "few", 0.0), ("x", "w", 1.0)]


def test_so_many_variants_that_five_seeds_cannot_tell_any(results: Path) -> None:
    """Of fifteen variants the best by luck alone wins all of one too often."""
    shift = {name: 10.0 * number for number, name in enumerate("abcdefghijklmno")}
    told = finals(results, {("t", name): [value + by for value in FIVE] for name, by in shift.items()})
    found = standing(told)
    assert {one.beyond_chance for one in found.pairs} == {None}
    assert [one.least for one in found.pairs] == pytest.approx([7 * 2 / 252] * 14)


def test_five_seeds_tell_the_one_of_five_that_beats_all_others(results: Path) -> None:
    shift = {name: 10.0 * number for number, name in enumerate("abcde")}
    told = finals(results, {("t", name): [value + by for value in FIVE] for name, by in shift.items()})
    found = standing(told)
    assert {one.beyond_chance for one in found.pairs} == {True}
    assert [one.chance for one in found.pairs] == pytest.approx([2 * 2 / 252] * 4)


def test_who_was_trained_longer_is_no_rival(results: Path) -> None:
    scores = {("a", "short"): [9.0] * 5, ("a", "x"): FIVE, ("a", "w"): [7, 8, 9, 10, 11]}
    found = standing(finals(results, scores, lengths={"x": 10, "w": 10}))
    assert named(found.pairs) == [("w", "x", 1.0)]
    assert found.left_out == ("no other variant with comparable returns: short",)


def test_who_was_trained_longer_is_on_no_axis_with_the_others(results: Path) -> None:
    scores = {(task, name): FIVE for task in ("a", "b") for name in ("short", "brief", "x", "w", "alone")}
    told = finals(results, scores, lengths={"x": 10, "w": 10, "alone": 100})
    together = [("short", "brief"), ("x", "w")]
    for found in (task_profiles(told)[:2], task_profiles(told)[2:], overall_profiles(over_tasks(told))):
        labels = [tuple(one.variant.label for one in profiles.profiles) for profiles in found]
        assert sorted(labels) == together


def test_three_seeds_have_no_band(results: Path) -> None:
    told = finals(
        results, {("a", "x"): [1, 2, 3], ("a", "w"): [2, 3, 4, 5], ("b", "x"): [1], ("b", "w"): [2]}
    )
    (profiles,) = task_profiles(told)
    assert profiles.tasks == ("a",)
    assert {one.variant.label: one.low is None for one in profiles.profiles} == {"x": True, "w": False}


def test_tasks_weigh_the_same_however_many_seeds_they_have(results: Path) -> None:
    told = finals(
        results,
        {
            ("a", "x"): [0, 10],
            ("a", "w"): [4, 5],
            ("b", "x"): [-100, 0, -100, 0, -100, -100],
            ("b", "w"): [-50, -50],
            ("c", "x"): [7, 7],
            ("c", "w"): [7, 7],
        },
    )
    [profiles] = overall_profiles(over_tasks(told))
    assert profiles.spans == {"a": (0, 10), "b": (-100, 0)}  # c has no scale
    x, y = profiles.profiles
    assert (x.thresholds[0] < 0, x.thresholds[-1] > 1) == (True, True)
    at = x.thresholds.tolist().index(0.4)
    assert (x.value[at], y.value[at]) == pytest.approx(((1 / 2 + 1 / 3) / 2, (1 / 2 + 1) / 2))


def test_over_all_tasks_the_one_that_beats_the_others_most_often(results: Path) -> None:
    scores = {
        ("a", "x"): [0.0, 10] * 5,
        ("a", "w"): [4.0, 5] * 5,
        ("b", "x"): [-100.0, 0, -100, 0, -100, -100],
        ("b", "w"): [-50.0] * 6,
        ("c", "x"): [7.0] * 5,
        ("c", "w"): [7.0] * 5,
    }
    overall, *by_task = standing(finals(results, scores)).pairs
    assert (overall.tasks, overall.better.label) == (("a", "b", "c"), "w")
    assert overall.value == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    assert overall.beyond_chance is False
    assert [one.tasks for one in by_task] == [("a",), ("b",), ("c",)]
    assert by_task[0].least == pytest.approx(4 * least_chance([(10, 10)]))


def test_a_variant_that_lacks_a_task_is_left_out_and_named(results: Path) -> None:
    low, high = FIVE, [value + 1 for value in FIVE]
    told = finals(
        results, {("a", "x"): high, ("a", "w"): low, ("a", "z"): high, ("b", "x"): high, ("b", "w"): low}
    )
    [profiles] = overall_profiles(over_tasks(told))
    assert [one.variant.label for one in profiles.profiles] == ["x", "w"]
    assert profiles.left_out == ("z",)
    overall = [pair for pair in standing(told).pairs if len(pair.tasks) > 1]
    assert [(one.better.label, one.other.label) for one in overall] == [("x", "w")]
    assert all(len(pair.tasks) == 1 for pair in standing(told, overall=False).pairs)


def test_one_task_or_one_variant_is_not_overall(results: Path) -> None:
    assert overall_profiles(over_tasks(finals(results / "1", {("a", "x"): [1, 2], ("a", "w"): [2, 3]}))) == []
    assert overall_profiles(over_tasks(finals(results / "2", {("a", "x"): [1, 2], ("b", "x"): [2, 3]}))) == []
    alone = standing(finals(results / "3", {("a", "x"): FIVE, ("b", "x"): FIVE}))
    assert (alone.pairs, alone.left_out) == ((), ())


def test_sweeps_of_different_tasks_make_one_variant_and_of_the_same_task_two(results: Path) -> None:
    first: Scores = {("a", "x"): [1, 2], ("a", "w"): [2, 3]}
    other = over_tasks(finals(results / "1", first, {("b", "x"): [1, 2], ("b", "w"): [2, 3]}))
    assert [(one.label, list(one.scores)) for one in other] == [("x", ["a", "b"]), ("w", ["a", "b"])]
    same = over_tasks(finals(results / "2", first, {("a", "x"): [1, 2]}))
    assert [one.label for one in same] == ["sweep0 x", "sweep0 w", "sweep1 x"]
    assert [(one.number, one.side) for one in same] == [(0, 0), (1, 0), (0, 1)]


def test_by_wins_the_one_that_wins_most_often_is_first(results: Path) -> None:
    low, mid, high = [0.0, 1, 2], [1.0, 2, 2], [2.0, 3, 9]
    scores = {(task, name): own for task in "ab" for name, own in zip("xyz", (low, mid, high), strict=True)}
    every = over_tasks(finals(results, scores))
    assert [one.label for one in by_wins(every, "ab")] == ["z", "y", "x"]
    assert by_wins(every[:1], "ab") == every[:1]

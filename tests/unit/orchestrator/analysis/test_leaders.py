"""What leads, and how many seeds would settle it, on simulated returns of which the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.statistics.bootstrap import bootstrap_interval, interquartile_mean
from orchestrator.analysis.statistics.significance import LEVEL, chance_of_wins
from orchestrator.analysis.verdict.leaders import TaskAnswer, answers, no_overall
from orchestrator.analysis.verdict.seeds_needed import MOST, POWER, more_seeds
from tests.simulated import simulated

TASKS = ("t1", "t2")


def found(
    value: Callable[[str, str], float], seeds: int, algorithms: int = 5, tasks: int = 1
) -> list[TaskAnswer]:
    """The answers on runs with these returns; ``value``: a run's, by algorithm and task."""
    collected = simulated(value, [f"a{number}" for number in range(algorithms)], seeds, TASKS[:tasks])
    return answers(final_returns(groups(collected), intervals=False))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_of_five_equal_algorithms_none_leads(seeds: int) -> None:
    """How often one does by chance is in the tests of false verdicts."""
    generator = np.random.default_rng(seeds)
    (one,) = found(lambda *_: generator.normal(), seeds)
    assert len(one.leaders) == 5
    assert one.verdict.startswith(f"cannot tell from {seeds} seeds which is best of ")
    assert "more would be needed" in one.remedy


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_under_five_seeds_nothing_leads_however_far_ahead(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    (one,) = found(lambda name, _: generator.normal(100.0 * (name == "a1")), seeds)
    assert len(one.leaders) == 5
    assert one.leaders[0].label == "a1"
    assert one.few == one.leaders


def test_a_clear_winner_leads_alone() -> None:
    generator = np.random.default_rng(0)
    (one,) = found(lambda name, _: generator.normal(4.0 * (name == "a3")), 10)
    assert [leader.label for leader in one.leaders] == ["a3"]
    assert one.more is None
    assert str(one) == "t1: a3 leads significantly (10 seeds)"


def test_two_winners_that_are_alike_lead_together() -> None:
    generator = np.random.default_rng(3)
    (one,) = found(lambda name, _: generator.normal(5.0 * (name in ("a1", "a3"))), 10)
    assert {leader.label for leader in one.leaders} == {"a1", "a3"}
    assert len(one.behind) == 3


def test_one_algorithm_has_nothing_to_lead() -> None:
    (one,) = found(lambda *_: 1.0, 5, algorithms=1)
    assert one.verdict == "only a0 has a return (5 seeds)"
    assert one.remedy == ""


# What is left out


def lacking(absent: Callable[[str, str], bool]) -> list[Final]:
    """Final returns of three algorithms in two tasks, but for those that are ``absent``."""
    collected = simulated(lambda name, _: 10.0 * int(name[1]), ["a0", "a1", "a2"], 5, TASKS)
    finals = final_returns(groups(collected), intervals=False)
    return [
        replace(one, values=(), estimate=None) if absent(one.group.label.split()[-1], one.group.task) else one
        for one in finals
    ]


def test_a_variant_that_lacks_a_task_is_named_overall() -> None:
    finals = lacking(lambda name, task: (name, task) == ("a2", "t2"))
    overall, first, second = map(str, answers(finals))
    assert overall.endswith("left out, without a return in every task: a2")
    assert "left out" not in first
    assert second.endswith("left out, without a return: a2")
    assert no_overall(finals) == ""


def test_the_missing_answer_over_all_tasks_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    finals = lacking(lambda name, task: (name == "a0") == (task == "t1"))
    assert not any(one.overall for one in answers(finals))
    assert no_overall(finals) == "no answer over all tasks: no variant has a return in every task"
    every = lacking(lambda *_: False)
    assert no_overall(every) == ""
    monkeypatch.setattr("orchestrator.analysis.verdict.leaders._MOST_OVERALL", 1)
    assert not any(one.overall for one in answers(every))
    assert no_overall(every) == "no answer over all tasks: 6 variants are too many to compare there"
    assert no_overall([one for one in every if one.group.task == "t1"]) == ""


def test_variants_that_are_ranked_against_no_other_share_an_answer() -> None:
    every = final_returns(groups(simulated(lambda *_: 1.0, [f"a{n}" for n in range(4)], 5, ["t"])))

    def told(*frames: float) -> list[str]:
        lengths = zip(every, frames, strict=True)
        return [
            str(one) for one in answers([replace(f, terms=replace(f.terms, frames=n)) for f, n in lengths])
        ]

    assert told(1, 2, 3, 4) == ["t: not ranked against each other: a0, a1, a2 and 1 more (5 seeds)"]
    first, last = told(1, 2, 2, 2)
    assert first.startswith("t, part 1 of 2: cannot tell from 5 seeds which is best of a1, a2, a3; ")
    assert last == "t, part 2 of 2: a0 is ranked against no other (5 seeds)"
    parts = told(1, 1, 2, 2)
    assert [text.partition(":")[0] for text in parts] == ["t, part 1 of 2", "t, part 2 of 2"]


# The number of seeds


def exactly(mean: float, n: int) -> np.ndarray:
    """``n`` numbers with just this mean and a standard deviation of 1."""
    values = np.linspace(-1, 1, n)
    return mean + values / values.std(ddof=1)


@pytest.mark.parametrize(("away", "among"), [(1.2, 1), (0.9, 1), (1.2, 10)])
def test_with_so_many_more_seeds_four_of_five_repeats_settle_it(away: float, among: int) -> None:
    n = 6
    told = more_seeds([exactly(away / (1 - 3 / 39), n)], [exactly(0.0, n)], among)
    each = n + told.more
    generator = np.random.default_rng(1)
    settled = [
        chance_of_wins([generator.normal(away, 1, each)], [generator.normal(0, 1, each)]) <= LEVEL / among
        for _ in range(400)
    ]
    assert POWER - 0.07 < np.mean(settled) < POWER + 0.07


def test_the_number_from_few_seeds_is_about_the_true_one() -> None:
    """Eight seeds of a difference of 1.2 deviations; the true need is 13 each, so 5 more."""
    generator = np.random.default_rng(2)
    guesses = [
        more_seeds([generator.normal(1.2, 1, 8)], [generator.normal(0, 1, 8)]).more for _ in range(300)
    ]
    assert 3 <= median(guesses) <= 9


def test_equals_need_more_seeds_than_anybody_has() -> None:
    told = more_seeds([exactly(0.0, 6)], [exactly(0.0, 6)])
    assert told.more > MOST
    assert str(told) == f"more than {MOST} more"


def test_without_a_spread_only_the_fewest_seeds_for_a_verdict_are_known() -> None:
    assert str(more_seeds([np.array([1.0])], [np.array([0.0])])) == "at least 4 more"
    # For three runs Hedges' factor is 0 and tells nothing of the effect.
    assert str(more_seeds([np.array([1000.0])], [np.array([1.0, 1.1])])) == "at least 4 more"


def test_seeds_that_one_variant_has_more_of_count() -> None:
    """Of one with a hundred seeds the other needs fewer than beside one with as few as itself."""
    lone = more_seeds([exactly(0.8, 100)], [exactly(0.0, 6)]).more
    both = more_seeds([exactly(0.8, 6)], [exactly(0.0, 6)]).more
    assert 1 <= lone < both / 2
    generator = np.random.default_rng(3)
    settled = [
        chance_of_wins([generator.normal(0.8, 1, 100 + lone)], [generator.normal(0, 1, 6 + lone)]) <= LEVEL
        for _ in range(200)
    ]
    assert POWER - 0.12 < np.mean(settled) < POWER + 0.12


@pytest.mark.parametrize("n", [1, 2, 3, 12])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("times", [1.0, 10.0, 4000.0])
def test_the_number_is_never_below_one_nor_a_large_one(n: int, tasks: int, times: float) -> None:
    """For ties, no spread at all and returns as usual, alike and apart."""
    generator = np.random.default_rng(n)
    for draw in (np.ones(n), generator.normal(size=n), (generator.random(n) < 0.5).astype(float)):
        for other in (draw, draw + 1, 1 - draw):
            told = more_seeds([draw] * tasks, [other] * tasks, times)
            assert 1 <= told.more <= MOST + 1
            number = f"{told.more} more" if told.more <= MOST else f"more than {MOST} more"
            assert str(told).endswith(number)


def test_several_tasks_need_fewer_seeds_in_each() -> None:
    one, four = (more_seeds([exactly(0.8, 6)] * n, [exactly(0.0, 6)] * n).more for n in (1, 4))
    assert four < one / 2


# Intervals


@pytest.mark.parametrize(("seeds", "least"), [(4, 0.84), (7, 0.88), (10, 0.91)])
def test_coverage_of_intervals_is_known(seeds: int, least: float) -> None:
    """Below ten seeds the interval covers less than it says, as the page does; below four there is none."""
    scores = np.random.default_rng(5).normal(size=(seeds, 1500))
    low, high = bootstrap_interval(scores)
    assert interquartile_mean(scores).shape == low.shape
    covered = np.mean((low <= 0) & (high >= 0))
    assert least < covered < 0.95

"""Forks that share prefix and seed are compared within pairs: who is, by which test, in which words."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, friedmanchisquare, permutation_test, wilcoxon

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare import KeyComparison, compare_by
from orchestrator.analysis.compare.table import as_csv, as_json
from orchestrator.analysis.compare.wording import notes, verdict
from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.groups.improvement import against, standing
from orchestrator.analysis.groups.variants import variants
from orchestrator.analysis.report.blocks import Html, Text
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections.returns import answer, improvement
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.statistics import pairs
from orchestrator.analysis.statistics.pairs import (
    FEW_PAIRS,
    chance_of_pairs,
    difference_within,
    least_of_pairs,
    paired,
    pairs_won,
)
from orchestrator.analysis.statistics.significance import LEVEL, Floats, chance_alike
from orchestrator.analysis.verdict.evidence import evidence
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.analysis.verdict.missing_seeds import lead_holds
from orchestrator.analysis.verdict.seeds_needed import POWER, MoreSeeds, more_pairs
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from tests.simulated import EVAL, of_readings

Prefix = Callable[[str, int], str | None]
# Ten levels that seeds reach by luck, and ten small differences of either sign.
LEVELS = 10 * np.random.default_rng(1).normal(size=10)
NOISE = np.random.default_rng(2).normal(size=10)


def of_seed(_: str, seed: int) -> str:
    """Each seed has its own prefix, which all variants fork."""
    return f"{seed:016x}"


def of_one_run(*_: object) -> str:
    return "f" * 16


def of_each_variant(name: str, seed: int) -> str:
    return f"{name}{seed}"


def none(*_: object) -> None:
    return None


def trained(
    returns: dict[str, Sequence[float]],
    prefix: Prefix = of_seed,
    without: Sequence[tuple[str, int]] = (),
    tasks: Sequence[str] = ("t",),
) -> Collected:
    """Finished runs with these returns, by the value of ``algorithm``; some failed, without a return."""
    readings = []
    for task, (name, values) in product(tasks, returns.items()):
        for seed, value in enumerate(values):
            point = {"task": task, "algorithm": name, "seed": seed}
            index = IndexRow(f"{len(readings):016x}", True, point)
            if (name, seed) in without:
                readings.append(RunReading("s", index, RunState.FAILED, "out of memory", {"frames": 0}))
                continue
            facts = {"final_return": float(value), "frames": 6000, "prefix": prefix(name, seed)}
            facts |= {"training_fps": 1000.0 + seed, "end_to_end_fps": 900.0 + seed, "threads": 1}
            history = [Row(0, 6000, 6.0, {EVAL: float(value)})]
            readings.append(RunReading("s", index, RunState.DONE, "", facts, history))
    return of_readings(readings)


def finals(collected: Collected) -> list[Final]:
    return final_returns(groups(collected), intervals=False)


def compared(collected: Collected, **changes: str) -> KeyComparison:
    return compare_by(collected, "algorithm", **changes)


AHEAD = {"a": LEVELS, "b": LEVELS + 1.5 + NOISE / 2}


# The test


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=5), min_size=1, max_size=2))
def test_the_chance_is_the_part_of_all_signs(tasks: list[list[float]]) -> None:
    """Ties and zeros included, over one task and over two; 1 where most pairs are won by the other side."""
    several = [np.array(task) for task in tasks]
    unequal = [own[own != 0] for own in several]
    ranks = np.concatenate([wilcoxon_ranks(own) for own in unequal])
    away = float((ranks * np.sign(np.concatenate(unequal))).sum())
    sums = np.array(list(product((-1, 1), repeat=len(ranks)))) @ ranks
    expected = float(np.mean(np.abs(sums) >= abs(away)))
    agree = away * np.mean([np.sign(own).mean() for own in several]) > 1e-9
    assert chance_of_pairs(several) == pytest.approx(expected if agree else 1)


def wilcoxon_ranks(differences: Floats) -> Floats:
    apart = np.abs(differences[differences != 0])
    return np.array([(apart < one).sum() + ((apart == one).sum() + 1) / 2 for one in apart], dtype=float)


def test_without_ties_it_is_scipys(monkeypatch: pytest.MonkeyPatch) -> None:
    few = np.random.default_rng(0).normal(0.6, 1, size=9)
    assert chance_of_pairs([few]) == pytest.approx(wilcoxon(few, method="exact").pvalue)
    signed = few, lambda own, axis: (np.sign(own) * wilcoxon_ranks(few)).sum(axis=axis)
    flipped = permutation_test(signed[:1], signed[1], permutation_type="samples", n_resamples=np.inf)
    assert chance_of_pairs([few]) == pytest.approx(flipped.pvalue)
    many = np.random.default_rng(1).normal(0.15, 1, size=150)
    exact = chance_of_pairs([many])
    monkeypatch.setattr(pairs, "_MOST_EXACT", 100)
    expected = wilcoxon(many, method="approx", correction=False).pvalue
    assert chance_of_pairs([many]) == pytest.approx(expected)
    assert exact == pytest.approx(expected, rel=0.02)


def test_five_pairs_cannot_be_told_apart_and_six_can() -> None:
    for n in range(2, 8):
        assert chance_of_pairs([np.arange(1.0, n + 1)]) == least_of_pairs(n)
    assert least_of_pairs(FEW_PAIRS) <= LEVEL < least_of_pairs(FEW_PAIRS - 1)
    assert least_of_pairs(0) == chance_of_pairs([np.zeros(8)]) == 1


def test_the_difference_and_the_share_have_intervals_of_resampled_pairs() -> None:
    luck = [(of_seed("", seed), seed) for seed in range(10)]
    mine, theirs = AHEAD["b"].tolist(), AHEAD["a"].tolist()
    found = difference_within([mine, theirs], [luck, luck])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.5 < found.low < found.value < found.high < 2.5, "the levels of seeds are not in it"
    assert found.n == 10
    shuffled = [*range(3, 10), *range(3)]
    again = difference_within(
        [[mine[one] for one in shuffled], theirs], [[luck[one] for one in shuffled], luck]
    )
    assert again is not None
    assert again.value == pytest.approx(found.value), "runs are found by their luck, in any order"
    assert pairs_won([np.array([1.0, 2, -1, 0])])[0] == 0.625
    assert pairs_won([np.ones(10)]) == (1, 1, 1)


def test_all_together_are_tested_among_runs_of_a_pair() -> None:
    """Of ten levels that are far apart the test of all runs has nothing, that within pairs what is there."""
    generator = np.random.default_rng(3)
    panel = np.array([LEVELS + level + 0.5 * generator.normal(size=10) for level in (0, 0, 0.6)])
    assert chance_alike([panel]) > 0.7
    within = chance_alike([panel], paired=True)
    assert within == pytest.approx(friedmanchisquare(*panel).pvalue, abs=0.03)
    assert within < 0.05
    assert chance_alike([panel + generator.normal(size=10)], paired=True) == within, "levels do not matter"


def test_all_together_it_is_the_part_of_all_orders_within_pairs() -> None:
    """Of one pair of runs that differ a lot and three that hardly do."""
    panel = np.array([[9.0, 0.1, 0.2, 0.1], [0.0, 0.0, 0.1, 0.0], [-9.0, -0.1, 0.0, 0.3]])
    ranks = wilcoxon_ranks((panel - panel.mean(axis=0)).ravel() + 100).reshape(panel.shape)

    def between(orders: Sequence[tuple[int, ...]]) -> float:
        columns = [ranks[list(order), at] for at, order in enumerate(orders)]
        return float(((np.mean(columns, axis=0) - ranks.mean()) ** 2).sum())

    every = [between(orders) for orders in product(permutations(range(3)), repeat=4)]
    expected = np.mean([one >= every[0] - 1e-9 for one in every])
    assert chance_alike([panel], paired=True) == pytest.approx(expected, rel=0.1)
    assert chance_alike([panel - panel.mean(axis=0)]) != pytest.approx(expected, rel=0.2)


# Who is paired


def test_one_side_may_have_runs_without_a_counterpart_but_not_both() -> None:
    luck = [("p", seed) for seed in range(8)]
    values = [float(seed) for seed in range(8)]
    found = paired([values[:7], values], [luck[:7], luck])
    assert found is not None
    assert found.shape == (2, 7)
    assert paired([values[:7], values[1:]], [luck[:7], luck[1:]]) is None
    assert paired([values, values], [luck, [("q", seed) for seed in range(8)]]) is None
    assert paired([values, values], [(), luck]) is None
    assert paired([values, values], [luck[:5], luck]) is None, "returns that were filled in have no luck"
    assert paired([values[:5], values], [luck[:5], luck]) is None
    assert paired([values[:5], values], [luck[:5], luck], fewest=1) is not None


@pytest.mark.parametrize("prefix", [of_seed, of_one_run])
def test_forks_that_share_prefix_and_seed_are_compared_within_pairs(prefix: Prefix) -> None:
    """Forks of one run each, or all of one run with other seeds."""
    told = "(paired by common prefix and seed, 10 pairs)"
    assert verdict(compared(trained(AHEAD, prefix))).startswith(
        f"Final returns with b are higher in 1 of 1 combinations {told}. "
    )


@pytest.mark.parametrize("prefix", [none, of_each_variant])
def test_nothing_is_paired_without_a_common_prefix(prefix: Prefix) -> None:
    """As of runs that are only longer than they were, which have a prefix each."""
    collected = trained(AHEAD, prefix)
    found = compared(collected)
    assert verdict(found).startswith("Final returns cannot be told apart. ")
    assert "paired" not in " ".join(notes(found))
    assert "paired_difference" not in as_csv(found)
    assert "pair" not in str(answers(finals(collected))[0])


def test_an_unchanged_fork_is_a_side_of_a_pair_and_a_run_without_prefix_is_none() -> None:
    scratch = trained(AHEAD, lambda name, seed: None if (name, seed) == ("a", 0) else of_seed(name, seed))
    assert "(paired" not in verdict(compared(scratch))


def test_a_seed_that_failed_on_one_side_leaves_the_other_pairs() -> None:
    one = verdict(compared(trained(AHEAD, without=[("a", 3)])))
    assert "(paired by common prefix and seed, 9 pairs)" in one
    both = verdict(compared(trained(AHEAD, without=[("a", 3), ("b", 4)])))
    assert both.startswith("Final returns cannot be told apart. ")


def test_five_pairs_are_compared_as_other_runs_are_and_the_words_say_what_is_needed() -> None:
    five = {name: values[:5] for name, values in AHEAD.items()}
    told = "(5 pairs by common prefix and seed, 6 needed for a paired test)"
    assert verdict(compared(trained(five))).startswith(f"Final returns cannot be told apart {told}. ")
    assert str(answers(finals(trained(five)))[0]) == (
        f"t: cannot tell from 5 seeds which is best of b, a {told}; about 2 more would be needed"
    )
    apart = {"a": LEVELS[:5], "b": LEVELS[:5] + 100}
    assert verdict(compared(trained(apart))).startswith("Final returns with b are higher in 1 of 1")
    assert answers(finals(trained(apart)))[0].verdict == "b leads significantly (5 seeds)"


# What is said of them


def test_the_baseline_may_return_more() -> None:
    found = compared(trained(AHEAD), baseline="b")
    assert verdict(found).startswith("Final returns with a are lower in 1 of 1 combinations (paired by")


def test_compare_has_the_difference_within_pairs() -> None:
    found = compared(trained(AHEAD, tasks=("t", "u")))
    [note] = [line for line in notes(found) if "paired" in line]
    assert note.startswith(
        "final return minus that with a, paired by common prefix and seed, 10 pairs: t b +1."
    )
    assert ", u b +1." in note
    told = as_json(found)["combinations"][0]["cells"]
    assert "paired_difference" not in told[0], "the baseline"
    difference = told[1]["paired_difference"]
    assert (difference["n"], difference["low"] > 0) == (10, True)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert float(rows[1]["paired_difference_low"]) == difference["low"]
    json.dumps(as_json(found), allow_nan=False)


def test_combinations_without_common_prefixes_are_counted() -> None:
    several = trained(AHEAD, tasks=("t", "u"))
    prefix = pl.when(pl.col("task") == "t").then("prefix")
    mixed = replace(several, runs=several.runs.with_columns(prefix=prefix))
    told = verdict(compared(mixed))
    assert "higher in 1, not told apart in 1 of 2 combinations (1 of 2 paired by common prefix" in told


def test_p_values_of_pairs_are_corrected_for_all_combinations() -> None:
    """Of one task six pairs are enough, p = 1/32; of two tasks they are too few."""
    six = {"a": LEVELS[:6], "b": LEVELS[:6] + 1 + np.arange(6) / 10}
    assert "are higher in 1 of 1" in verdict(compared(trained(six)))
    two = trained(six, tasks=("t", "u"))
    told = "in each of 2 combinations (paired by common prefix and seed, 6 pairs). "
    assert verdict(compared(two)).startswith(f"Too few seeds to tell final returns apart {told}")
    assert [pair.beyond_chance for pair in standing(finals(trained(six))).pairs] == [True]
    by_task = standing(finals(two), overall=False).pairs
    assert [(pair.chance, pair.beyond_chance) for pair in by_task] == [(1 / 16, None)] * 2


def test_three_forks_have_a_leader_although_their_seeds_differ_more() -> None:
    several = {"a": LEVELS, "b": LEVELS + NOISE / 2, "c": LEVELS + 2 + NOISE[::-1] / 2}
    (one,) = answers(finals(trained(several)))
    assert one.verdict == "c leads significantly (paired by common prefix and seed, 10 pairs)"
    (alone,) = answers(finals(trained(several, none)))
    assert len(alone.leaders) == 3
    tested = evidence(finals(trained(several))).pairs["t"].values()
    assert [pair.beyond_chance for pair in tested] == [True, True, False]
    assert "c leads significantly (paired" in verdict(compared(trained(several)))


def test_over_several_tasks_every_pair_counts() -> None:
    six = {"a": LEVELS[:6], "b": LEVELS[:6] + 1 + np.arange(6) / 10}
    whole = answers(finals(trained(six, tasks=("t", "u"))))[0]
    assert whole.verdict == "b leads significantly (paired by common prefix and seed, 6 pairs)"
    overall = standing(finals(trained(six, tasks=("t", "u")))).pairs[0]
    assert (overall.pairs, overall.value) == (12, 1)


def test_the_page_says_that_forks_are_paired() -> None:
    data = report_data((), trained(AHEAD))
    first, section = answer.section(data), improvement.section(data)
    assert first is not None
    assert section is not None
    [card] = [block.markup for block in first.blocks if isinstance(block, Html)]
    assert "leads significantly (paired by common prefix and seed, 10 pairs)" in card
    assert "b − a: +1." in card
    assert " within 10 pairs" in card
    cells = [cell.text for table in section.tables for row in table.rows for cell in row]
    assert "yes, p = 0.002, paired by common prefix and seed, 10 pairs" in cells
    notes_of = [block.text for block in section.blocks if isinstance(block, Text)]
    assert "Wilcoxon's signed rank test" in notes_of[-1]
    plain = improvement.section(report_data((), trained(AHEAD, none)))
    assert plain is not None
    assert not any("Wilcoxon" in block.text for block in plain.blocks if isinstance(block, Text))


def test_a_lead_within_pairs_is_not_bounded_by_seeds_that_have_none() -> None:
    found = finals(trained(AHEAD, without=[("a", 3)]))
    (one,) = answers(found)
    assert [leader.label for leader in one.leaders] == ["b"]
    assert lead_holds(one, found) is None


# How often it is right


@pytest.mark.parametrize(("variants_", "n", "pages"), [(2, 10, 300), (2, 6, 200), (3, 10, 100)])
def test_equal_forks_are_seldom_told_apart(variants_: int, n: int, pages: int) -> None:
    generator = np.random.default_rng(pages)

    def is_false() -> bool:
        level = 3 * generator.normal(size=n)
        page = finals(trained({f"a{at}": level + generator.normal(size=n) for at in range(variants_)}))
        return any(pair.beyond_chance for pair in evidence(page).pairs["t"].values())

    assert sum(is_false() for _ in range(pages)) <= binom.ppf(0.999, pages, LEVEL)


def test_pairs_show_what_the_spread_of_seeds_hides() -> None:
    """An effect of one deviation within pairs, where seeds differ three times as much: 80 % against none."""
    generator = np.random.default_rng(4)
    paired_, plain = 0, 0
    for _ in range(100):
        level = 3 * generator.normal(size=10)
        drawn = {name: level + by + generator.normal(size=10) / 2**0.5 for name, by in (("a", 0), ("b", 1))}
        for prefix in (of_seed, none):
            [pair] = standing(finals(trained(drawn, prefix)), intervals=False).pairs
            paired_ += prefix is of_seed and bool(pair.beyond_chance)
            plain += prefix is none and bool(pair.beyond_chance)
    assert paired_ >= 65
    assert plain <= 5


@pytest.mark.parametrize("effect", [0.5, 1.0])
def test_so_many_more_pairs_give_the_power_that_is_said(effect: float) -> None:
    seen = np.array([-1.0, -0.5, 0, 0, 0.5, 1])
    seen = seen / seen.std(ddof=1) + effect / (1 - 3 / 19)
    n = 6 + more_pairs([seen]).more
    generator = np.random.default_rng(5)
    power = np.mean([chance_of_pairs([generator.normal(effect, 1, size=n)]) <= LEVEL for _ in range(600)])
    assert power == pytest.approx(POWER, abs=0.06)
    assert more_pairs([seen], times=10).more > more_pairs([seen]).more
    assert more_pairs([seen] * 3).more < max(2, more_pairs([seen]).more)
    assert more_pairs([np.array([1.0, 2])]) == MoreSeeds(4, at_least=True)


def test_the_chance_to_win_is_the_share_of_pairs() -> None:
    [several] = variants(finals(trained(AHEAD))).values()
    first, second = several
    found = against(first, second, ("t",))
    won = (AHEAD["b"] > AHEAD["a"]).mean()
    assert (found.value, found.pairs) == (won, 10)
    [several] = variants(finals(trained(AHEAD, none))).values()
    assert against(several[0], several[1], ("t",)).value < 0.7

"""How often equals are told to differ, by simulation, through what the report and `compare` say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare import compare_by
from orchestrator.analysis.compare.wording import verdict
from orchestrator.analysis.groups.grouping import final_returns, groups
from orchestrator.analysis.groups.improvement import Improvement, standing
from orchestrator.analysis.report.sections.returns.improvement import improvement_table
from orchestrator.analysis.run_table import RunReading, metrics_table, runs_table
from orchestrator.analysis.statistics.significance import FEW_SEEDS, LEVEL
from orchestrator.analysis.verdict.evidence import evidence
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from tests.simulated import finals_of

EVAL = "eval/reward/episode_reward_mean"
Figures = Callable[[str], tuple[float, float]]


def collected(figures: Figures, algorithms: int, seeds: int) -> Collected:
    """Finished runs without their folders; ``figures``: a run's final return and frames/s, by algorithm."""
    readings = []
    for number, (algorithm, seed) in enumerate((a, s) for a in range(algorithms) for s in range(seeds)):
        value, fps = figures(f"a{algorithm}")
        point = {"task": "t", "algorithm": f"a{algorithm}", "seed": seed}
        speeds = {"training_fps": fps, "end_to_end_fps": fps}
        facts: Mapping[str, Any] = {"final_return": value, "frames": 6000, "threads": 1, **speeds}
        index, history = IndexRow(f"{number:016x}", True, point), [Row(0, 6000, 6.0, {EVAL: value})]
        readings.append(RunReading("s", index, RunState.DONE, "", facts, history))
    runs, keys = runs_table(readings, {"s": "benchmarl"})
    return Collected(runs, metrics_table(readings), keys, (), (), ())


def family(figures: Figures, algorithms: int, seeds: int) -> list[str]:
    """The verdicts of the page's table of pairs."""
    found = final_returns(groups(collected(figures, algorithms, seeds)), intervals=False)
    table = improvement_table(standing(found).pairs)
    names = [head.name for head in table.columns]
    return [row[names.index("significant")].text for row in table.rows]


def most(pages: int) -> int:
    """The most false ones of so many pages: where 5 % are, luck makes more in one test of a thousand."""
    return int(binom.ppf(0.999, pages, LEVEL))


def false_pages(draw: Callable[[], Mapping[str, Sequence[Floats]]], pages: int, equal: Equal) -> int:
    """Count the pages that tell apart what is ``equal``: any pair of a single task, or any of the cards'."""
    found = 0
    for _ in range(pages):
        finals = finals_of(draw())
        one_task = len({final.group.task for final in finals}) == 1
        pairs = evidence(finals).pairs["t0"].values() if one_task else standing(finals, intervals=False).pairs
        told = [(one.better.number, one.other.number) for one in pairs if one.beyond_chance]
        found += any(equal(*pair) for pair in told)
    return found


Floats = np.ndarray
Equal = Callable[[int, int], bool]
Draw = Callable[[np.random.Generator, int], Floats]
DRAWS: dict[str, Draw] = {
    "normal": lambda generator, n: generator.normal(size=n),
    "lognormal": lambda generator, n: generator.lognormal(0, 1.5, size=n),
    "two degrees of freedom": lambda generator, n: generator.standard_t(2, size=n),
    "solved or failed": lambda generator, n: (generator.random(n) < 0.5).astype(float),
    "seldom solved": lambda generator, n: (generator.random(n) < 0.1).astype(float),
    "many at the top": lambda generator, n: np.minimum(generator.normal(size=n).round(1), 0),
}


@pytest.mark.nightly(
    but=[f"normal-sizes{case}" for case in ("0-1-50", "4-3-200", "10-1-100")]
    + ["solved or failed-sizes7-1-100"]
)
@pytest.mark.parametrize(
    ("returns", "sizes", "tasks", "pages"),
    [
        ("normal", [3] * 5, 1, 50),
        ("normal", [5] * 5, 1, 400),
        ("normal", [10] * 5, 1, 300),
        ("normal", [10] * 3, 1, 400),
        ("normal", [7] * 2, 3, 200),
        ("lognormal", [10] * 5, 1, 100),
        ("two degrees of freedom", [5] * 5, 2, 100),
        ("solved or failed", [10] * 5, 1, 100),
        ("seldom solved", [5, 60], 2, 200),
        ("many at the top", [7] * 5, 1, 100),
        ("normal", [3, 10, 10, 10, 10], 1, 100),
        ("normal", [5, 20, 20], 1, 200),
    ],
)
def test_equal_variants_are_seldom_told_apart(returns: str, sizes: list[int], tasks: int, pages: int) -> None:
    """At most one page in twenty has a false verdict; under five seeds none has."""
    generator = np.random.default_rng(pages)

    def page() -> dict[str, list[Floats]]:
        return {f"t{task}": [DRAWS[returns](generator, n) for n in sizes] for task in range(tasks)}

    assert false_pages(page, pages, lambda *_: True) <= (most(pages) if max(sizes) >= FEW_SEEDS else 0)


@pytest.mark.nightly(but=["levels0"])
@pytest.mark.parametrize("levels", [(0, 0, -1, -1), (0, 0, -1, -1, -1), (1, 0, 0, 0, 0), (0, 0, 0, 0, -1)])
def test_equals_beside_others_are_seldom_told_apart(levels: tuple[int, ...]) -> None:
    """Variants that do differ, by ten deviations here, leave no more errors among those that do not."""
    generator = np.random.default_rng(2)

    def page() -> dict[str, list[Floats]]:
        return {"t0": [10 * level + generator.normal(size=10) for level in levels]}

    pages = 150
    assert false_pages(page, pages, lambda one, other: levels[one] == levels[other]) <= most(pages)


def test_seeds_that_all_variants_share_make_no_false_verdicts() -> None:
    """A seed that is easy for all, as of a level, makes verdicts rarer than one page in twenty."""
    generator = np.random.default_rng(3)

    def page() -> dict[str, list[Floats]]:
        seeds = 2 * generator.normal(size=10)
        return {"t0": [seeds + generator.normal(size=10) for _ in range(3)]}

    assert false_pages(page, 150, lambda *_: True) <= most(150)


@pytest.mark.parametrize(("sizes", "limit"), [([10, 10], 0.05), ([5, 20], 0.1)])
def test_variants_of_unequal_spread_are_not_much_oftener_told_apart(sizes: list[int], limit: float) -> None:
    """As the report states it: of one with few seeds and a wide spread the rate is up to one in ten.

    A test of ranks alone has 8 and 22 of a hundred.
    """
    generator = np.random.default_rng(4)

    def page() -> dict[str, list[Floats]]:
        return {"t0": [generator.normal(0, 8, sizes[0]), generator.normal(size=sizes[1])]}

    pages = 400
    assert false_pages(page, pages, lambda *_: True) <= binom.ppf(0.999, pages, limit)


@pytest.mark.nightly(but=["1-0.4"])
@pytest.mark.parametrize(("tasks", "least"), [(1, 0.4), (4, 0.12)])
def test_a_leader_by_one_and_a_half_deviations_is_often_found(tasks: int, least: float) -> None:
    """One of five variants with ten seeds, on the card of its first task."""
    generator = np.random.default_rng(5)

    def leads() -> bool:
        means = (1.5, 0, 0, 0, 0)
        page = {f"t{task}": [generator.normal(mean, size=10) for mean in means] for task in range(tasks)}
        own = next(one for one in answers(finals_of(page)) if one.tasks == ("t0",))
        return [one.label for one in own.leaders] == ["a0"]

    assert np.mean([leads() for _ in range(150 // tasks)]) >= least


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_table_of_pairs_says_what_was_tested(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    told = family(lambda _: (generator.normal(), 1000.0), 5, seeds)
    assert len(told) == (0 if seeds < FEW_SEEDS else 4)
    assert all(one.startswith("no, p = ") for one in told)


def test_a_real_difference_is_found() -> None:
    generator = np.random.default_rng(0)

    def one_better(name: str) -> tuple[float, float]:
        return generator.normal(3.0 if name == "a2" else 0.0), 1000.0

    verdicts = [family(one_better, 5, 10) for _ in range(10)]
    assert sum(one.startswith("yes") for own in verdicts for one in own) >= 36


@pytest.mark.parametrize(("seeds", "repeats"), [(2, 30), (5, 60)])
def test_two_equal_values_are_seldom_told_apart_by_compare(seeds: int, repeats: int) -> None:
    generator = np.random.default_rng(seeds)

    def equal(_: str) -> tuple[float, float]:
        return generator.normal(), 1000.0 * math.exp(generator.normal(0, 0.03))

    told = [verdict(compare_by(collected(equal, 2, seeds), "algorithm")) for _ in range(repeats)]
    assert sum("higher in" in one or "lower in" in one for one in told) <= (0 if seeds < 5 else 7)
    assert sum(": significant" in one or "fastest" in one for one in told) <= (0 if seeds < 5 else 7)


def test_what_is_clear_is_told_on_a_page_of_any_length() -> None:
    """Three variants ten deviations apart in 520 tasks: no more deals are drawn than for one."""
    generator = np.random.default_rng(6)
    apart = [10.0 * level + generator.normal(size=12) for level in range(3)]
    page = {f"t{task}": apart for task in range(520)}
    pairs = standing(finals_of(page), overall=False, intervals=False).pairs
    assert {one.beyond_chance for one in pairs} == {True}


def test_seeds_are_not_too_few_once_the_other_tasks_are_told_apart() -> None:
    """By Holm's method the last of seven pairs is multiplied by 1, of which five seeds are enough."""
    apart, near = [np.arange(12.0), np.arange(12.0) + 20], [np.arange(5.0), np.arange(5.0) + 2.5]
    last = [pair for pair in _of_tasks([apart] * 6 + [near]) if pair.tasks == ("t6",)]
    assert [one.beyond_chance for one in last] == [False]
    assert [one.beyond_chance for one in _of_tasks([near] * 7)] == [None] * 7


def test_seeds_are_too_few_where_all_variants_together_cannot_be_told_from_equals() -> None:
    """Nine seeds would be enough for a pair of 520 tasks, but not for the test of three variants together."""
    close = [np.arange(9.0) + by for by in range(3)]
    assert {one.beyond_chance for one in _of_tasks([close] * 520)} == {None}


def _of_tasks(panels: Sequence[Sequence[Floats]]) -> Sequence[Improvement]:
    page = {f"t{number}": panel for number, panel in enumerate(panels)}
    return standing(finals_of(page), overall=False, intervals=False).pairs

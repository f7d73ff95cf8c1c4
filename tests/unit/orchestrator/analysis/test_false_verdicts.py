"""How often equals are told to differ, by simulation, through what the report and `compare` say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare import compare_by
from orchestrator.analysis.compare.wording import verdict
from orchestrator.analysis.improvement import standing
from orchestrator.analysis.report.tables import improvement_table
from orchestrator.analysis.stats import final_returns, groups
from orchestrator.analysis.tables import RunReading, metrics_table, runs_table
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row

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
    column = [head.name for head in table.columns].index("more than luck")
    return [row[column].text for row in table.rows]


@pytest.mark.parametrize(("seeds", "families"), [(3, 10), (5, 10), (6, 60), (10, 60)])
def test_five_equal_algorithms_are_seldom_told_apart(seeds: int, families: int) -> None:
    """At most one family in twenty has a false yes; by chance up to seven of sixty."""
    generator = np.random.default_rng(seeds)

    def equal(_: str) -> tuple[float, float]:
        return generator.normal(), 1000.0

    verdicts = [family(equal, 5, seeds) for _ in range(families)]
    false = sum(any(one.startswith("yes") for one in own) for own in verdicts)
    assert false <= (7 if seeds > 5 else 0)
    assert {len(own) for own in verdicts} == {0 if seeds < 5 else 4}


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
    assert sum(": more than noise" in one or "fastest" in one for one in told) <= (0 if seeds < 5 else 7)

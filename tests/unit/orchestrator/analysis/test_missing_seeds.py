"""Missing seeds bounded, on simulated returns of which those that went missing are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.statistics.bootstrap import estimate_of
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.analysis.verdict.missing_seeds import lead_holds, missing_seeds
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from tests.simulated import EVAL, of_readings


def with_failures(
    returns: dict[str, list[float]],
    lost: dict[str, list[int]],
    *,
    nan: bool,
    state: RunState = RunState.FAILED,
) -> Collected:
    """Runs with these returns, by algorithm; the lost seeds have this state, or a return of NaN."""
    readings = []
    for name, values in returns.items():
        for seed, value in enumerate(values):
            gone = seed in lost.get(name, [])
            index = IndexRow(f"{len(readings):016x}", True, {"task": "t", "algorithm": name, "seed": seed})
            if gone and not nan:
                readings.append(RunReading("s", index, state, "out of memory", {"frames": 0}))
                continue
            final = math.nan if gone else value
            facts = {"final_return": final, "frames": 6000, "initial_return": -4.0}
            history = [Row(0, 6000, 6.0, {EVAL: final})]
            readings.append(RunReading("s", index, RunState.DONE, "", facts, history))
    return of_readings(readings)


def told(collected: Collected) -> list[Final]:
    return final_returns(groups(collected), intervals=False)


@pytest.mark.parametrize("nan", [False, True])
def test_bounds_hold_what_all_seeds_would_have_given(nan: bool) -> None:
    """Whichever seeds went missing: at random, or the worst ones."""
    generator = np.random.default_rng(4)
    for repeat in range(30):
        returns = {name: generator.normal(size=10).clip(-3, 3).tolist() for name in "abc"}
        order = np.argsort(returns["a"]) if repeat % 2 else generator.permutation(10)
        gone = [int(seed) for seed in order[:3]]
        (found,) = missing_seeds(told(with_failures(returns, {"a": gone}, nan=nan)))
        assert (found.label, found.seeds, found.missing, found.of) == ("a", 10, 3, 3)
        truth = estimate_of(returns["a"])
        assert truth is not None
        means = [estimate.value for name in "abc" if (estimate := estimate_of(returns[name])) is not None]
        highest = max(value for name in "abc" for value in returns[name])
        if max(returns["a"]) < highest:  # it is known how high returns get
            assert found.low <= truth.value <= found.high
            assert found.best <= 1 + sum(mean > truth.value for mean in means) <= found.worst


def test_a_lead_that_rests_on_crashes_does_not_hold() -> None:
    """``a`` equals the others, but every seed that learns badly crashes."""
    generator = np.random.default_rng(0)
    shared = {name: generator.normal(size=20).tolist() for name in "bc"}
    every = generator.normal(size=60)
    returns = {"a": every.tolist(), **shared}
    crashed = [seed for seed, value in enumerate(every) if value < 0.5]
    finals = told(with_failures(returns, {"a": crashed}, nan=False))
    (answer,) = answers(finals)
    assert [one.label for one in answer.leaders] == ["a"]
    assert lead_holds(answer, finals) is False
    (found,) = missing_seeds(finals)
    assert (found.place, found.worst) == (1, 3)


def test_a_lead_far_ahead_holds_without_a_seed() -> None:
    generator = np.random.default_rng(0)
    returns = {name: generator.normal(20.0 * (name == "a"), 1, 10).tolist() for name in "abc"}
    finals = told(with_failures(returns, {"a": [3], "b": [0]}, nan=False))
    (answer,) = answers(finals)
    assert lead_holds(answer, finals) is True
    assert [(one.label, one.place, one.worst) for one in missing_seeds(finals)] == [("a", 1, 1), ("b", 3, 3)]


def test_nothing_is_said_where_nothing_is_missing() -> None:
    returns = {name: [float(seed) + 30 * (name == "a") for seed in range(10)] for name in "abc"}
    finals = told(with_failures(returns, {}, nan=False))
    (answer,) = answers(finals)
    assert missing_seeds(finals) == []
    assert lead_holds(answer, finals) is None


def test_a_variant_that_was_skipped_is_not_left_out() -> None:
    """The card says apart which runs were skipped, and why."""
    returns = {name: [float(seed) + 30 * (name == "a") for seed in range(10)] for name in "abc"}
    lost = {"c": list(range(10))}
    finals = told(with_failures(returns, lost, nan=False, state=RunState.SKIPPED))
    (answer,) = answers(finals)
    assert answer.without == ()
    assert missing_seeds(finals) == []


@pytest.mark.parametrize("nan", [False, True])
def test_a_variant_whose_seeds_all_failed_is_bounded_and_named(nan: bool) -> None:
    """``c`` may have returned as much as any, so nothing leads for sure."""
    generator = np.random.default_rng(0)
    returns = {name: generator.normal(20.0 * (name == "a"), 1, 10).tolist() for name in "abc"}
    finals = told(with_failures(returns, {"a": [3], "c": list(range(10))}, nan=nan))
    (answer,) = answers(finals)
    assert str(answer).startswith("t: a leads significantly (9 seeds)")
    assert str(answer).endswith("left out, without a return: c")
    assert answer.as_dict()["left_out"] == ["c"]
    assert lead_holds(answer, finals) is False
    own, lost = missing_seeds(finals)
    assert (own.label, own.missing, own.place, own.best, own.worst, own.of) == ("a", 1, 1, 1, 2, 3)
    highest = max(max(final.values, default=-math.inf) for final in finals)
    assert (lost.label, lost.seeds, lost.missing) == ("c", 10, 10)
    assert (lost.plain, lost.place, lost.low, lost.high) == (None, None, -4.0, highest)
    assert (lost.best, lost.worst) == (1, 3)


def test_a_variant_without_a_return_is_listed_once_beside_several_classes() -> None:
    returns = {name: [float(seed) for seed in range(5)] for name in "abc"}
    finals = told(with_failures(returns, {"c": list(range(5))}, nan=False))
    longer = replace(finals[1], terms=replace(finals[1].terms, frames=1e6))
    assert [one.label for one in missing_seeds([finals[0], longer, finals[2]])] == ["c"]


def test_a_lead_that_goes_to_the_same_variant_of_another_sweep_does_not_hold() -> None:
    """``b`` stands for ``a`` of a second sweep: the number of the first, another side."""
    returns = {"a": [20.0 + seed for seed in range(50)], "b": [10.0 + seed / 10 for seed in range(10)]}
    first, second = told(with_failures(returns, {"a": list(range(8, 50))}, nan=False))
    other = replace(second.group, number=first.group.number, side=1)
    finals = [first, replace(second, group=other)]
    (answer,) = answers(finals)
    assert [(one.number, one.side) for one in answer.leaders] == [(first.group.number, 0)]
    assert lead_holds(answer, finals) is False

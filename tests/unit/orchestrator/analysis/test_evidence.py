"""All pairs of variants, returns against cost and effects of keys, on returns of which the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.statistics.significance import chances_to_win, wins
from orchestrator.analysis.verdict.cost_front import CostClass, cost_classes
from orchestrator.analysis.verdict.evidence import evidence
from orchestrator.analysis.verdict.key_effects import key_effects, keys_without_effect
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from tests.simulated import EVAL, of_readings, simulated

Values = Callable[[str, str], float]


def finals(value: Values, seeds: int, algorithms: int = 4, tasks: int = 1) -> list[Final]:
    names = [f"a{number}" for number in range(algorithms)]
    collected = simulated(value, names, seeds, [f"t{number}" for number in range(tasks)])
    return final_returns(groups(collected), intervals=False)


def of_points(points: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Final]:
    """Final returns of runs by their point of the grid and their facts."""
    readings = []
    for number, (point, facts) in enumerate(points):
        own = {"frames": 6000, "threads": 1, "end_to_end_fps": 1000.0, **facts}
        history = [Row(0, 6000, 6.0, {EVAL: own["final_return"]})]
        row = IndexRow(f"{number:016x}", True, point)
        readings.append(RunReading("s", row, RunState.DONE, "", own, history))
    return final_returns(groups(of_readings(readings)), intervals=False)


# All pairs


def test_pairs_agree_with_the_answers_and_find_more_than_them() -> None:
    """A pair of the second and the last can differ as well, although neither is the reference."""
    generator = np.random.default_rng(3)
    own = finals(lambda name, _: generator.normal(4.0 * int(name[1])), 10, tasks=2)
    found = evidence(own)
    labels = [variant.label for variant, _ in found.rows]
    for answer in answers(own):
        if answer.overall:
            continue
        (leader,) = answer.leaders
        best = labels.index(leader.label)
        pairs = found.pairs[answer.tasks[0]]
        beaten = {labels[two] for (one, two), pair in pairs.items() if one == best and pair.beyond_chance}
        assert beaten == {variant.label for variant in answer.behind}
        assert pairs[labels.index("a2"), labels.index("a0")].beyond_chance
        assert all(pair.value >= 0.5 for pair in pairs.values())


def test_returns_that_cannot_be_ranked_are_no_pair() -> None:
    points = [
        ({"task": "t", "algorithm": name, "seed": seed}, {"final_return": float(seed), "frames": frames})
        for (name, frames), seed in product([("a", 6000), ("b", 6000), ("c", 60_000)], range(5))
    ]
    found = evidence(of_points(points))
    assert [variant.label for variant, _ in found.rows] == ["a", "b", "c"]
    assert set(found.pairs["t"]) == {(0, 1)}


def test_many_tasks_compare_fewer_variants_of_each() -> None:
    few, many = (evidence(finals(lambda *_: 1.0, 1, algorithms=20, tasks=tasks)) for tasks in (1, 50))
    assert (few.paired, many.paired) == (20, 14)
    assert sum(map(len, few.pairs.values())) == 190
    assert sum(map(len, many.pairs.values())) == 50 * 14 * 13 // 2


# Cost


def front(runs: Mapping[str, tuple[float, float]], prices: Prices | None = None) -> CostClass:
    points = [
        ({"task": "t", "algorithm": name, "seed": seed}, {"final_return": value, "wall_time": seconds})
        for (name, (value, seconds)), seed in product(runs.items(), range(2))
    ]
    (found,) = cost_classes(of_points(points), prices or {})
    return found


def on_front(found: CostClass) -> list[str]:
    return [one.final.group.point["algorithm"] for one in found.members if one.on_front]


def test_a_variant_that_costs_more_and_returns_less_is_not_on_the_front() -> None:
    found = front({"slow": (10.0, 900.0), "fast": (5.0, 100.0), "beaten": (4.0, 500.0), "worst": (1.0, 90.0)})
    assert not found.priced
    assert on_front(found) == ["worst", "fast", "slow"]


def test_a_cost_lower_by_a_hair_is_as_much() -> None:
    assert on_front(front({"better": (10.0, 102.0), "worse": (9.0, 100.0)})) == ["better"]
    assert on_front(front({"better": (10.0, 120.0), "worse": (9.0, 100.0)})) == ["worse", "better"]


def test_dollars_count_where_all_have_a_price() -> None:
    """The first two runs are of the variant that is slow, on a machine at a hundredth of the price."""
    runs = {"slow": (9.0, 900.0), "fast": (9.0, 100.0)}
    ids = [("s", f"{number:016x}") for number in range(4)]
    cheap = dict(zip(ids, (0.04, 0.04, 4.0, 4.0), strict=True))
    assert on_front(front(runs)) == ["fast"]
    assert on_front(front(runs, dict(list(cheap.items())[:2]))) == ["fast"]
    found = front(runs, cheap)
    assert on_front(found) == ["slow"]
    assert found.members[0].dollars == pytest.approx(0.01)


# Keys


def test_the_key_that_matters_comes_first_and_the_other_is_a_half() -> None:
    generator = np.random.default_rng(0)
    points = [
        (
            {"task": "t", "algorithm": name, "lr": lr, "gamma": gamma, "seed": seed},
            {"final_return": 100.0 * lr + 10.0 * (name == "a") + generator.normal()},
        )
        for name, lr, gamma, seed in product("ab", (0.1, 0.2, 0.3), (0.9, 0.99), range(5))
    ]
    found = key_effects(of_points(points))
    assert [effect.key for effect in found][-1] == "gamma"
    by_key = {effect.key: effect for effect in found}
    assert [one.value for one in by_key["lr"].values] == [0.3, 0.2, 0.1]
    assert [one.wins for one in by_key["lr"].values] == [1.0, 0.5, 0.0]
    assert [(one.best_in, one.combinations) for one in by_key["lr"].values] == [(4, 4), (0, 4), (0, 4)]
    assert by_key["algorithm"].values[0].mean - by_key["algorithm"].values[1].mean == pytest.approx(10, abs=1)
    assert all(0.3 < one.wins < 0.7 for one in by_key["gamma"].values)


def test_chances_to_win_are_means_over_the_other_samples() -> None:
    generator = np.random.default_rng(5)
    several = [generator.integers(0, 6, size=size).astype(float) for size in (1, 4, 7, 3)]
    for at, chance in enumerate(chances_to_win(several)):
        others = [wins(several[at], other).mean() for number, other in enumerate(several) if number != at]
        assert chance == pytest.approx(np.mean(others))
    assert chances_to_win([[1.0, 2.0, 3.0]] * 3) == [0.5, 0.5, 0.5]


def test_only_combinations_with_all_values_count() -> None:
    """Without that, the value that was tried on the easy setting alone would look better."""
    points = [
        ({"task": "t", "model": model, "lr": lr, "seed": seed}, {"final_return": level + seed})
        for model, lr, level in [("big", 1, 100.0), ("small", 1, 0.0), ("small", 2, 50.0), ("odd", 3, 9.0)]
        for seed in range(2)
    ]
    assert key_effects(of_points(points)) == []
    assert keys_without_effect(of_points(points)) == [("t", "model"), ("t", "lr")]
    apart = [
        (point, {**figures, "frames": 1000 if point["model"] == "big" else 10}) for point, figures in points
    ]
    alone = [one for one in apart if one[0]["lr"] == 1]  # not ranked against each other: nothing varies
    assert keys_without_effect(of_points(alone)) == []
    both = [one for one in points if one[0]["model"] != "odd"]
    both += [
        ({"task": "t", "model": "big", "lr": 2, "seed": seed}, {"final_return": 90.0 + seed})
        for seed in (0, 1)
    ]
    assert keys_without_effect(of_points(both)) == []
    longer = [({**point, "lr": 9 * point["lr"]}, {**own, "frames": 60_000}) for point, own in points]
    assert [effect.key for effect in key_effects(of_points([*both, *longer]))] == ["model", "lr"]
    assert keys_without_effect(of_points([*both, *longer])) == []
    effects = {effect.key: effect for effect in key_effects(of_points(both))}
    assert [(one.value, one.mean) for one in effects["model"].values] == [("big", 95.5), ("small", 25.5)]

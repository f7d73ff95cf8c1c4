"""Runs with identical metrics: seeds and keys that never reached the program give no verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.synthetic import create_sweep, finish, matrix_runs
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.compare import compare_by
from orchestrator.analysis.compare.wording import notes, verdict
from orchestrator.analysis.groups.grouping import Final, final_returns, groups
from orchestrator.analysis.groups.limits import unranked, warnings
from orchestrator.analysis.verdict.leaders import answers
from orchestrator.core.types import Run
from orchestrator.rundir import Row

EVAL = "eval/reward/episode_reward_mean"
NO_SEED = (
    "not ranked against each other, all runs: the seed has no effect; hand it to the program, as with {seed} "
    "in `command`: 6 seeds gave identical metrics (lr=0.1, lr=0.5)"
)


def collected_of(results: Path, value: Callable[[float, int, int], float], **matrix: Any) -> Collected:
    """Runs whose return is ``value`` of the learning rate, the seed and the step."""
    runs = matrix_runs({"lr": [0.1, 0.5], "seed": range(6), **matrix})
    sweep = create_sweep(results, "lab", runs)
    for number, run in enumerate(runs):
        finish(sweep.run(run.run_id), run, rows_of(run, value, number))
    return collect([sweep])


def rows_of(run: Run, value: Callable[[float, int, int], float], number: int) -> list[Row]:
    lr = run.overrides["lr"]
    assert isinstance(lr, float)
    of_time = {"timers/training_time": 1.0 + number, "charts/SPS": 3.0 * number, "time/time_elapsed": number}
    return [
        Row(at, 1000 * (at + 1), 5.0 * at + number, {EVAL: value(lr, run.seed, at), **of_time})
        for at in range(3)
    ]


def finals_of(collected: Collected) -> list[Final]:
    return final_returns(groups(collected), intervals=False)


def test_seeds_without_effect_count_as_one_run_and_give_no_verdict(results: Path) -> None:
    collected = collected_of(results, lambda lr, seed, at: lr + at)
    finals = finals_of(collected)
    assert [len(final.values) for final in finals] == [1, 1]
    assert unranked(finals) == [NO_SEED]
    assert any(
        "5 of 6 left out, as metrics are identical to another seed's" in one for one in warnings(finals)
    )
    [answer] = answers(finals)
    assert not answer.compared
    assert "leads" not in answer.verdict
    compared = compare_by(collected, "lr")
    assert "Final returns are not comparable, so they are not ranked" in verdict(compared)
    assert any("6 seeds gave identical metrics (lr=0.1, lr=0.5)" in note for note in notes(compared))


def test_a_key_without_effect_is_named(results: Path) -> None:
    collected = collected_of(results, lambda lr, seed, at: seed + at / 3)
    finals = finals_of(collected)
    assert [len(final.values) for final in finals] == [6, 6]
    [told] = unranked(finals)
    assert told.endswith(
        "identical metrics, seed by seed, so the keys in which they differ have no effect: lr=0.1, lr=0.5"
    )
    [answer] = answers(finals)
    assert answer.verdict.startswith("cannot tell")


def test_a_repeated_run_counts_once_and_a_policy_that_never_learns_counts_in_every_seed(
    results: Path,
) -> None:
    """Returns of 0 in every evaluation are no sign of a missing seed where other seeds differ."""
    collected = collected_of(
        results, lambda lr, seed, at: 0.0 if lr == 0.1 else float(max(1, seed) * (at + 1) + (seed == 5))
    )
    finals = finals_of(collected)
    assert [len(final.values) for final in finals] == [6, 5]
    assert unranked(finals) == []
    [answer] = answers(finals)
    assert answer.verdict == "lr=0.5 leads significantly (5 seeds)"


def test_runs_that_are_constant_in_every_seed_are_not_identical(results: Path) -> None:
    finals = finals_of(collected_of(results, lambda lr, seed, at: 0.0))
    assert [len(final.values) for final in finals] == [6, 6]
    assert unranked(finals) == []


def test_variants_that_differ_in_speed_alone_are_not_named(results: Path) -> None:
    finals = finals_of(collected_of(results, lambda lr, seed, at: lr + seed + at / 3, threads=[1, 2]))
    assert len(finals) == 4
    assert unranked(finals) == []

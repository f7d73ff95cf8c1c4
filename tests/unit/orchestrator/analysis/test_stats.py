"""Groups of seeds, curves on common frames, and intervals that are always the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import (
    COLLECTION,
    EVAL,
    create_sweep,
    finish,
    finished_sweep,
    matrix_runs,
    training_rows,
    write_attempt,
)
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.groups.curves import curves, on_common_frames
from orchestrator.analysis.groups.grouping import HUES, final_returns, groups
from orchestrator.analysis.groups.limits import provisional, warnings
from orchestrator.analysis.groups.speeds import speeds
from orchestrator.analysis.groups.summary import summary_table
from orchestrator.analysis.report.sections.costs.speed import speed_table
from orchestrator.analysis.report.sections.returns.groups import group_table
from orchestrator.analysis.statistics.bootstrap import (
    Estimate,
    bootstrap_interval,
    estimate_of,
    interquartile_mean,
)
from orchestrator.core.types import Run, RunState
from orchestrator.rundir import IndexRow, Row, SweepDir
from tests.helpers import surveyed

MATRIX = {"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], "seed": range(3)}


def sweep_of(results: Path, seeds: int = 3) -> tuple[SweepDir, list[Run]]:
    runs = matrix_runs({**MATRIX, "seed": range(seeds)})
    return create_sweep(results, "speed", runs), runs


def returns(values: dict[int, float], name: str = EVAL) -> list[Row]:
    """One row per (frames, value)."""
    return [
        Row(number, frames, frames / 100, {name: value})
        for number, (frames, value) in enumerate(values.items())
    ]


def one_group(results: Path, *histories: list[Row], **changes: Any) -> Collected:
    """A sweep of one group with these histories, one seed each."""
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(len(histories))})
    sweep = create_sweep(results, "one", runs)
    for run, history in zip(runs, histories, strict=True):
        finish(sweep.run(run.run_id), run, history, **changes)
    return collect([sweep])


# The numbers


def test_the_interquartile_mean_and_its_interval_are_rliables() -> None:
    """Numbers of rliable 1.2.0, the intervals with 20,000 resamples."""
    scores = np.random.default_rng(0).normal(size=(7, 4))
    expected = [-0.3572936067352109, -0.042317866184528576, -0.19598303971207184, 0.14250995500381872]
    assert interquartile_mean(scores) == pytest.approx(expected, abs=1e-12)
    low, high = bootstrap_interval(np.random.default_rng(3).normal(size=(10, 3)))
    assert low == pytest.approx([-0.584057, -0.694757, -0.569242], abs=0.08)
    assert high == pytest.approx([1.414422, 0.335391, 0.553241], abs=0.08)


def test_intervals_are_the_same_every_time_and_leave_numpys_state_alone() -> None:
    scores = np.random.default_rng(1).normal(size=(5, 3))
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    first = bootstrap_interval(scores)
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(2)
    second = bootstrap_interval(scores)
    assert [part.tolist() for part in first] == [part.tolist() for part in second]


def test_intervals_hold_the_estimate_and_shrink_with_seeds() -> None:
    generator = np.random.default_rng(2)
    few, many = generator.normal(size=(5, 20)), generator.normal(size=(100, 20))
    widths = []
    for scores in (few, many):
        low, high = bootstrap_interval(scores)
        value = interquartile_mean(scores)
        assert ((low <= value) & (value <= high)).all()
        widths.append(np.median(high - low))
    assert widths[0] > 2 * widths[1]


def test_many_columns_are_resampled_as_each_by_itself() -> None:
    scores = np.random.default_rng(4).normal(size=(4, 450))
    low, high = bootstrap_interval(scores)
    for column in (0, 199, 200, 449):
        alone = bootstrap_interval(scores[:, [column]])
        assert (low[column], high[column]) == (alone[0][0], alone[1][0])


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_fewer_than_four_seeds_have_no_interval(seeds: int) -> None:
    estimate = estimate_of([float(seed) for seed in range(seeds)])
    assert estimate is not None
    assert (estimate.low is None, estimate.high is None) == (seeds < 4, seeds < 4)


def test_seeds_that_agree_leave_no_doubt() -> None:
    low, high = bootstrap_interval(np.full((5, 2), 3.25))
    assert low.tolist() == high.tolist() == [3.25, 3.25]


SERIES = st.lists(st.integers(1, 1000), min_size=1, max_size=30, unique=True).map(
    lambda frames: (np.array(sorted(frames), float), np.array(sorted(frames), float) * 10)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(SERIES, min_size=1, max_size=4))
def test_common_frames_hold_values_and_extrapolate_nothing(series: list[tuple[Any, Any]]) -> None:
    frames, scores = on_common_frames(series)
    assert scores.shape == (len(series), len(frames))
    assert (np.diff(frames) > 0).all()
    for (own, values), row in zip(series, scores, strict=True):
        for point, value in zip(frames, row, strict=True):
            assert own[0] <= point <= own[-1]
            assert value == values[own <= point][-1]


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    frames = np.arange(1.0, 5001.0)
    grid, scores = on_common_frames([(frames, frames)])
    assert len(grid) <= 100
    assert (grid[0], grid[-1]) == (1, 5000)
    assert scores[0].tolist() == grid.tolist()


# Groups


def test_a_group_is_every_key_but_the_seed(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {**MATRIX, "experiment.lr": [1e-3, 1e-4]}, iterations=2)
    found = groups(collect([sweep]))
    assert [len(group.rows) for group in found] == [3, 3, 3, 3]
    assert [group.label for group in found] == [
        "mappo lr=0.001",
        "mappo lr=0.0001",
        "iql lr=0.001",
        "iql lr=0.0001",
    ]
    assert [group.task for group in found] == ["vmas/navigation"] * 4
    assert [divmod(group.number, HUES) for group in found] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_variants_of_one_algorithm_have_colours_of_their_own(results: Path) -> None:
    sweep = finished_sweep(
        results, "one", {"algorithm": ["mappo"], "experiment.lr": [1.0, 2.0]}, iterations=1
    )
    assert [group.number for group in groups(collect([sweep]))] == [0, 1]


def test_two_sweeps_are_not_thrown_together(results: Path) -> None:
    both = [finished_sweep(results, name, MATRIX, iterations=2) for name in ("old", "new")]
    found = groups(collect(both))
    assert [(group.sweep, len(group.rows)) for group in found] == [
        ("old", 3),
        ("old", 3),
        ("new", 3),
        ("new", 3),
    ]
    assert [group.label for group in found] == ["old mappo", "old iql", "new mappo", "new iql"]


def test_runs_outside_the_grid_are_in_no_group(results: Path) -> None:
    sweep, runs = sweep_of(results)
    sweep.write_index([IndexRow(run.run_id, number < 2, run.point) for number, run in enumerate(runs)])
    (group,) = groups(collect([sweep]))
    assert len(group.rows) == 2


def test_stale_results_count_only_where_there_is_nothing_else(results: Path) -> None:
    sweep, runs = sweep_of(results)
    for run in runs:
        finish(sweep.run(run.run_id), run, training_rows(run, 2), final_return=float(run.seed))
    stale = {
        run.run_id: RunState.STALE for run in runs if run.seed == 0 or run.overrides["algorithm"] == "iql"
    }
    mappo, iql = final_returns(groups(collect([sweep], surveyed(stale))))
    assert (mappo.values, mappo.note) == ((1.0, 2.0), "1 stale left out")
    assert (iql.values, iql.note) == ((0.0, 1.0, 2.0), "all 3 stale")


# Returns


def test_final_returns_without_a_number_are_left_out_and_counted(results: Path) -> None:
    sweep, runs = sweep_of(results)
    finals = {"mappo": [1.0, math.nan, 3.0], "iql": [math.nan, math.nan, None]}
    for run in runs:
        final = finals[run.overrides["algorithm"]][run.seed]
        finish(sweep.run(run.run_id), run, training_rows(run, 2), final_return=final)
    mappo, iql = final_returns(groups(collect([sweep])))
    assert mappo.values == (1.0, 3.0)
    assert mappo.note == "1 of 3 without a finite return"
    assert mappo.estimate is not None
    assert (mappo.estimate.value, mappo.estimate.n) == (2.0, 2)
    assert (iql.values, iql.estimate, iql.note) == ((), None, "3 of 3 without a finite return")


def test_one_seed_has_no_interval(results: Path) -> None:
    collected = one_group(results, returns({10: 1.0, 20: 2.0}), final_return=2.0)
    (final,) = final_returns(groups(collected))
    assert final.estimate == Estimate(2.0, None, None, 1)
    assert str(final.estimate) == "2"
    (curve,) = curves(collected, groups(collected))
    value, low, high = curve.band
    assert (len(curve.scores), low, high) == (1, None, None)
    assert value.tolist() == [1.0, 2.0]


def test_a_curve_is_of_the_evaluation_where_there_is_one(results: Path) -> None:
    with_evaluation = [
        Row(row.iteration, row.frames, 0, {**row.metrics, COLLECTION: -5.0})
        for row in returns({10: 1.0, 20: 2.0})
    ]
    collected = one_group(results, with_evaluation)
    assert [curve.metric for curve in curves(collected, groups(collected))] == [EVAL]


def test_without_evaluation_it_is_of_collection_and_nan_is_no_point(results: Path) -> None:
    history = returns({10: math.nan, 20: 2.0, 30: math.inf, 40: 4.0}, COLLECTION)
    collected = one_group(results, history)
    (curve,) = curves(collected, groups(collected))
    assert curve.metric == COLLECTION
    assert (curve.x.tolist(), curve.band[0].tolist()) == ([20, 40], [2.0, 4.0])


def test_runs_that_diverged_have_no_curve_of_another_return(results: Path) -> None:
    history = [
        Row(row.iteration, row.frames, 0, {**row.metrics, COLLECTION: 5.0})
        for row in returns({10: math.nan, 20: math.inf})
    ]
    collected = one_group(results, history)
    assert collected.runs["return_metric"].to_list() == [EVAL]
    assert curves(collected, groups(collected)) == []


def test_a_run_without_any_return_has_no_curve(results: Path) -> None:
    collected = one_group(results, returns({10: math.nan}), returns({10: 1.0}, "train/loss"))
    assert curves(collected, groups(collected)) == []


def test_a_curve_ends_with_its_shortest_seed_and_says_so(results: Path) -> None:
    long, short = returns({10: 0.0, 20: 2.0, 30: 4.0}), returns({10: 2.0, 25: 6.0})
    collected = one_group(results, long, short)
    (curve,) = curves(collected, groups(collected))
    assert curve.x.tolist() == [10, 20, 25]
    assert curve.band[0].tolist() == [1.0, 2.0, 4.0]
    assert curve.note == "seeds differ in length, cut at 25 frames"


def test_unfinished_seeds_are_drawn_only_while_none_is_finished(results: Path) -> None:
    sweep, runs = sweep_of(results, seeds=2)
    finish(sweep.run(runs[0].run_id), runs[0], returns({10: 1.0, 20: 2.0}))
    for run in runs[1:3]:
        write_attempt(sweep.run(run.run_id).attempt(1), returns({10: 9.0}))
    collected = collect([sweep])
    mappo, iql = curves(collected, groups(collected))
    assert (len(mappo.scores), mappo.unfinished, mappo.band[0].tolist()) == (1, False, [1.0, 2.0])
    assert (len(iql.scores), iql.unfinished, iql.band[0].tolist()) == (1, True, [9.0])
    assert "not finished" in iql.note
    assert "1 of 2 seeds have no values" in iql.note


def test_groups_of_different_sizes_share_a_bootstrap_without_mixing(results: Path) -> None:
    sweep, runs = sweep_of(results, seeds=5)
    for run in runs:
        if run.overrides["algorithm"] == "mappo" or run.seed < 4:
            level = 100.0 if run.overrides["algorithm"] == "mappo" else -100.0
            finish(sweep.run(run.run_id), run, returns({10: level + run.seed}), final_return=level + run.seed)
    mappo, iql = final_returns(groups(collect([sweep])))
    assert mappo.estimate is not None
    assert iql.estimate is not None
    assert (mappo.estimate.n, iql.estimate.n) == (5, 4)
    assert mappo.estimate.value == 102.0
    assert 100 <= (mappo.estimate.low or 0) <= 102 <= (mappo.estimate.high or 0) <= 104
    assert -100 <= (iql.estimate.low or 0) <= iql.estimate.value == -98.5 <= (iql.estimate.high or 0) <= -97


# In words


def test_the_summary_names_groups_states_returns_and_speed(results: Path) -> None:
    sweep, runs = sweep_of(results, seeds=2)
    speed = {
        "training_fps": 1000.0,
        "end_to_end_fps": 800.0,
        "seconds_per_iteration": 6.0,
        "collection_seconds": 1.5,
        "learning_seconds": 4.0,
    }
    for run in runs[:3]:
        told = {**speed, "provisional": run.overrides["algorithm"] == "iql"}
        finish(sweep.run(run.run_id), run, returns({10: 1.0}), final_return=1.0 + run.seed, speed=told)
    collected = collect([sweep])
    columns, rows = summary_table(collected)
    throughputs = ["training frames/s", "end-to-end frames/s"]
    assert columns == ["group", "n", "states", "final return (IQM)", *throughputs, "s/iteration"]
    assert rows == [
        ["mappo", "2", "2 done", "1.5", "1,000", "800", "6"],
        ["iql", "1", "1 pending, 1 done", "1", "1,000", "800*", "6"],
    ]
    [note] = provisional(groups(collected))
    assert note.startswith("provisional end-to-end throughput: some run has no whole cycle")
    assert note.endswith(": iql")
    found = groups(collected)
    tables = group_table(final_returns(found)), speed_table(speeds(found))
    cells = [cell.text for table in tables for row in table.rows for cell in row]
    assert (cells.count("800"), cells.count("800*")) == (2, 2)
    (first, _) = speeds(groups(collected))
    assert first.split() == (1.5, 4.0, 0.5)
    assert first.hardware == "Example CPU 3000, 1 thread"


def test_speed_is_told_apart_by_hardware(results: Path) -> None:
    sweep, runs = sweep_of(results, seeds=2)
    hosts = ({"cpu_model": "slow"}, {"cpu_model": "fast", "gpu_model": "GPU"})
    for run in runs:
        finish(sweep.run(run.run_id), run, returns({10: 1.0}), host=hosts[run.seed])
    found = [(speed.group.label, speed.hardware) for speed in speeds(groups(collect([sweep])))]
    assert found == [
        (label, hardware)
        for label in ("mappo", "iql")
        for hardware in ("GPU + fast, 1 thread", "slow, 1 thread")
    ]


def test_missing_speeds_are_blanks(results: Path) -> None:
    blank = dict.fromkeys(
        ("training_fps", "end_to_end_fps", "seconds_per_iteration", "collection_seconds", "learning_seconds")
    )
    collected = one_group(results, returns({10: 1.0}), speed=blank)
    (row,) = summary_table(collected)[1]
    assert row[4:] == ["", "", ""]
    assert speeds(groups(collected))[0].split() == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("seeds", "limit"),
    [
        (3, "fewer than 5 seeds, so there is no verdict, nor an interval below 4"),
        (4, "fewer than 5 seeds, so there is no verdict, and the 95 % intervals cover less than 95 %"),
        (9, "fewer than 10 seeds, so the 95 % intervals cover less than 95 %"),
        (10, ""),
    ],
)
def test_few_seeds_are_warned_of(results: Path, seeds: int, limit: str) -> None:
    collected = one_group(results, *[returns({10: float(seed)}) for seed in range(seeds)])
    lines = warnings(final_returns(groups(collected)))
    assert lines == ([f"{limit}: mappo (n={seeds})"] if limit else [])


def test_a_sweep_of_nothing_has_no_groups(results: Path) -> None:
    collected = collect([create_sweep(results, "empty", [])])
    assert groups(collected) == ()
    assert curves(collected, ()) == []
    assert summary_table(collected)[1] == []

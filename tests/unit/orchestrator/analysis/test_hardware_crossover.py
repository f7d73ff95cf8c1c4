"""CPU against GPU over the number of environments: where they cross, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import create_sweep, finish, matrix_runs, result_of, training_rows
from orchestrator.analysis.collect import collect
from orchestrator.analysis.groups.crossover import (
    CPU,
    GPU,
    HardwareComparison,
    SpeedLine,
    SpeedPoint,
    Winner,
    contest_of,
    contests,
)
from orchestrator.core.types import Run
from orchestrator.rundir import SweepDir

ENVIRONMENTS = "experiment.on_policy_n_envs_per_worker"
DEVICE = "experiment.train_device"
Fps = Mapping[int, float | tuple[float, ...]]


def line(kind: str, fps: Fps, threads: int = 1, *, runs: int = 5) -> SpeedLine:
    """Where fewer than ``runs`` are given, more in their middle: the spread stays."""
    given = {count: value if isinstance(value, tuple) else (value,) for count, value in fps.items()}
    each = {count: (*own, *[median(own)] * (runs - len(own))) for count, own in given.items()}
    spots = tuple(SpeedPoint(count, tuple(sorted(values))) for count, values in sorted(each.items()))
    return SpeedLine(kind, "a model", threads, "local", spots)


def contest(cpu: Fps, gpu: Fps, *, runs: int = 5) -> HardwareComparison:
    return contest_of("mappo", [line(CPU, cpu, runs=runs), line(GPU, gpu, runs=runs)])


def test_the_crossing_lies_on_straight_lines_between_what_was_measured() -> None:
    found = contest({100: 1000.0, 10_000: 1000.0}, {100: 100.0, 10_000: 10_000.0})
    assert found.outcome is Winner.GPU_FROM
    [crossing] = found.crossings
    assert crossing.at == pytest.approx(1000)
    assert found.advice == (
        "Run mappo on the GPU (1 thread, 10,000 environments): 10,000 frames/s of training; "
        "below about 1,000 environments the CPU is faster."
    )


def test_a_gpu_that_loses_at_every_size_is_told_with_its_best_figure() -> None:
    seconds_per_iteration = {CPU: 34.5, GPU: 51.6}
    fps = {kind: 6000 / seconds for kind, seconds in seconds_per_iteration.items()}
    found = contest({600: (fps[CPU],) * 5}, {600: (fps[GPU],) * 5})
    assert found.outcome is Winner.GPU_NEVER
    assert found.advice == (
        "Run mappo on the CPU (1 thread, 600 environments): 174 frames/s of training; "
        "the GPU is slower with 600 environments, at best 0.67 times as fast."
    )


def test_the_same_card_wins_from_where_more_environments_feed_it() -> None:
    cpu = {600: (174.0, 176.0), 4096: (180.0, 182.0)}
    gpu = {600: (116.0, 117.0), 4096: (420.0, 425.0)}
    found = contest(cpu, gpu)
    [crossing] = found.crossings
    assert crossing.low is not None
    assert crossing.high is not None
    assert 600 < crossing.low < crossing.at < crossing.high < 4096
    assert crossing.at == pytest.approx(1100, rel=0.05)
    assert (
        "Run mappo on the GPU (1 thread, 4,096 environments): 422 frames/s of training; below about "
        in found.advice
    )


@pytest.mark.parametrize(
    ("cpu", "gpu", "few", "figures"),
    [
        (
            {60: 100.0, 6000: 100.0},
            {60: 10.0, 6000: 1000.0},
            "one run each",
            "the lines of CPU and GPU cross at about 600 environments",
        ),
        (
            {60: (99.0, 101.0)},
            {60: (49.0, 51.0)},
            "fewer than 5 runs each",
            "the GPU was 0.50 times as fast with 60 environments",
        ),
        (
            {60: (100.0,) * 5, 600: 100.0},
            {60: (200.0,) * 5, 600: (300.0,) * 5},
            "fewer than 5 runs at 1 of 4 points",
            "the GPU was 2.00 to 3.00 times as fast with 60 to 600 environments",
        ),
        (
            {60: 100.0, 600: 200.0},
            {1000: 300.0},
            "one run each",
            "CPU and GPU were measured with different numbers of environments, so where one overtakes the "
            "other is not known",
        ),
    ],
)
def test_fewer_than_five_runs_at_a_point_give_figures_and_no_verdict(
    cpu: Fps, gpu: Fps, few: str, figures: str
) -> None:
    told = contest(cpu, gpu, runs=1).advice
    assert told.startswith(f"Too few runs to tell where to run mappo ({few}, 5 needed): the fastest was the ")
    assert told.endswith(f" frames/s of training; {figures}.")


def test_the_gpu_may_win_somewhere_and_the_cpu_still_be_the_place() -> None:
    found = contest({60: 5300.0, 6000: 1000.0}, {60: 500.0, 6000: 2000.0})
    assert (
        "Run mappo on the CPU (1 thread, 60 environments): 5,300 frames/s of training; the GPU wins from "
        "about" in found.advice
    )


def test_a_gpu_that_wins_only_below() -> None:
    found = contest({10: 100.0, 1000: 1000.0}, {10: 200.0, 1000: 500.0})
    assert found.outcome is Winner.GPU_UNTIL
    assert "the GPU wins up to about 100 environments" in found.advice


def test_a_gpu_that_always_wins() -> None:
    found = contest({10: 100.0, 100: 100.0}, {10: 200.0, 100: 300.0})
    assert found.outcome is Winner.GPU_ALWAYS
    assert "the GPU is faster with 10 to 100 environments, at least 2.00 times" in found.advice


def test_spreads_that_overlap_everywhere_are_no_difference() -> None:
    found = contest({10: (90.0, 110.0), 100: (95.0, 105.0)}, {10: (95.0, 120.0), 100: (90.0, 102.0)})
    assert found.outcome is Winner.EVEN
    assert "no clear difference between CPU and GPU with 10 to 100 environments" in found.advice


def test_a_doubtful_end_is_not_called_slower() -> None:
    found = contest({10: (100.0, 101.0), 100: (100.0, 120.0)}, {10: (50.0, 51.0), 100: (95.0, 105.0)})
    assert found.outcome is Winner.GPU_NEVER
    assert "the GPU is nowhere clearly faster with 10 to 100 environments" in found.advice


def test_two_crossings_are_both_named() -> None:
    found = contest({10: 100.0, 100: 100.0, 1000: 100.0}, {10: 50.0, 100: 200.0, 1000: 50.0})
    assert found.outcome is Winner.SEVERAL
    assert "CPU and GPU change places at about 32, 320 environments" in found.advice


def test_where_spreads_overlap_noise_makes_no_crossing() -> None:
    cpu = {60: (90.0, 100.0, 110.0), 600: (90.0, 100.0, 110.0), 6000: (99.0, 100.0, 101.0)}
    gpu = {60: (95.0, 104.0, 112.0), 600: (88.0, 96.0, 108.0), 6000: (400.0, 410.0, 420.0)}
    found = contest(cpu, gpu)
    assert (found.outcome, found.crossings) == (Winner.GPU_ALWAYS, ())
    assert "the CPU is nowhere clearly faster with 60 to 6,000 environments" in found.advice


def test_doubtful_points_between_clear_ones_widen_the_range_of_one_crossing() -> None:
    doubt = (80.0, 100.0, 125.0)
    cpu = {10: (100.0,) * 3, 100: doubt, 1000: doubt, 10_000: (100.0,) * 3}
    gpu = {10: (20.0,) * 3, 100: (85.0, 104.0, 120.0), 1000: (85.0, 96.0, 120.0), 10_000: (500.0,) * 3}
    found = contest(cpu, gpu)
    assert found.outcome is Winner.GPU_FROM
    [crossing] = found.crossings
    assert crossing.low is not None
    assert crossing.high is not None
    assert 10 < crossing.low < 100 < crossing.at < 1000 < crossing.high < 10_000


def test_one_device_has_no_crossover_and_says_so() -> None:
    found = contest_of("iql", [line(CPU, {60: 100.0, 600: 300.0}), line(CPU, {60: 120.0, 600: 310.0}, 2)])
    assert found.outcome is Winner.ONE_DEVICE
    assert found.crossings == ()
    assert found.advice.startswith(
        "Run iql on the CPU (2 threads, 600 environments): 310 frames/s of training; "
        "no GPU was measured, so there is no crossover to show"
    )


def test_devices_measured_at_different_sizes_are_not_compared_by_guessing() -> None:
    found = contest({10: 100.0, 100: 200.0}, {1000: 500.0, 10_000: 5000.0})
    assert found.outcome is Winner.APART
    assert "where one overtakes the other is not known" in found.advice


def test_between_measured_sizes_the_lines_are_straight_in_logarithms() -> None:
    found = contest({100: 10.0, 10_000: 1000.0}, {1000: 50.0})
    assert (found.first, found.last) == (1000, 1000)
    assert found.best_ratio == pytest.approx(50 / 100)


def test_threads_as_fast_as_the_best_are_named() -> None:
    lines = [line(CPU, {600: (100.0, 102.0)}), line(CPU, {600: (101.0, 104.0)}, 2)]
    assert "no clear difference to 1 thread" in contest_of("mappo", lines).advice


counts = st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True)
speeds = st.floats(0.01, 1e7)
sides = counts.flatmap(
    lambda some: st.fixed_dictionaries(
        {count: st.lists(speeds, min_size=1, max_size=3).map(tuple) for count in some}
    )
)


@given(sides, sides)
def test_whatever_was_measured_gets_a_sentence_and_nothing_is_extrapolated(cpu: Any, gpu: Any) -> None:
    found = contest(cpu, gpu)
    assert found.advice.startswith("Run mappo on the ")
    assert found.advice.endswith(".")
    first, last = max(min(cpu), min(gpu)), min(max(cpu), max(gpu))
    for crossing in found.crossings:
        assert first <= crossing.at * (1 + 1e-9)
        assert crossing.at <= last * (1 + 1e-9)
        if crossing.low is not None and crossing.high is not None:
            assert crossing.low <= crossing.high
    best = max(value for side in (cpu, gpu) for several in side.values() for value in several)
    assert found.best[1].middle <= best


@given(st.integers(2, 10**5), st.integers(2, 1000), st.floats(0.1, 0.9))
def test_a_crossing_is_found_wherever_it_is(first: int, times: int, part: float) -> None:
    """Speeds that grow with different powers of the environments meet where they are made to."""
    last = first * times
    meet = math.exp((1 - part) * math.log(first) + part * math.log(last))
    found = contest(
        {count: 100 * (count / meet) ** 0.2 for count in (first, last)},
        {count: 100 * (count / meet) ** 0.9 for count in (first, last)},
    )
    [crossing] = found.crossings
    assert crossing.at == pytest.approx(meet, rel=1e-6)


# From the table of runs


def lab(results: Path, runs: list[Run], *, name: str = "lab", facts: bool = True) -> SweepDir:
    """CPU: 1,000 frames/s whatever the environments; GPU: a frame/s for each."""
    sweep = create_sweep(results, name, runs)
    for run in runs:
        gpu, count = run.overrides.get(DEVICE) == "cuda", run.overrides[ENVIRONMENTS]
        assert isinstance(count, int)
        fps = (float(count) if gpu else 1000.0 * run.threads) * (1 + run.seed / 100)
        rows = training_rows(run, 2)
        told = {"environments": count, "devices": ["cuda" if gpu else "cpu"]} if facts else {}
        finish(
            sweep.run(run.run_id),
            run,
            rows,
            speed={**result_of(run, rows)["speed"], "training_fps": fps, "end_to_end_fps": 0.8 * fps},
            **told,
        )
    return sweep


def test_results_become_lines_by_what_they_tell_of_themselves(results: Path) -> None:
    matrix = {"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], DEVICE: ["cpu", "cuda"]}
    runs = matrix_runs({**matrix, ENVIRONMENTS: [100, 10_000], "threads": [1, 2], "seed": range(2)})
    found = contests(collect([lab(results, runs)]))
    assert [one.label for one in found] == ["mappo", "iql"]
    assert [one.label for one in found[0].lines] == [
        "CPU, 1 thread",
        "CPU, 2 threads",
        "GPU, 1 thread",
        "GPU, 2 threads",
    ]
    assert found[0].lines[1].spots[0].fps == pytest.approx((2000.0, 2020.0))
    [crossing] = found[0].crossings
    assert crossing.at == pytest.approx(2000)


def test_a_setting_that_is_not_the_machines_is_a_contest_of_its_own(results: Path) -> None:
    matrix = {
        "algorithm": ["mappo"],
        "experiment.lr": [0.1, 0.2],
        DEVICE: ["cpu", "cuda"],
        ENVIRONMENTS: [10, 10_000],
    }
    found = contests(collect([lab(results, matrix_runs(matrix))]))
    assert [one.label for one in found] == ["mappo lr=0.1", "mappo lr=0.2"]
    assert [one.outcome for one in found] == [Winner.GPU_FROM] * 2


def test_what_grows_with_the_environments_does_not_part_the_line(results: Path) -> None:
    runs = [
        run
        for run in matrix_runs(
            {ENVIRONMENTS: [10, 10_000], "experiment.batch": [60, 60_000], "algorithm": ["mappo"]}
        )
        if (run.overrides[ENVIRONMENTS] == 10) == (run.overrides["experiment.batch"] == 60)
    ]
    [found] = contests(collect([lab(results, runs)]))
    assert [spot.environments for spot in found.lines[0].spots] == [10, 10_000]


def test_a_sweep_on_the_cpu_and_one_on_the_gpu_make_one_curve(results: Path) -> None:
    sweeps = [
        lab(
            results,
            matrix_runs({"algorithm": ["mappo"], DEVICE: [device], ENVIRONMENTS: [100, 10_000]}),
            name=f"on_{device}",
        )
        for device in ("cpu", "cuda")
    ]
    [found] = contests(collect(sweeps))
    assert found.crossings[0].at == pytest.approx(1000)


def test_results_that_do_not_tell_their_environments_are_left_out(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], ENVIRONMENTS: [10, 100]})
    assert contests(collect([lab(results, runs, facts=False)])) == []


def test_what_others_trained_is_on_no_line(results: Path) -> None:
    """Nobody knows their machine, nor their threads."""
    matrix = {"algorithm": ["mappo"], DEVICE: ["cpu", "cuda"], ENVIRONMENTS: [100, 10_000]}
    sweeps = [lab(results, matrix_runs(matrix), name=name) for name in ("lab", "theirs")]
    [found] = contests(replace(collect(sweeps), others=("theirs",)))
    assert {len(spot.fps) for one in found.lines for spot in one.spots} == {1}
    assert contests(replace(collect(sweeps), others=("lab", "theirs"))) == []


def test_nothing_trained_is_no_contest(results: Path) -> None:
    sweep = create_sweep(results, "lab", matrix_runs({"algorithm": ["mappo"], ENVIRONMENTS: [10]}))
    assert contests(collect([sweep])) == []

"""Scaling over actors: which runs make a line, what an iteration goes to, and up to where doubling pays."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import create_sweep, finish, matrix_runs, result_of
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.compare import compare_by
from orchestrator.analysis.compare.wording import verdict
from orchestrator.analysis.groups.scaling import ACTORS, PARTS, THREADS, scaling_lines
from orchestrator.analysis.statistics.amdahl import WORTH, Amdahl, fit, pays_up_to
from orchestrator.core.types import Run
from orchestrator.rundir import Row, SweepDir

SIZES = (1, 2, 4, 8)


def fps(actors: int, serial: float, alone: float = 1000.0) -> float:
    return alone / (serial + (1 - serial) / actors)


@given(st.floats(0.0, 0.9), st.floats(10, 1e6))
def test_the_fit_recovers_the_serial_fraction(serial: float, alone: float) -> None:
    found = fit({size: [fps(size, serial, alone)] for size in SIZES})
    assert found is not None
    assert found.fraction == pytest.approx(serial, abs=1e-6)
    assert found.fps(3) == pytest.approx(fps(3, serial, alone))
    assert (found.low, found.high, round(found.off, 6)) == (None, None, 0)


def test_the_interval_of_noisy_runs_holds_the_fraction() -> None:
    noise = random.Random(1)
    held = 0
    for _ in range(40):
        sizes = {size: [fps(size, 0.1) * noise.gauss(1, 0.05) for _ in range(3)] for size in SIZES}
        found = fit(sizes)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.1 <= found.high
    assert held >= 32, "of 40: intervals of few runs are somewhat short"


@pytest.mark.parametrize(
    ("speeds", "fraction"), [((100.0, 210.0, 450.0), 0.0), ((100.0, 90.0, 80.0), 1.0)], ids=["more", "less"]
)
def test_no_part_is_negative(speeds: Sequence[float], fraction: float) -> None:
    found = fit({size: [speed] for size, speed in zip(SIZES, speeds, strict=False)})
    assert found is not None
    assert found.fraction == pytest.approx(fraction)


def test_two_sizes_are_not_fitted() -> None:
    assert fit({1: [100.0, 101.0], 2: [190.0]}) is None


@given(st.floats(0.001, 0.999))
def test_doubling_pays_up_to_the_limit(serial: float) -> None:
    limit = pays_up_to(serial)
    law = Amdahl(serial, 1 - serial, None, None, 0)
    assert law.fps(2 * limit) / law.fps(limit) == pytest.approx(1 + WORTH)
    assert pays_up_to(0.0) == float("inf")


Seconds = Mapping[str, float]
HALVES = {"environment_time": 0.2, "inference_time": 0.3, "collection_time": 0.5, "training_time": 0.5}


def trained(
    results: Path,
    runs: Sequence[Run] | Mapping[str, Sequence[Any]],
    speed: Callable[[Run], float],
    seconds: Seconds = HALVES,
    name: str = "lab",
    **changes: Any,
) -> Collected:
    """These runs of ppo, or those of a matrix, at a speed each; the first iteration of each warms up."""
    runs = matrix_runs(runs, "ppo") if isinstance(runs, Mapping) else runs
    sweep = create_sweep(results, name, runs)
    timers = {f"timers/{name}": value for name, value in seconds.items()}
    warm = dict.fromkeys(timers, 100.0)
    for run in runs:
        rows = [Row(at, 6000 * at, float(at), timers if at > 1 else warm) for at in (1, 2, 3)]
        told = {**result_of(run, rows)["speed"], "training_fps": speed(run)}
        finish(sweep.run(run.run_id), run, rows, speed=told, config={"actors": actors_of(run)}, **changes)
    return collect([sweep])


def actors_of(run: Run) -> int:
    actors = run.overrides.get("actors", 1)
    assert isinstance(actors, int)
    return actors


def amdahl(serial: float) -> Callable[[Run], float]:
    return lambda run: fps(actors_of(run), serial) * (1 + run.seed / 100)


def test_a_line_over_actors_with_speed_up_efficiency_and_a_verdict(results: Path) -> None:
    matrix = {"mode": ["parallel"], "actors": [1, 2, 4], "seed": range(3)}
    [line] = scaling_lines(trained(results, matrix, amdahl(0.2)))
    assert (line.label, line.over) == ("ppo", ACTORS)
    assert [(point.number, point.cores, len(point.fps)) for point in line.points] == [
        (1, 1, 3),
        (2, 2, 3),
        (4, 4, 3),
    ]
    last = line.points[-1]
    assert last.speed_up is not None
    assert (last.speed_up.value, last.speed_up.n) == (pytest.approx(2.5), 3)
    assert last.efficiency == pytest.approx(2.5 / 4)
    assert last.interval == pytest.approx((2500, 2550))
    assert line.verdict.startswith("serial fraction 20.0% [")
    assert "beyond 2 actors you pay for waiting (" in line.verdict


@pytest.mark.parametrize(
    ("serial", "sizes", "words"),
    [
        (0.0, (1, 2, 4), "doubling pays up to 4 actors, the most measured, and beyond"),
        (0.05, (1, 2, 4), "beyond 9 actors you pay for waiting; no more than 4 were measured"),
        (0.5, (1, 2, 4), "beyond 1 actor you pay for waiting"),
        (0.5, (2, 4, 8), "beyond 2 actors you pay for waiting"),
        (0.1, (1, 2), "no fit of Amdahl's law, which takes 3 numbers of actors: here are 2"),
    ],
)
def test_a_verdict_says_how_far_it_reaches(
    results: Path, serial: float, sizes: Sequence[int], words: str
) -> None:
    [line] = scaling_lines(trained(results, {"actors": sizes}, amdahl(serial)))
    assert line.verdict.endswith(words)


def test_more_actors_that_are_slower_are_told(results: Path) -> None:
    [line] = scaling_lines(trained(results, {"actors": [1, 2, 4]}, lambda run: 100.0 / actors_of(run)))
    assert line.verdict == "training is no faster with more actors: beyond 1 actor you pay for waiting"


def test_a_bad_fit_is_told(results: Path) -> None:
    speeds = {1: 100.0, 2: 190.0, 4: 100.0}
    [line] = scaling_lines(trained(results, {"actors": [1, 2, 4]}, lambda run: speeds[actors_of(run)]))
    assert "% off)" in line.verdict


def test_lines_are_over_actors_for_each_number_of_threads_and_else_over_threads(results: Path) -> None:
    matrix = {"network": ["mlp", "transformer"], "threads": [1, 2], "actors": [1, 2]}
    found = scaling_lines(trained(results, matrix, amdahl(0.1)))
    assert [(line.label, [point.cores for point in line.points]) for line in found] == [
        ("mlp threads=1", [1, 2]),
        ("mlp threads=2", [2, 4]),
        ("transformer threads=1", [1, 2]),
        ("transformer threads=2", [2, 4]),
    ]
    [line] = scaling_lines(trained(results / "other", {"threads": [1, 2]}, amdahl(0.1)))
    assert (line.over, [point.number for point in line.points]) == (THREADS, [1, 2])


def test_a_mode_that_follows_from_the_actors_parts_no_line(results: Path) -> None:
    def modes(**actors: Sequence[int]) -> list[Run]:
        parted = ({"mode": [mode], "actors": own} for mode, own in actors.items())
        return [run for matrix in parted for run in matrix_runs(matrix, "ppo")]

    [line] = scaling_lines(trained(results, modes(sequential=[1], parallel=[2, 4]), amdahl(0.1)))
    assert [point.number for point in line.points] == [1, 2, 4]
    trained(results, modes(sequential=[1], parallel=[1, 2]), amdahl(0.1), name="other")
    both = scaling_lines(collect([SweepDir(results, "lab"), SweepDir(results, "other")]))
    assert [[point.number for point in line.points] for line in both] == [[1, 2, 4], [1, 2]]
    assert [len(point.fps) for point in both[1].points] == [1, 1]


@pytest.mark.parametrize("matrix", [{"actors": [2], "seed": [0, 1]}, {"lr": [0.1, 0.2]}])
def test_one_size_is_no_line(results: Path, matrix: Mapping[str, Sequence[Any]]) -> None:
    assert scaling_lines(trained(results, matrix, amdahl(0.1))) == []


def test_runs_without_timers_of_environments_make_no_line(results: Path) -> None:
    seconds = {"collection_time": 0.5, "training_time": 0.5}
    assert scaling_lines(trained(results, {"threads": [1, 2]}, amdahl(0.1), seconds)) == []


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (HALVES, (0.2, 0.3, 0.5, 0, 0, 0)),
        ({**HALVES, "collection_time": 0.6, "training_time": 0.4}, (0.2, 0.3, 0.4, 0, 0, 0.1)),
        # Waiting within learning, and before it.
        ({**HALVES, "all_reduce_time": 0.1, "waiting_time": 0.2}, (0.2, 0.3, 0.2, 0.1, 0.2, 0)),
        ({**HALVES, "environment_time": 0.1, "waiting_time": 0.1}, (0.1, 0.3, 0.5, 0, 0.1, 0)),
        # Actors that play while the learner learns: more seconds than the clock's.
        (
            {
                "environment_time": 0.5,
                "inference_time": 0.3,
                "actor_waiting_time": 0.2,
                "collection_time": 0.2,
                "waiting_time": 0.2,
                "training_time": 1.0,
                "all_reduce_time": 0.2,
            },
            (0.25, 0.15, 0.4, 0.1, 0.1, 0),
        ),
    ],
)
def test_shares_of_an_iteration_add_up(results: Path, seconds: Seconds, expected: Sequence[float]) -> None:
    [line] = scaling_lines(trained(results, {"actors": [1, 2]}, amdahl(0.1), seconds))
    for point in line.points:
        assert [point.shares[part] for part in PARTS] == pytest.approx(expected)
        assert sum(point.shares.values()) == pytest.approx(1)


def test_the_share_of_the_peak_is_of_the_cores_that_there_were(results: Path) -> None:
    told = {"flop_per_frame": 1e8, "machine_flops_per_core": 1e12, "cores": 2}
    [line] = scaling_lines(trained(results, {"actors": [1, 2, 4]}, lambda _: 5000.0, **told))
    assert [point.peak for point in line.points] == pytest.approx([0.5, 0.25, 0.25])


def test_processes_that_learn_beside_the_actors_have_cores_too(results: Path) -> None:
    [line] = scaling_lines(trained(results, {"actors": [1, 2]}, lambda _: 5000.0, processes=4))
    assert [point.cores for point in line.points] == [4, 4]


def test_a_key_that_actors_decide_is_compared_by_actors(results: Path) -> None:
    runs = [*matrix_runs({"mode": ["sequential"]}), *matrix_runs({"mode": ["parallel"], "actors": [2, 4]})]
    collected = trained(results, runs, amdahl(0.1))
    assert verdict(compare_by(collected, "mode")).endswith(
        "nothing can be compared: each value of actors has one mode, so compare by actors."
    )
    assert compare_by(collected, "actors").together == ("mode",)


def test_actors_of_the_configuration_are_compared_where_the_grid_leaves_them_out(results: Path) -> None:
    runs = [*matrix_runs({"mode": ["sequential"]}), *matrix_runs({"mode": ["parallel"], "actors": [2]})]
    found = compare_by(trained(results, runs, amdahl(0.1)), "actors")
    assert (found.values, found.together) == (("1", "2"), ("mode",))

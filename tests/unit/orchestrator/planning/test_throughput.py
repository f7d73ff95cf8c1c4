"""The two throughputs of a run: what they are sums over, and that they do not depend on where it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning.throughput.measure import (
    COLLECTION_TIMER,
    END_TO_END,
    EVALUATION_TIMER,
    LEARNING_TIMER,
    TRAINING,
    TRAINING_CLOCK,
    Window,
    comparable,
    throughput,
)
from orchestrator.rundir import Row
from orchestrator.rundir.records.result import Throughput

FRAMES = 6000


def history(
    iterations: int,
    *,
    period: int = 2,
    offset: int = 0,
    collection: float = 0.75,
    learning: float = 1.25,
    evaluation: float = 4 / 3,
    warm_up: float = 5.0,
) -> list[Row]:
    """Iterations as BenchMARL logs them: every ``period``-th one evaluates, and so does the very first."""
    rows, wall_time = [], 0.0
    for iteration in range(1, iterations + 1):
        metrics = {COLLECTION_TIMER: collection, LEARNING_TIMER: learning}
        wall_time += collection + learning + (warm_up if iteration == 1 else 0.0)
        if iteration == 1 or (iteration + offset) % period == 0:
            wall_time += evaluation
            metrics |= {EVALUATION_TIMER: evaluation, "eval/reward/episode_reward_mean": 1.0}
        rows.append(Row(iteration, iteration * FRAMES, wall_time, metrics))
    return rows


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("iterations", [9, 10, 11, 12, 100, 101])
def test_ten_iterations_and_eleven_at_the_same_speeds_have_the_same_figures(
    iterations: int, offset: int
) -> None:
    found = throughput([history(iterations, offset=offset)])
    assert found.training_fps == pytest.approx(3000)
    # Two iterations of two seconds and one evaluation make a cycle.
    assert found.end_to_end_fps == pytest.approx(2 * FRAMES / (2 * 2 + 4 / 3))
    assert found.seconds_per_iteration == pytest.approx(8 / 3)
    assert (found.collection_seconds, found.learning_seconds) == pytest.approx((0.75, 1.25))


seconds = st.floats(1e-3, 1e3)


@given(
    st.integers(1, 8), st.integers(0, 7), st.integers(0, 40), st.integers(0, 40), seconds, seconds, seconds
)
def test_where_a_run_ends_does_not_change_its_figures(
    period: int, offset: int, some: int, others: int, collection: float, learning: float, evaluation: float
) -> None:
    """From two evaluations after the first iteration on."""
    one, other = (
        throughput(
            [
                history(
                    2 * period + 1 + more,
                    period=period,
                    offset=offset,
                    collection=collection,
                    learning=learning,
                    evaluation=evaluation,
                )
            ]
        )
        for more in (some, others)
    )
    cycle = period * (collection + learning) + evaluation
    for found in (one, other):
        assert found.training_fps == pytest.approx(FRAMES / (collection + learning), rel=1e-6)
        assert found.end_to_end_fps == pytest.approx(period * FRAMES / cycle, rel=1e-6)
        assert found.end_to_end_fps <= found.training_fps * (1 + 1e-6)
        assert found.steady_iterations % period == 0


def test_every_attempts_first_iteration_is_left_out() -> None:
    first, second = history(4, period=1), history(4, period=1, learning=3.25, warm_up=500.0)
    found = throughput([first, second])
    # Two whole cycles of each: 2 s and 4 s of training, and an evaluation.
    assert found.steady_iterations == 4
    assert found.training_fps == pytest.approx(FRAMES / 3)
    assert found.end_to_end_fps == pytest.approx(FRAMES / (3 + 4 / 3))


def test_an_interruption_does_not_change_the_figures() -> None:
    whole, pieces = history(30), [history(13, offset=1), history(2), history(18)]
    for name in (TRAINING, END_TO_END):
        assert getattr(throughput(pieces), name) == pytest.approx(getattr(throughput([whole]), name))


def test_without_a_whole_cycle_all_iterations_after_the_first_count() -> None:
    found = throughput([history(5, period=4)])
    assert found.steady_iterations == 4
    assert found.training_fps == pytest.approx(3000)
    assert found.end_to_end_fps == pytest.approx(4 * FRAMES / (4 * 2 + 4 / 3))
    assert found.provisional  # another length has another figure
    assert throughput([history(6, period=4)]).end_to_end_fps != pytest.approx(found.end_to_end_fps)
    assert not throughput([history(5, period=4), history(10, period=4)]).provisional
    silent = [Row(row.iteration, row.frames, row.wall_time, {"loss": 1.0}) for row in history(5, period=4)]
    assert not throughput([silent]).provisional


@pytest.mark.parametrize("attempts", [[], [[]], [history(1)], [history(1), history(1)]])
def test_without_a_second_iteration_there_are_no_figures(attempts: Sequence[Sequence[Row]]) -> None:
    assert throughput(attempts) == Throughput()


def test_a_program_without_timers_has_the_end_to_end_throughput_alone() -> None:
    rows = [Row(step, step * 100, step * 2.0, {"return": 1.0}) for step in range(1, 6)]
    found = throughput([rows])
    assert (found.training_fps, found.end_to_end_fps) == (None, pytest.approx(50))
    partly = [*rows, Row(6, 600, 12.0, {COLLECTION_TIMER: 0.1, LEARNING_TIMER: 0.1})]
    assert throughput([partly]).training_fps is None


def test_a_program_marks_its_evaluations_by_the_names_of_its_metrics() -> None:
    rows, wall_time = [], 0.0
    for step in range(1, 12):
        wall_time += 3.0 if step % 2 else 1.0
        rows.append(Row(step, step * 100, wall_time, {"eval/return": 1.0} if step % 2 else {"loss": 1.0}))
    ends = [throughput([rows[:end]]).end_to_end_fps for end in (5, 8, 9, 10, 11)]
    assert ends == [pytest.approx(50)] * 5


@given(
    st.lists(
        st.tuples(
            st.integers(-10, 10**6), st.floats(), st.floats(), st.floats(), st.sampled_from(["eval/x", "y"])
        ),
        max_size=8,
    )
)
def test_no_log_whatever_it_holds_makes_a_speed_that_is_none(
    lines: list[tuple[int, float, float, float, str]],
) -> None:
    rows = [
        Row(1, frames, wall_time, {COLLECTION_TIMER: collection, LEARNING_TIMER: learning, name: 0.0})
        for frames, wall_time, collection, learning, name in lines
    ]
    found = throughput([rows])
    for fps in (found.training_fps, found.end_to_end_fps):
        assert fps is None or 0 < fps < math.inf


def test_row_by_row_it_is_the_same() -> None:
    rows, window = history(23, period=3), Window()
    for number, row in enumerate(rows, start=1):
        window.add(row)
        assert window.figures == throughput([rows[:number]])


def test_the_one_figure_is_never_set_against_the_other() -> None:
    both, one = {TRAINING: 3000.0, END_TO_END: 2000.0}, {TRAINING: None, END_TO_END: 2000.0}
    neither = {TRAINING: None, END_TO_END: None}
    assert comparable([both, both]) == TRAINING
    assert comparable([both, neither]) == TRAINING
    assert comparable([both, one]) == END_TO_END


def test_time_in_which_both_go_on_counts_once() -> None:
    metrics = {COLLECTION_TIMER: 2.0, LEARNING_TIMER: 2.0, TRAINING_CLOCK: 2.5}
    rows = [Row(number, 100 * number, 3.0 * number, metrics) for number in range(1, 4)]
    found = throughput([rows])
    assert found.training_fps == 40.0
    assert (found.collection_seconds, found.learning_seconds) == (2.0, 2.0)

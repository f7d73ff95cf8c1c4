"""Runs that train for so many minutes instead of so many frames."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.training.context import BadConfigError
from jobs.training.time_budget import TimeBudget, checked_minutes
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.rundir import Row, RunDir
from tests.resuming import Attempt, Kill, Nursery, bits, train_plainly
from tests.tiny_benchmarl import NAVIGATION_IQL

with warnings.catch_warnings():  # what these say of each other at import is theirs to say
    warnings.simplefilter("ignore")
    from jobs.trainers.benchmarl.configuration.config import compose
    from jobs.trainers.benchmarl.configuration.time_bound import unbounded

pytestmark = pytest.mark.filterwarnings("ignore")

# Many times what an iteration takes, on slow machines too.
SECONDS = 4.0
TIMED: dict[str, Any] = {
    **{key: value for key, value in NAVIGATION_IQL.items() if "max_n" not in key},
    "minutes": SECONDS / 60,
}
# The same as BenchMARL knows it: exploration is annealed over a third of its default's frames.
BOUNDED = {**NAVIGATION_IQL, "experiment.exploration_anneal_frames": 1_000_000}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def trained(rows: Sequence[Row]) -> float:
    return sum(row.metrics["timers/collection_time"] + row.metrics["timers/training_time"] for row in rows)


def assert_ended_in_time(run: RunDir) -> None:
    rows = run.history()
    assert trained(rows[:-1]) < SECONDS <= trained(rows)
    assert [row.iteration for row in rows] == list(range(len(rows)))


@pytest.mark.nightly(but=["training"])
@pytest.mark.parametrize("where", ["training", "after rename"])
def test_what_was_trained_before_a_kill_counts_and_what_was_lost_does_not(
    nursery: Nursery, tmp_path: Path, where: str
) -> None:
    attempt = Attempt(str(tmp_path / "run"), TIMED, kill=Kill(where, 1))
    assert nursery.run(attempt) == -9
    assert nursery.run(Attempt(str(tmp_path / "run"), TIMED)) == 0
    run = RunDir(tmp_path / "run")
    assert_ended_in_time(run)
    assert len(run.attempts()) == 2
    plain = [bits(metrics) for metrics in train_plainly(BOUNDED, 0, tmp_path)]
    both = min(len(plain), len(run.history()))
    assert both > 1, "beyond what the first attempt did"
    assert [bits(row.metrics) for row in run.history()][:both] == plain[:both]


def test_a_run_that_was_killed_before_its_result_trains_no_more(nursery: Nursery, tmp_path: Path) -> None:
    """It ended with the iteration in which the time was up, and its last checkpoint is there."""
    folder = tmp_path / "run"
    assert nursery.run(Attempt(str(folder), TIMED)) == 0
    assert_ended_in_time(RunDir(folder))
    before = RunDir(folder).history()
    (folder / "outcome.json").unlink()
    assert nursery.run(Attempt(str(folder), TIMED)) == 0
    assert RunDir(folder).history() == before
    assert json.loads((folder / "outcome.json").read_text())["files"]


def test_frames_that_are_set_as_well_end_it_if_they_come_first(nursery: Nursery, tmp_path: Path) -> None:
    overrides = {**TIMED, "minutes": 60, "experiment.max_n_iters": 2, "experiment.max_n_frames": None}
    assert nursery.run(Attempt(str(tmp_path / "run"), overrides)) == 0
    assert len(RunDir(tmp_path / "run").history()) == 2


def test_exploration_is_annealed_as_without_it() -> None:
    run = BENCHMARL.identify(TIMED, 0, 1)
    composed = compose(run)
    endless = unbounded(composed.experiment, run, on_policy=False)
    assert endless.get_max_n_frames(False) > 10**12
    anneal = composed.experiment.get_exploration_anneal_frames(False)
    assert endless.get_exploration_anneal_frames(False) == anneal == 1_000_000


def test_the_time_is_part_of_what_a_run_is() -> None:
    runs = [BENCHMARL.identify({**TIMED, "minutes": minutes}, 0, 1) for minutes in (1, 2)]
    assert len({run.run_id for run in runs}) == 2
    assert len({compose(run).config_hash for run in runs}) == 2
    assert [BENCHMARL.frames_of(run) for run in runs] == [None, None]


@pytest.mark.parametrize("found", [0, -1, True, "ten", float("nan"), float("inf"), [1]])
def test_what_is_no_time_is_refused(found: Any) -> None:
    with pytest.raises(BadConfigError, match=r"minutes: found .*, expected minutes of training above 0"):
        checked_minutes("minutes", found)


def test_progress_is_told_in_frames_that_it_will_have() -> None:
    budget = TimeBudget(1.0)
    assert budget.total_frames(0) is None
    budget.spend(Row(0, 600, 9.0, {"timers/collection_time": 5.0, "timers/training_time": 1.0}))
    assert budget.total_frames(600) == 6000
    assert not budget.over
    budget.spend(Row(1, 1200, 80.0, {"timers/collection_time": 50.0, "timers/training_time": 4.0}))
    assert budget.over
    assert TimeBudget(None).total_frames(600) is None


def test_time_in_which_a_trainer_collects_and_learns_at_once_counts_once() -> None:
    both = {"timers/collection_time": 50.0, "timers/training_time": 40.0}
    budget = TimeBudget(1.0)
    budget.spend(Row(0, 600, 70.0, {**both, "timers/training_clock": 55.0}))
    assert budget.spent == 55.0
    budget.spend(Row(1, 1200, 78.0, {}))  # without timers: the time between rows
    assert budget.spent == 63.0

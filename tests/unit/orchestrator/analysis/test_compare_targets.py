"""Targets against each other: pairs, ratios, intervals, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import create_sweep, finish, training_rows
from orchestrator.analysis.collect import collect
from orchestrator.analysis.compare import KeyComparison, target_comparisons
from orchestrator.analysis.compare.model import DOLLARS
from orchestrator.analysis.compare.table import columns, sections
from orchestrator.analysis.compare.wording import notes, verdict
from orchestrator.analysis.statistics.ratios import Ratio
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources, Run
from orchestrator.rundir import Event, Holder, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, STARTED
from tests.helpers import enter

PRICES = {"laptop": 0.1, "cluster": 0.4}
Speed = Callable[[Run], float]


def compared(
    results: Path,
    speed: Speed,
    seeds: int = 6,
    *,
    paired: bool = True,
    targets: Any = None,
    intervals: bool = False,
) -> KeyComparison:
    """Two algorithms on two targets, each run as fast as ``speed`` says, in frames/s."""
    runs = [
        BENCHMARL.identify({"task": "vmas/navigation", "algorithm": algorithm}, seed, 1, target)
        for algorithm in ("mappo", "iql")
        for seed in range(seeds)
        for target in (PRICES if paired else [list(PRICES)[seed % 2]])
    ]
    sweep = create_sweep(results, "race", runs)
    for run in runs:
        fps = speed(run)
        measured = {"training_fps": 1.25 * fps, "end_to_end_fps": fps, "seconds_per_iteration": 6000 / fps}
        where = targets(run) if targets else [run.target]
        finish(sweep.run(run.run_id), run, training_rows(run, 4), speed=measured, targets=where)
    submit(sweep, runs)
    found = target_comparisons([sweep], collect([sweep]), intervals=intervals)
    return found["race"]


def ratios(found: KeyComparison, value: str = "cluster") -> tuple[Ratio, Ratio]:
    """The speed of a target against the baseline, and its frames per dollar."""
    (one,) = [one for one in found.overall if one.value == value]
    assert one.speed is not None
    assert one.efficiency is not None
    return one.speed, one.efficiency


def submit(sweep: SweepDir, runs: list[Run]) -> None:
    """On record: a job of four runs at once for each target, at its price."""
    for number, (target, price) in enumerate(PRICES.items(), 1):
        own = tuple(run.run_id for run in runs if run.target == target)
        job = Job(f"{number:04d}-0001", sweep.name, target, own, 4, Resources())
        data: Mapping[str, Any] = {
            "time": 0.0,
            "target": target,
            "on": target,
            "trainer": "benchmarl",
            "jobs": [plain(job)],
            "job_ids": {},
            "skipped": {},
            "cost": {"price_per_hour": price},
        }
        enter(sweep, "submission", data)
        holder = Holder("node1", "another boot", "", 1, 0)
        journal = sweep.take_token(job.token, Event(STARTED, 0.0, data={"holder": plain(holder)}))
        assert journal is not None
        for run_id in own:
            journal.append(Event(CLAIMED, 1.0, run_id, 1))


def noisy(**times: float) -> Speed:
    """Frames/s that differ with the algorithm, the target and by chance."""

    def speed(run: Run) -> float:
        chance = random.Random(run.run_id).gauss(0, 0.02)
        usual = 1000 if run.overrides["algorithm"] == "mappo" else 4000
        return usual * times[run.target or ""] * (1 + chance)

    return speed


def test_who_won_by_how_much_beyond_the_noise(results: Path) -> None:
    found = compared(results, noisy(laptop=1.0, cluster=1.5))
    speed, money = ratios(found)
    assert (speed.better, speed.other, speed.n) == ("cluster", "laptop", 12)
    assert speed.value == pytest.approx(1.5, rel=0.02)
    assert speed.low is not None
    assert speed.high is not None
    assert 1.4 < speed.low < speed.value < speed.high < 1.6
    assert speed.beyond_noise
    assert found.per == "dollar"
    assert 1 / money.value == pytest.approx(0.4 / 0.1 / 1.5, rel=0.02)
    told = verdict(found)
    assert "cluster trains 1.51 times as fast as laptop" in told
    assert "a million frames cost 2.66 times as much on cluster as on laptop (95 % interval 2.61 to" in told
    assert told.count("12 pairs: significant") == 2


def test_the_cells_are_by_configuration_with_the_money_of_a_full_job(results: Path) -> None:
    found = compared(results, lambda run: 2000.0 if run.target == "cluster" else 1000.0, intervals=True)
    assert [(one.label, cell.value) for one in found.combinations for cell in one.cells] == [
        ("mappo", "laptop"),
        ("mappo", "cluster"),
        ("iql", "laptop"),
        ("iql", "cluster"),
    ]
    cell = found.combinations[0].cells[1]
    assert cell.figures["training_fps"] == (2500.0,) * 6
    assert cell.middle("end_to_end_fps") == 2000
    assert cell.middle(DOLLARS) == pytest.approx(0.4 / 3600 / (4 * 2000) * 1e6)
    assert cell.final is not None
    assert cell.final.low is not None
    shown = dict(zip(columns(found, full=True), sections(found, full=True)[0][1][1], strict=True))
    assert shown["target"].text == "cluster"
    assert shown["training\nframes/s"].text == "2,500"
    assert shown["speed-up"].text == "2.00 [2.00, 2.00]"
    assert shown["$ per million\nframes"].text == "$0.014"
    assert any("the price of a job and hour" in note for note in notes(found))


def test_equal_targets_are_told_to_be_equal(results: Path) -> None:
    found = compared(results, noisy(laptop=1.0, cluster=1.0), seeds=8)
    speed, _ = ratios(found)
    assert speed.value == pytest.approx(1, rel=0.02)
    assert not speed.beyond_noise
    assert "not significant" in verdict(found)
    assert verdict(found).startswith("No clear difference in speed between")


def test_few_pairs_cannot_tell(results: Path) -> None:
    found = compared(results, noisy(laptop=1.0, cluster=3.0), seeds=2)
    assert ratios(found)[0].beyond_noise is None
    assert "4 pairs of 2 seeds: too few to tell from noise (5 needed)" in verdict(found)


def test_without_pairs_configurations_are_compared(results: Path) -> None:
    speed, _ = ratios(compared(results, noisy(laptop=1.0, cluster=2.0), paired=False))
    assert (speed.paired, speed.n) == (False, 2)
    assert speed.value == pytest.approx(2, rel=0.05)


def test_runs_that_moved_are_left_out(results: Path) -> None:
    def where(run: Run) -> list[str]:
        return [str(run.target), "cluster"] if run.target == "laptop" and run.seed == 0 else [str(run.target)]

    found = compared(results, noisy(laptop=1.0, cluster=1.5), targets=where)
    assert found.moved == 2
    assert "left out: 2 runs that moved from one target to another" in notes(found)
    assert found.values == ("laptop", "cluster")
    assert ratios(found)[0].n == 10


def test_what_each_target_trained_by_chance_is_not_taken_for_the_same(results: Path) -> None:
    runs = [BENCHMARL.identify({"algorithm": name}, seed, 1) for name in ("mappo", "iql") for seed in (0, 1)]
    sweep = create_sweep(results, "race", runs)
    for run in runs:
        where = "laptop" if run.overrides["algorithm"] == "mappo" else "cluster"
        finish(sweep.run(run.run_id), run, training_rows(run, 4), targets=[where])
    found = target_comparisons([sweep], collect([sweep]))["race"]
    assert verdict(found).startswith("No two finished runs differ in nothing but target")


def test_one_target_is_no_comparison(results: Path) -> None:
    run = BENCHMARL.identify({"algorithm": "mappo"}, 0, 1)
    sweep = create_sweep(results, "alone", [run])
    finish(sweep.run(run.run_id), run, training_rows(run, 4), targets=["local"])
    assert target_comparisons([sweep], collect([sweep])) == {}

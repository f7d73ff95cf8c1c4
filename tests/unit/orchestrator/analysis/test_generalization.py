"""Returns on unseen levels and on those of training, and the gap, where the truth is known."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import EVAL, create_sweep, finish, finished_sweep, matrix_runs
from orchestrator.analysis.cells import Table
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.groups.generalization import Generalization, generalizations
from orchestrator.analysis.groups.grouping import groups
from orchestrator.analysis.groups.summary import summary_table
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.export import table_files
from orchestrator.analysis.report.sections import sections
from orchestrator.analysis.run_table import GAP, LEVEL_METRICS, TRAINING_LEVELS, RunReading
from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from orchestrator.ui.cli import app
from tests.simulated import of_readings

FRAMES = 1000
# Returns of evaluations of a run, on unseen levels and on those of training.
Curve = Sequence[tuple[float, float]]


def history(curve: Curve) -> list[Row]:
    return [
        Row(
            at,
            (at + 1) * FRAMES,
            float(at),
            {
                EVAL: unseen,
                LEVEL_METRICS[TRAINING_LEVELS]: training,
                LEVEL_METRICS[GAP]: training - unseen,
            },
        )
        for at, (unseen, training) in enumerate(curve)
    ]


def trained(*curves: Curve) -> Collected:
    """A run for each curve, all of one group."""
    return of_readings(
        [
            RunReading(
                "s",
                IndexRow(f"{seed:016x}", True, {"task": "procgen/maze", "algorithm": "ppo", "seed": seed}),
                RunState.DONE,
                "",
                {"final_return": curve[-1][0], "frames": len(curve) * FRAMES},
                history(curve),
            )
            for seed, curve in enumerate(curves)
        ]
    )


def only(collected: Collected) -> Generalization:
    [found] = generalizations(groups(collected))
    return found


def test_each_seed_has_both_returns_and_their_gap() -> None:
    found = only(trained([(5.0, 6.0)], [(3.0, 9.0)], [(4.0, 6.0)]))
    assert (found.unseen.values, found.training.values) == ((5.0, 3.0, 4.0), (6.0, 9.0, 6.0))
    assert found.gap.values == (1.0, 6.0, 2.0)
    assert [sample.estimate.value for sample in (found.unseen, found.training, found.gap)] == [4, 7, 3]
    assert not found.note


@pytest.mark.parametrize(("seeds", "has_interval"), [(3, False), (4, True)])
def test_an_interval_takes_four_seeds(seeds: int, has_interval: bool) -> None:
    found = only(trained(*[[(float(seed), 2.0 * seed)] for seed in range(seeds)]))
    for sample in (found.unseen, found.training, found.gap):
        assert (sample.estimate.low is not None) == has_interval
        assert (sample.estimate.high is not None) == has_interval
        assert sample.estimate.n == seeds


def test_the_interval_of_the_gap_is_that_of_seeds_in_pairs() -> None:
    """Seeds differ much, their gaps little: these are not resampled independently of each other."""
    levels = np.random.default_rng(0).normal(50, 30, size=10)
    found = only(trained(*[[(level, level + 2 + 0.1 * (seed % 2))] for seed, level in enumerate(levels)]))
    gap = found.gap.estimate
    assert gap.low is not None
    assert gap.high is not None
    assert 1.99 < gap.low < gap.value < gap.high < 2.11


def test_intervals_hold_the_true_gap() -> None:
    random, held = np.random.default_rng(1), 0
    for _ in range(60):
        gaps = random.normal(1.5, 1.0, size=10)
        estimate = only(trained(*[[(5.0, 5.0 + gap)] for gap in gaps])).gap.estimate
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= 1.5 <= estimate.high
    assert held >= 50


def test_the_measure_of_a_final_return_is_that_of_the_gap() -> None:
    collected = trained([(float(at), 3.0 * at) for at in range(31)])
    for measure, unseen in (("last", 30.0), ("mean:5", 28.0), ("area", 15.0)):
        found = only(measured_by(collected, FinalMeasure.parse(measure)))
        assert found.unseen.values == (pytest.approx(unseen),)
        assert found.training.values == (pytest.approx(3 * unseen),)
        assert found.gap.values == (pytest.approx(2 * unseen),)


def test_a_seed_without_both_returns_is_left_out_and_counted() -> None:
    diverged = [(1.0, 2.0), (math.nan, math.nan)]
    found = only(trained([(5.0, 6.0)], diverged, [(4.0, 6.0)]))
    assert (found.unseen.values, found.gap.values) == ((5.0, 4.0), (1.0, 2.0))
    assert found.note == "1 of 3 without finite returns on both"


def test_runs_evaluated_on_their_own_levels_have_none(results: Path) -> None:
    sweep = finished_sweep(results, "speed", {"algorithm": ["mappo"], "seed": range(2)})
    collected = collect([sweep])
    assert generalizations(groups(collected)) == []
    assert collected.runs[GAP].null_count() == 2
    columns, _ = summary_table(collected)
    assert not any("gap" in column for column in columns)
    assert "generalization" not in {section.id for section in sections(report_data([sweep], collected))}


def test_tables_commands_and_report_have_it(results: Path) -> None:
    tasks = ["procgen/maze", "procgen/heist"]
    runs = matrix_runs({"task": tasks, "seed": range(4)}, "ppo")
    sweep = create_sweep(results, "levels", runs)
    for run in runs:
        unseen = 4.0 + run.seed
        level = 1.5 if run.overrides["task"] == "procgen/maze" else 2.5
        finish(sweep.run(run.run_id), run, history([(unseen, unseen + level)] * 3))

    def said(*command: str) -> str:
        result = CliRunner().invoke(app, [*command, "levels", "--results", str(results)])
        assert result.exit_code == 0, result.output
        return result.output

    told = json.loads(said("collect", "--json"))["groups"]
    assert [(one["final_return"], one[TRAINING_LEVELS], one[GAP]) for one in told] == [
        (5.5, 7.0, 1.5),
        (5.5, 8.0, 2.5),
    ]
    assert "gap" in said("collect")
    rows = (sweep.table_csv).read_text().splitlines()
    assert {"training_levels_return", "generalization_gap"} < {*rows[0].split(",")}
    collected = collect([sweep])
    found = {section.id: section for section in sections(report_data([sweep], collected))}
    section = found["generalization"]
    files = dict(table_files([section]))
    table = list(csv.DictReader(files["table-generalization.csv"].decode().splitlines()))
    told = [
        (one["task"], one["n"], *(one[f"levels of training, IQM{end}"] for end in ("", "_low", "_high")))
        for one in table
    ]
    assert told == [
        ("procgen/maze", "4", "7.0", "5.5", "8.5"),
        ("procgen/heist", "4", "8.0", "6.5", "9.5"),
    ]
    assert [(one["gap, IQM"], one["gap, IQM_low"]) for one in table] == [("1.5", "1.5"), ("2.5", "2.5")]
    assert b"procgen/heist" in files["table-generalization.tex"]
    assert [picture.name for picture in section.pictures] == ["generalization-1", "generalization-2"]
    assert "gap: levels of training less unseen levels" in section.pictures[0].vector.svg
    [table_of_runs] = [block for block in found["runs"].blocks if isinstance(block, Table)]
    assert {"on levels of training", "gap"} < {column.name for column in table_of_runs.columns}

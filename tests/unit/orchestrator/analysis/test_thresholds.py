"""Times to a threshold on curves that reach it at a known time, or never."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import COLLECTION, EVAL, create_sweep, finish, matrix_runs
from orchestrator.analysis.cells import MISSING, Table
from orchestrator.analysis.collect import collect
from orchestrator.analysis.groups.grouping import final_returns, groups
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.drawing.plotting import LIGHT
from orchestrator.analysis.report.sections.costs import cost, thresholds
from orchestrator.analysis.verdict.cost_front import CostClass, threshold_classes
from orchestrator.analysis.verdict.thresholds import TimeToThreshold, times_to_threshold
from orchestrator.rundir import Row, SweepDir
from orchestrator.ui.cli import app

LENGTH = 20


def sweep_of(results: Path, steps: dict[str, list[int | None]], tasks: Sequence[str] = ("t",)) -> SweepDir:
    """Runs whose return jumps from 0 to 10 at this evaluation, one every 1000 frames and 60 s, or never."""
    seeds = max(map(len, steps.values()))
    runs = matrix_runs({"task": list(tasks), "algorithm": list(steps), "seed": range(seeds)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        step = steps[str(run.overrides["algorithm"])][run.seed]
        reached = LENGTH + 1 if step is None else step
        rows = [
            Row(at, 1000 * at, 60.0 * at, {EVAL: 10.0 if at >= reached else 0.0, "loss": run.seed})
            for at in range(1, LENGTH + 1)
        ]
        finish(sweep.run(run.run_id), run, rows)
    return sweep


def times(sweep: SweepDir, threshold: float | None = None) -> list[TimeToThreshold]:
    collected = collect([sweep])
    finals = final_returns(groups(collected), intervals=False)
    return times_to_threshold(collected, finals, {(sweep.name, "x"): 1.0}, threshold)


def test_times_are_those_of_the_jumps_and_censored_seeds_are_later_than_all_others(results: Path) -> None:
    sweep = sweep_of(results, {"fast": [4, 5, 6, 7, 8], "slow": [10, None, 12, None, None]})
    fast, slow = times(sweep)
    assert (fast.threshold, fast.frames.reached, fast.frames.median, fast.seconds.median) == (9, 5, 6000, 360)
    assert fast.frames.interval is not None
    assert 4000 <= fast.frames.interval[0] <= 6000 <= fast.frames.interval[1] <= 8000
    assert (slow.frames.reached, slow.frames.median) == (2, math.inf)
    assert slow.frames.trained == 1000 * LENGTH


def test_a_threshold_that_is_given_counts_for_every_task(results: Path) -> None:
    sweep = sweep_of(results, {"fast": [4, 5, 6], "slow": [10, 11, 12]})
    assert [one.frames.reached for one in times(sweep, 10.5)] == [0, 0]
    assert [(one.threshold, one.frames.median) for one in times(sweep, 2.0)] == [(2, 5000), (2, 11000)]


def test_the_page_shows_what_is_censored_as_censored(results: Path) -> None:
    sweep = sweep_of(results, {"fast": [4, 5, 6, 7, 8], "slow": [10, None, 12, None, None]})
    command = ["report", "speed", "--results", str(results)]
    assert CliRunner().invoke(app, command).exit_code == 0
    page = (sweep.report / "index.html").read_text()
    row = page.partition("Table of times to a threshold")[2].partition("</table>")[0].rpartition("<tr>")[2]
    for cell in ("slow", "2 of 5", "> 20k", "> 20:00"):
        assert f">{cell.replace('>', '&gt;')}</td>" in row
    assert "90% of the way" in page
    assert CliRunner().invoke(app, [*command, "--threshold", "3"]).exit_code == 0
    assert "The threshold is the one of --threshold." in (sweep.report / "index.html").read_text()


def test_a_threshold_for_runs_without_evaluations_has_an_explanation(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(2)})

    def page(name: str, metrics: dict[str, str], *options: str) -> str:
        sweep = create_sweep(results, name, runs)
        for run in runs:
            metric = metrics[str(run.overrides["algorithm"])]
            rows = [Row(at, 1000 * at, 60.0 * at, {metric: float(at)}) for at in range(1, 4)]
            finish(sweep.run(run.run_id), run, rows)
        result = CliRunner().invoke(app, ["report", name, "--results", str(results), *options])
        assert result.exit_code == 0, result.output
        return (sweep.report / "index.html").read_text()

    without = {"mappo": COLLECTION, "iql": COLLECTION}
    assert "Time to a threshold" not in page("usual", without)
    told = page("chosen", without, "--threshold", "2")
    assert "No time to a return of 2 is known: no finished run was evaluated in training." in told
    assert "a program logs eval/return." in told
    told = page("mixed", {"mappo": EVAL, "iql": COLLECTION})
    assert "Left out, without evaluations in training: iql." in told


def fronts(sweep: SweepDir, dollars_per_hour: dict[str, float] | None = None) -> list[CostClass]:
    collected = collect([sweep])
    hourly = {
        (sweep.name, row["run_id"]): dollars_per_hour[row["algorithm"]]
        for row in collected.runs.iter_rows(named=True)
        if dollars_per_hour is not None
    }
    finals = final_returns(groups(collected), intervals=False)
    return threshold_classes(finals, times_to_threshold(collected, finals, hourly, 9.0))


def told(found: CostClass) -> list[tuple[str, float, bool, bool]]:
    return [
        (one.final.group.point["algorithm"], round(found.cost(one), 9), one.censored, one.on_front)
        for one in found.members
    ]


def test_a_variant_that_did_not_reach_the_threshold_is_a_bound_and_on_no_front(results: Path) -> None:
    """In dollars its bound is the lowest cost of all."""
    steps = {"fast": [4, 5, 6], "slow": [10, 10, 10], "lucky": [2, None, None]}
    sweep = sweep_of(results, steps)
    (found,) = fronts(sweep)
    assert not found.priced
    assert found.threshold == 9
    assert told(found) == [
        ("fast", 300, False, True),
        ("slow", 600, False, False),
        ("lucky", 1200, True, False),
    ]
    in_seconds, in_dollars = fronts(sweep, {"fast": 60.0, "slow": 6.0, "lucky": 1.0})
    assert told(in_seconds) == told(found)
    assert told(in_dollars) == [
        ("slow", 1, False, True),
        ("fast", 5, False, False),
        ("lucky", round(1 / 3, 9), True, False),
    ]


def test_nobody_at_the_threshold_is_no_front(results: Path) -> None:
    assert fronts(sweep_of(results, {"fast": [None], "slow": [None]})) == []


def test_a_bound_is_drawn_hollow_and_named_with_its_sign(results: Path) -> None:
    sweep = sweep_of(results, {"fast": [4, 5, 6], "slow": [8, 9, 9], "lucky": [2, None, None]})
    section = cost.section(report_data([sweep], replace(collect([sweep]), threshold=9.0)))
    assert section is not None
    _, drawn = section.pictures
    (on,) = drawn.draw(LIGHT).axes
    marks = {mark.get_xdata()[0]: mark for mark in on.lines if len(mark.get_xdata()) == 1}  # type: ignore[index,arg-type]
    hollow = {at: mark.get_markerfacecolor() == LIGHT.paper for at, mark in marks.items()}
    assert hollow == {5.0: False, 9.0: False, 20.0: True}
    assert "Not reached: lucky: 3.333 for > 20:00" in drawn.alt
    assert "On the front: fast: 10 for 5:00." in drawn.alt
    legend = [text.get_text() for text in on.figure.legends[0].get_texts()]
    assert "lucky (> 20:00)" in legend


@pytest.mark.parametrize("untimed", [["t"], ["t", "u"]], ids=["a task", "all"])
def test_costs_until_a_return_are_drawn_without_costs_of_whole_runs(
    results: Path, untimed: list[str]
) -> None:
    sweep = sweep_of(results, {"fast": [4, 5], "slow": [8, 9]}, tasks=["t", "u"])
    collected = collect([sweep])
    wall_time = pl.when(pl.col("task").is_in(untimed)).then(None).otherwise(pl.col("wall_time"))
    collected = replace(collected, runs=collected.runs.with_columns(wall_time=wall_time), threshold=9.0)
    section = cost.section(report_data([sweep], collected))
    assert section is not None
    of_runs = {name: ["cost-1"] for name in {"t", "u"} - {*untimed}}
    for number, task in enumerate(["t", "u"], 1):
        names = [one.name for one in section.pictures if one.title == task]
        assert names == [*of_runs.get(task, []), f"threshold-{number}"]
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == [2] * len(of_runs)


def test_of_unknown_wall_times_frames_alone_are_told(results: Path) -> None:
    """A group with one such run has no times either: they would be of its other seeds alone."""
    steps: dict[str, list[int | None]] = {"a": [4, 5], "b": [8, 9], "dark": [4, None], "one": [None, None]}
    sweep = sweep_of(results, steps)
    collected = collect([sweep])
    untimed = [
        run_id
        for (_, run_id), point in collected.points.items()
        if point["algorithm"] == "dark" or (point["algorithm"], point["seed"]) == ("one", 0)
    ]
    wall_time = pl.when(pl.col("run_id").is_in(untimed)).then(None).otherwise(pl.col("wall_time"))
    metrics = collected.metrics.with_columns(wall_time=wall_time)
    data = report_data([sweep], replace(collected, metrics=metrics, threshold=9.0))
    table, *_ = thresholds.section(data).blocks  # type: ignore[union-attr]
    assert isinstance(table, Table)
    cells = {row[1].text: (row[3].text, row[5].text == MISSING) for row in table.rows}
    assert cells == {
        "a": ("2 of 2", False),
        "b": ("2 of 2", False),
        "dark": ("1 of 2", True),
        "one": ("0 of 2", True),
    }
    (on_front,) = threshold_classes(data.finals, data.times)
    assert [name for name, *_ in told(on_front)] == ["a", "b"]


def test_no_number_is_no_threshold(results: Path) -> None:
    sweep_of(results, {"fast": [4]})
    said = CliRunner().invoke(app, ["report", "speed", "--results", str(results), "--threshold", "nan"])
    assert said.exit_code != 0
    assert "--threshold: found nan, expected a return" in f"{said.output} {said.exception}"


@pytest.mark.parametrize("seeds", [3, 4])
def test_below_four_seeds_a_time_has_no_interval(results: Path, seeds: int) -> None:
    (found,) = times(sweep_of(results, {"fast": [4, 5, 6, 7][:seeds]}))
    assert (found.frames.interval is None) == (seeds < 4)

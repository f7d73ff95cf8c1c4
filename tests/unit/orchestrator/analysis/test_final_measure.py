"""What counts as a final return, on curves of which the truth is known, and through the commands."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import COLLECTION, EVAL, create_sweep, finish, matrix_runs
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.grouping import groups
from orchestrator.analysis.groups.limits import SINGLE, SINGLE_IN_TRAINING, single_values
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
from orchestrator.api import Launched
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from orchestrator.ui.cli import app
from tests.simulated import of_readings

if TYPE_CHECKING:
    from orchestrator.control.flow import Flow

FRAMES = 1000


def trained(*curves: Sequence[float | None], metric: str = EVAL, trainer: str = "benchmarl") -> Collected:
    """A run for each curve: its evaluations, one every 1000 frames; None is a line without one."""
    readings = []
    for seed, curve in enumerate(curves):
        history = [
            Row(at, (at + 1) * FRAMES, float(at), {} if value is None else {metric: value})
            for at, value in enumerate(curve)
        ]
        finite = [value for value in curve if value is not None and math.isfinite(value)]
        facts = {"final_return": finite[-1] if finite else None, "frames": len(curve) * FRAMES}
        index = IndexRow(f"{seed:016x}", True, {"algorithm": "mappo", "seed": seed})
        readings.append(RunReading("s", index, RunState.DONE, "", facts, history))
    return of_readings(readings, trainer)


def finals(collected: Collected, measure: str) -> list[float | None]:
    return measured_by(collected, FinalMeasure.parse(measure)).runs["final_return"].to_list()


def test_each_measure_of_a_known_curve() -> None:
    collected = trained([float(value) for value in range(31)])
    assert finals(collected, "last") == [30.0]
    assert finals(collected, "mean:5") == [28.0]
    assert finals(collected, "mean:100") == [25.0]  # at most a third: the last eleven
    assert finals(collected, "area") == pytest.approx([15.0])


def test_a_short_run_is_not_judged_by_its_beginning() -> None:
    assert finals(trained([0.0, 9.0]), "mean:5") == [9.0]
    assert finals(trained([0.0, 1.0, 8.0, 9.0]), "mean:5") == [8.5]
    assert finals(trained([4.0]), "area") == [4.0]


def test_the_default_does_not_hang_on_one_lucky_evaluation() -> None:
    """Of equal runs with noisy evaluations it scatters half as much or less than the last one."""
    curves = np.random.default_rng(0).normal(10, 1, size=(400, 20)).tolist()
    collected = trained(*curves)
    last, mean = (np.std(finals(collected, name)) for name in ("last", "mean:5"))
    assert mean < 0.5 * last
    lucky = trained([*[1.0] * 19, 5.0], [2.0] * 20)
    assert finals(lucky, "last") == [5.0, 2.0]
    assert finals(lucky, "mean:5") == pytest.approx([1.8, 2.0])


def test_a_run_that_diverged_has_no_final_return() -> None:
    """Its last finite evaluation would stand for it otherwise."""
    collected = trained([1.0, 2.0, 3.0, math.nan], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, math.inf])
    for measure in ("last", "mean:2", "area"):
        first, second, third = finals(collected, measure)
        assert [math.isfinite(value or 0.0) for value in (first, second, third)] == [False, True, False]


def test_iterations_without_an_episode_are_left_out_of_collection_returns() -> None:
    assert finals(trained([1.0, 2.0, 3.0, math.nan], metric=COLLECTION), "last") == [3.0]


def test_a_return_of_a_program_that_ends_as_nan_or_infinite_diverged() -> None:
    """A line without the key is one in which nothing was measured."""
    curves = ([1.0, 2.0, math.nan], [1.0, math.inf, math.inf], [1.0, math.nan, 3.0], [math.inf])
    collected = trained(*curves, metric="return", trainer="command")
    for measure in ("last", "mean:2", "area"):
        found = finals(collected, measure)
        assert [math.isfinite(value or 0.0) for value in found] == [value == 3.0 for value in (0, 0, 3.0, 0)]
    assert collected.runs["return_metric"].to_list() == ["return"] * 4
    collected = trained([1.0, 2.0, None], metric="return", trainer="command")
    assert finals(collected, "last") == [2.0]


def test_an_infinite_return_of_collection_diverged() -> None:
    found = finals(trained([1.0, 2.0, math.inf], [1.0, 2.0, math.inf, math.nan], metric=COLLECTION), "last")
    assert [math.isnan(value or 0.0) for value in found] == [True, True]


def test_evaluations_of_a_program_are_its_return() -> None:
    rows = [
        Row(
            at, (at + 1) * FRAMES, float(at), {"return": 9.0, "eval/return": float(at), "eval/episodes": 20.0}
        )
        for at in range(3)
    ]
    index = IndexRow("0" * 16, True, {"algorithm": "mappo", "seed": 0})
    reading = RunReading("s", index, RunState.DONE, "", {"final_return": 2.0, "frames": 3000}, rows)
    runs = measured_by(of_readings([reading], "command"), FinalMeasure.parse("last")).runs
    wanted = runs.select("return_metric", "final_return", "evaluation_episodes", "evaluation_interval")
    assert wanted.row(0) == ("eval/return", 2.0, 20, 1000.0)


def test_commands_take_and_name_the_measure(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(2)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        level = 3.0 if run.overrides["algorithm"] == "mappo" else 5.0
        rows = [
            Row(at, (at + 1) * FRAMES, float(at), {EVAL: level + at, "loss": run.seed}) for at in range(20)
        ]
        finish(sweep.run(run.run_id), run, rows)

    def said(*command: str) -> str:
        result = CliRunner().invoke(app, [*command, "--results", str(results)])
        assert result.exit_code == 0, result.output
        return result.output

    told = json.loads(said("collect", "speed", "--json"))
    assert told["final"].startswith("the mean of the last 5 evaluations")
    assert [row["final_return"] for row in told["groups"]] == [20, 22]
    told = json.loads(said("collect", "speed", "--json", "--final", "last"))
    assert (told["final"], told["groups"][0]["final_return"]) == ("the last evaluation", 22)
    assert told["answers"][0]["leaders"] == ["iql", "mappo"]
    assert "final return: the area under the curve" in said(
        "compare", "speed", "--by", "algorithm", "--final", "area"
    )
    said("report", "speed", "--final", "last")
    assert "Final return of a run: the last evaluation." in (sweep.report / "index.html").read_text()
    said("report", "speed")
    assert (
        "Final return of a run: the mean of the last 5 evaluations"
        in (sweep.report / "index.html").read_text()
    )


def test_returns_of_training_are_not_called_evaluations() -> None:
    def said(*metrics: str, measure: str = "mean:5") -> str:
        readings = [
            RunReading(
                "s",
                IndexRow(f"{seed:016x}", True, {"seed": seed}),
                RunState.DONE,
                "",
                {"final_return": 1.0},
                [Row(0, FRAMES, 1.0, {metric: 1.0})],
            )
            for seed, metric in enumerate(metrics)
        ]
        return measured_by(of_readings(readings), FinalMeasure.parse(measure)).final

    assert said(EVAL, EVAL) == "the mean of the last 5 evaluations, or of the last third if these are fewer"
    for measure in ("mean:5", "last", "area"):
        told = said(COLLECTION, measure=measure)
        assert "training return" in told
        assert "evaluations" not in told
        assert told.endswith("; no run was evaluated in training")
    assert said(EVAL, COLLECTION).endswith("; of runs without evaluations, the same of training returns")


def test_a_final_return_of_one_training_return_is_not_called_an_evaluation() -> None:
    found = groups(measured_by(trained([1.0, 2.0], metric=COLLECTION), FinalMeasure.parse("mean:5")))
    assert single_values(found) == [f"{SINGLE_IN_TRAINING}: mappo"]


def test_the_tables_say_what_the_final_return_is_and_keep_the_last_one() -> None:
    collected = trained([float(value) for value in range(31)], [1.0, 2.0, math.nan], [7.0])
    columns = ("last_return", "final_measure", "final_values", "evaluation_interval")
    runs = measured_by(collected, FinalMeasure.parse("mean:5")).runs
    assert [list(row) for row in runs.select(columns).iter_rows()] == [
        [30.0, "mean:5", 5, 1000.0],
        [2.0, "mean:5", None, None],
        [7.0, "mean:5", 1, None],
    ]
    names = runs.columns
    assert names[names.index("final_return") :][: 1 + len(columns)] == ["final_return", *columns]
    again = measured_by(measured_by(collected, FinalMeasure.parse("area")), FinalMeasure.parse("mean:5"))
    assert again.runs.equals(runs)
    by_last = measured_by(collected, FinalMeasure.parse("last")).runs
    assert by_last["final_values"].to_list() == [1, None, 1]
    assert by_last["final_return"].to_list()[::2] == by_last["last_return"].to_list()[::2] == [30.0, 7.0]


def test_files_and_python_have_the_final_return_that_the_commands_tell(results: Path) -> None:
    runs = matrix_runs({"algorithm": ["mappo"], "seed": range(2)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        rows = [Row(at, (at + 1) * FRAMES, float(at), {EVAL: float(at)}) for at in range(20)]
        finish(sweep.run(run.run_id), run, rows)

    def files(*options: str) -> list[list[object]]:
        command = ["collect", "speed", "--json", "--results", str(results), *options]
        told = json.loads(CliRunner().invoke(app, command).output)
        wanted = ("final_return", "last_return", "final_measure")
        found = [
            [list(row) for row in table.select(wanted).iter_rows()]
            for table in (pl.read_csv(sweep.table_csv), pl.read_parquet(sweep.table_parquet))
        ]
        assert found[0] == found[1]
        assert found[0][0][0] == told["groups"][0]["final_return"]
        return found[0]

    assert files() == [[17.0, 19.0, "mean:5"]] * 2
    assert files("--final", "last") == [[19.0, 19.0, "last"]] * 2
    # Neither reads more of a launched sweep than its folder.
    launched = Launched(sweep, flow=cast("Flow", SimpleNamespace(sweep_dir=sweep)))
    assert launched.collect().runs["final_return"].to_list() == [17.0, 17.0]
    assert launched.collect(final="last").runs["final_return"].to_list() == [19.0, 19.0]


def test_a_final_return_of_one_evaluation_has_a_warning(results: Path) -> None:
    """Up to three evaluations the last third is the last one alone."""
    runs = matrix_runs({"algorithm": ["mappo", "iql"], "seed": range(2)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        number = 3 if run.overrides["algorithm"] == "mappo" else 4
        rows = [Row(at, (at + 1) * FRAMES, float(at), {EVAL: float(at)}) for at in range(number)]
        finish(sweep.run(run.run_id), run, rows, frames=4 * FRAMES)
    warning = "the final return rests on a single evaluation, as runs have so few: mappo"

    def notes(*options: str) -> list[str]:
        command = ["collect", "speed", "--json", "--results", str(results), *options]
        return json.loads(CliRunner().invoke(app, command).output)["notes"]

    assert warning in notes()
    assert not any("single evaluation" in note for note in notes("--final", "last"))
    CliRunner().invoke(app, ["report", "speed", "--results", str(results)])
    assert warning[1:] in (sweep.report / "index.html").read_text()

    def compared(*options: str) -> list[str]:
        command = ["compare", "speed", "--by", "algorithm", "--json", "--results", str(results), *options]
        return json.loads(CliRunner().invoke(app, command).output)["notes"]

    assert f"{SINGLE}: speed mappo" in compared()
    assert not any("single evaluation" in note for note in compared("--final", "last"))


@pytest.mark.parametrize("measure", ["best", "mean:0", "mean:", "mean:x", ""])
def test_an_unknown_measure_is_refused(results: Path, measure: str) -> None:
    create_sweep(results, "speed", matrix_runs({"algorithm": ["mappo"], "seed": [0]}))
    result = CliRunner().invoke(app, ["report", "speed", "--results", str(results), "--final", measure])
    assert result.exit_code != 0
    said = f"{result.output} {result.exception}"
    assert f"--final: found {measure!r}, expected last, mean:K or area" in said


@pytest.mark.parametrize(
    ("measure", "level"),
    [("threshold", "RETURN"), ("threshold:-1.5", "-1.5"), ("time-to-threshold", "RETURN")],
)
@pytest.mark.parametrize("command", ["collect", "report", "compare"])
def test_a_time_to_a_threshold_is_refused_with_the_command_that_shows_it(
    results: Path, command: str, measure: str, level: str
) -> None:
    create_sweep(results, "speed", matrix_runs({"algorithm": ["mappo"], "seed": [0]}))
    by = ["--by", "algorithm"] if command == "compare" else []
    result = CliRunner().invoke(app, [command, "speed", *by, "--results", str(results), "--final", measure])
    error = result.exception
    assert isinstance(error, OrchestrateError)
    assert f"--final: found {measure!r}, but the time to a threshold is a cost" in str(error)
    assert error.hint is not None
    assert error.hint.endswith(f"orchestrate report SWEEP --threshold {level}")

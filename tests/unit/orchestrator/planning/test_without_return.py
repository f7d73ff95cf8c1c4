"""Finished runs without a return: the metric that is expected, and what was found instead."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import create_sweep, finish, matrix_runs
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.types import RunState
from orchestrator.planning import without_return
from orchestrator.planning.without_return import of_survey
from orchestrator.rundir import Row, SweepDir
from orchestrator.status.survey import RunStatus
from orchestrator.ui.cli import app

EXPECTED = "expected the metric eval/return, eval/reward/episode_reward_mean or return"


def logged(results: Path, *metrics: dict[str, float]) -> SweepDir:
    """Finished runs of a program with these metrics in their only line."""
    runs = [COMMAND.identify({"command": ["true"]}, seed, 1) for seed in range(len(metrics))]
    sweep = create_sweep(results, "mine", runs)
    for run, own in zip(runs, metrics, strict=True):
        finish(sweep.run(run.run_id), run, [Row(1, 1000, 1.0, own)], final_return=own.get("return"))
    return sweep


def statuses(sweep: SweepDir) -> dict[str, RunStatus]:
    return {run_id: RunStatus(run_id, RunState.DONE) for run_id in sweep.run_ids()}


def test_the_end_of_a_sweep_names_the_metrics_that_were_found(results: Path) -> None:
    sweep = logged(results, *[{"reward": 1.0, "timers/collection_time": 1.0}] * 2)
    assert of_survey(sweep, statuses(sweep)) == f"2 finished runs logged no return: {EXPECTED}, found reward"


def test_a_return_that_is_not_finite_is_one(results: Path) -> None:
    sweep = logged(results, {"return": float("nan")})
    assert of_survey(sweep, statuses(sweep)) == ""


def test_diverged_runs_are_not_counted_wherever_they_stand(results: Path) -> None:
    nan = {"return": float("nan")}
    sweep = logged(results, nan, {"loss": 1.0}, nan)
    for order in permutations(statuses(sweep).items()):
        assert of_survey(sweep, dict(order)) == f"1 finished run logged no return: {EXPECTED}, found loss"


def test_not_all_of_many_runs_are_read(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_return, "_MOST_READ", 2)
    sweep = logged(results, *[{"loss": 1.0}] * 3)
    told = of_survey(sweep, statuses(sweep))
    assert told == f"at least 2 finished runs logged no return: {EXPECTED}, found loss"


def test_runs_elsewhere_are_left_alone(results: Path) -> None:
    sweep = create_sweep(results, "mine", matrix_runs({"algorithm": ["mappo"], "seed": [0]}))
    assert of_survey(sweep, statuses(sweep)) == ""


def test_collect_and_the_page_name_them_too(results: Path) -> None:
    sweep = logged(results, {"loss": 1.0}, {}, {"return": 2.0}, {"return": float("inf")})

    def run(*command: str) -> str:
        result = CliRunner().invoke(app, [*command, "mine", "--results", str(results)])
        assert result.exit_code == 0, result.output
        return result.output

    lacking = f"2 finished runs logged no return: {EXPECTED}, found loss; --return NAME chooses one"
    diverged = "the last value of return is not finite, so these runs diverged: 1 of mine"
    notes = json.loads(run("collect", "--json"))["notes"]
    assert lacking in notes
    assert diverged in notes
    run("report")
    page = (sweep.report / "index.html").read_text()
    assert lacking in page
    assert diverged in page

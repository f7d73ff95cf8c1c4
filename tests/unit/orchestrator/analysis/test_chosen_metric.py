"""Any recorded metric in the place of the return, through the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import polars as pl
import pytest
from markupsafe import Markup
from typer.testing import CliRunner

from benchmarks.synthetic import EVAL, create_sweep, finish, matrix_runs
from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.api import Launched
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import Row, SweepDir
from orchestrator.ui.cli import app

if TYPE_CHECKING:
    from orchestrator.control.flow import Flow

SEEDS = 6
# The loss in the end, by algorithm: the lower one belongs to the lower return.
LOSSES = {"iql": 0.25, "mappo": 0.75}


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    runs = matrix_runs({"algorithm": list(LOSSES), "seed": range(SEEDS)})
    sweep = create_sweep(results, "speed", runs)
    for run in runs:
        level = LOSSES[str(run.overrides["algorithm"])]
        rows = [
            Row(at, (at + 1) * 1000, float(at), {EVAL: level, "eval/loss": level + 9 - at + run.seed / 100})
            for at in range(10)
        ]
        finish(sweep.run(run.run_id), run, rows)
    return sweep


def said(sweep: SweepDir, *command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--results", str(sweep.path.parent)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("order", "leader", "behind"), [("min", "iql", "mappo"), ("max", "mappo", "iql")])
def test_the_verdict_follows_the_order_and_the_values_stay(
    sweep: SweepDir, order: str, leader: str, behind: str
) -> None:
    told = json.loads(
        said(sweep, "collect", "speed", "--json", "--final", "last", "--metric", f"eval/loss:{order}")
    )
    [answer] = told["answers"]
    assert (answer["leaders"], answer["behind"]) == ([leader], [behind])
    word = "lower" if order == "min" else "higher"
    assert told["final"] == f"the last value of eval/loss ({word} is better)"
    exported = json.loads(sweep.marl_eval.read_text())["speed"]["speed"]["iql"]["seed_0"]
    assert exported["step_1"]["eval/loss"] == [8.25]
    assert exported["absolute_metrics"]["eval/loss"] == [0.25 if order == "min" else 9.25]
    found = pl.read_parquet(sweep.table_parquet).sort("algorithm", "seed")
    assert found["final_return"].to_list() == pytest.approx(
        [LOSSES[name] + seed / 100 for name in ("iql", "mappo") for seed in range(SEEDS)]
    )
    assert found["return_metric"].unique().to_list() == ["eval/loss"]
    assert found["best_return"][0] == pytest.approx(0.25 if order == "min" else 9.25)


def test_report_compare_and_collect_name_the_metric_and_no_return(sweep: SweepDir) -> None:
    said(sweep, "report", "speed", "--metric", "eval/loss:min", "--threshold", "1")
    page = re.sub(r"<(script|style).*?</\1>", "", (sweep.report / "index.html").read_text(), flags=re.DOTALL)
    assert not re.findall(r".{40}\breturn.{40}", page, flags=re.IGNORECASE)
    for text in (
        ">Final values of eval/loss</h2>",  # a section
        ">final eval/loss</text>",  # an axis
        ">best eval/loss</th>",  # a head
        "a run of iql has a lower eval/loss",  # a description of a picture
        "n counts the seeds with a finite final eval/loss. Values of eval/loss are raw.",
        "iql leads significantly",
    ):
        assert text in page, text
    compared = said(sweep, "compare", "speed", "--by", "algorithm", "--return", "eval/loss:min")
    assert "Final values of eval/loss with mappo are higher in 1 of 1 combinations" in compared
    assert "final eval/loss: the mean of the last 5 values of eval/loss (lower is better)" in compared
    collected = said(sweep, "collect", "speed", "--metric", "eval/loss:min")
    assert "final eval/loss (IQM)" in " ".join(collected.split())
    assert "return" not in compared + collected


def test_python_takes_the_metric(sweep: SweepDir) -> None:
    launched = Launched(sweep, flow=cast("Flow", SimpleNamespace(sweep_dir=sweep)))
    collected = launched.collect(final="last", metric="eval/loss:min")
    assert collected.runs["return_metric"].unique().to_list() == ["eval/loss"]
    [picture] = launched.plot("final", metric="eval/loss:min")
    assert picture.caption.startswith("Final eval/loss of each run")


def test_a_variant_named_return_keeps_its_name(results: Path) -> None:
    runs = matrix_runs({"baseline": ["return", "value"], "seed": range(SEEDS)})
    sweep = create_sweep(results, "named", runs)
    for run in runs:
        rows = [Row(at, at + 1, float(at), {"loss": at + run.seed / 100}) for at in range(10)]
        finish(sweep.run(run.run_id), run, rows)
    text = said(sweep, "collect", sweep.name, "--metric", "loss:min")
    assert re.search(r"best of \S*return, \S*value", text)
    assert "values of loss (lower is better)" in text


def test_words_that_are_no_return_stay() -> None:
    loss = ChosenMetric("<b>", lower=True)
    text = "eval/return, --return NAME, return_metric, use.return=1, episode return (evaluation), returned"
    assert loss.in_words(text) == text
    assert loss.in_words("Returns: a run returns more") == "Values of <b>: a run has a lower <b>"
    assert loss.in_words(Markup("no return")) == "no &lt;b&gt;"


def test_a_metric_that_no_run_recorded_is_named_with_those_that_are_there(sweep: SweepDir) -> None:
    command = ["collect", "speed", "--metric", "eval/los", "--results", str(sweep.path.parent)]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, OrchestrateError)
    assert "no run recorded 'eval/los'; found eval/loss" in str(result.exception)
    assert result.exception.hint == "did you mean eval/loss?"


def test_a_name_may_hold_colons() -> None:
    assert ChosenMetric.parse("a:b") == ChosenMetric("a:b")
    assert ChosenMetric.parse("a:min:min") == ChosenMetric("a:min", lower=True)
    with pytest.raises(OrchestrateError, match="expected NAME"):
        ChosenMetric.parse(":min")


def test_of_losses_lower_values_are_better_unless_said() -> None:
    for name in ("loss", "eval/loss", "losses/value_loss", "val.RMSE"):
        assert ChosenMetric.parse(name) == ChosenMetric(name, lower=True)
        assert ChosenMetric.parse(f"{name}:max") == ChosenMetric(name)
    for name in ("loss_scale", "gloss", "win_rate", "charts/episodic_return"):
        assert ChosenMetric.parse(name) == ChosenMetric(name)

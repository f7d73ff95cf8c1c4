"""The cards of the report's answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.analysis.report.blocks import Html, Text
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections.returns import answer
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.statistics.significance import ONE_LOOK
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row, SweepDir
from orchestrator.ui.cli import app
from tests.simulated import of_readings, simulated


def test_a_card_has_the_median_dollars_of_a_run() -> None:
    data = report_data((), simulated(lambda *_: 1.0, ["a"], 3, ended=3600.0, wall_time=3600.0))
    prices = {("s", row["run_id"]): price for row, price in zip(data.rows, (4.0, 12.0, 30.0), strict=True)}
    data.__dict__["prices"] = prices
    found = answer.section(data)
    assert found is not None
    [card] = [block.markup for block in found.blocks if isinstance(block, Html)]
    assert "3 seeds · 1,000 frames/s · $12.00 a run" in card


@pytest.mark.parametrize(("algorithms", "said"), [(["a", "b"], True), (["a"], False)])
def test_verdicts_say_that_their_rate_is_of_one_look(
    algorithms: list[str], said: bool, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = simulated(lambda *_: 1.0, algorithms, 5)
    points: dict[tuple[str, str], dict[str, object]] = {
        ("s", row["run_id"]): {} for row in collected.runs.iter_rows(named=True)
    }
    collected = replace(collected, points=points)
    data = report_data((), collected)
    found = answer.section(data)
    assert found is not None
    notes = [block.text for block in found.blocks if isinstance(block, Text)]
    assert any(ONE_LOOK in note for note in notes) == said
    SweepDir(results, "s").create()
    monkeypatch.setattr("orchestrator.analysis.collect.collect", lambda *_, **__: collected)
    printed = CliRunner().invoke(app, ["collect", "s", "--json", "--results", str(results)])
    assert printed.exit_code == 0, repr(printed.exception)
    assert (ONE_LOOK in json.loads(printed.stdout)["notes"]) == said


@pytest.mark.parametrize(
    ("state", "metric", "verdict"),
    [
        (RunState.FAILED, "return", "No final return yet"),
        (RunState.DONE, "return", "No finite final return"),
        (RunState.DONE, "loss", "No finished run logged a return"),
    ],
)
def test_a_page_without_a_return_says_why_and_explains_no_ranking(
    state: RunState, metric: str, verdict: str
) -> None:
    index = IndexRow("0" * 16, True, {"algorithm": "a", "seed": 0})
    reading = RunReading("s", index, state, "", {}, [Row(0, 6000, 6.0, {metric: math.nan})])
    data = report_data((), of_readings([reading], "command"))
    found = answer.section(data)
    assert found is not None
    [card] = found.blocks
    assert isinstance(card, Html)
    assert f'<p class="verdict">{verdict}.</p>' in card.markup

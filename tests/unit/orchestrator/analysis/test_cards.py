"""The cards of the report's answer."""

from __future__ import annotations

from orchestrator.analysis.report.answer.cards import answer_section
from orchestrator.analysis.report.blocks import Html
from orchestrator.analysis.report.data import report_data
from tests.simulated import simulated


def test_a_card_has_the_median_dollars_of_a_run() -> None:
    data = report_data((), simulated(lambda *_: 1.0, ["a"], 3, ended=3600.0, wall_time=3600.0))
    prices = {("s", row["run_id"]): price for row, price in zip(data.rows, (4.0, 12.0, 30.0), strict=True)}
    found = answer_section(data.groups, data.finals, data.answers, prices, "the last", ())
    assert found is not None
    [card] = [block.markup for block in found.blocks if isinstance(block, Html)]
    assert "3 seeds · 1,000 frames/s · $12.00 a run" in card

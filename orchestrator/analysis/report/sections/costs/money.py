"""Time and money: predicted and actual per submission, and the cost of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.report.blocks import Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.core.formatting import dollars, duration
from orchestrator.planning.estimate import Range
from orchestrator.planning.predictions import Prediction, bills, rates
from orchestrator.rundir import SweepDir

_NOTE = (
    "Predicted: at submission. Actual: from the first worker's start to the last worker's end; dollars by "
    "the time of jobs and the price at submission, repeated work included. An instance is charged from its "
    "request to its proven end, at the price of the machine obtained if that is dearer."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no job of these sweeps has begun."""
    submissions, targets = money_of(data.sweep_dirs)
    if not submissions.rows:
        return None
    unknown = Text("The cost is unknown: no profile sets price_per_hour.")
    blocks = (submissions, Text(_NOTE, note=True), targets if targets.rows else unknown)
    return Section("money", "Time and money", blocks)


def money_of(sweep_dirs: Iterable[SweepDir]) -> tuple[Table, Table]:
    """Return the tables of submissions that began or cost money, and of targets with a price."""
    known = (bill for sweep_dir in sweep_dirs for bill in bills(sweep_dir))
    settled = [bill for bill in known if bill.seconds is not None or bill.cost.priced]
    prices = (
        {
            "target": Cell(rate.target),
            "#dollars": cells.number(rate.dollars, dollars),
            "#frames": cells.number(rate.frames, "{:,}".format),
            "#dollars for a million frames": cells.number(rate.per_million, dollars),
        }
        for rate in rates(settled)
    )
    submissions = cells.table("submissions", map(_submission, settled), headed=True)
    return submissions, cells.table("prices", prices, headed=True)


def _submission(bill: Prediction) -> dict[str, Cell]:
    at = datetime.fromtimestamp(bill.time, UTC)
    return {
        "submission (UTC)": Cell(f"{bill.sweep}, {at:%Y-%m-%d %H:%M}"),
        "target": Cell(bill.target),
        "#runs": cells.number(bill.runs, str),
        "~time predicted [80 %]": _predicted(bill.predicted, duration),
        "~actual time": _actual(bill.seconds, duration, over=bill.over),
        "#of that predicted": _ratio(bill.seconds, bill.predicted),
        "#dollars predicted [80 %]": _predicted(bill.dollars_predicted, dollars),
        "#actual dollars": _actual(bill.dollars, dollars, over=bill.over),
        "#of those predicted": _ratio(bill.dollars, bill.dollars_predicted),
    }


def _predicted(predicted: Range | None, show: Callable[[float], str]) -> Cell:
    if predicted is None:
        return Cell(cells.MISSING)
    text = f"{show(predicted.mid)} [{show(predicted.low)}, {show(predicted.high)}]"
    return Cell(text, predicted.mid, ends=(predicted.low, predicted.high))


def _actual(value: float | None, show: Callable[[float], str], *, over: bool) -> Cell:
    return cells.number(value, show) if over or value is None else _noted(show(value), value, "so far")


def _ratio(actual: float | None, predicted: Range | None) -> Cell:
    """Return the actual as a share of the prediction, and whether it lies outside the predicted range."""
    if actual is None or predicted is None or predicted.mid <= 0:
        return Cell(cells.MISSING)
    inside = predicted.low <= actual <= predicted.high
    share = actual / predicted.mid
    return _noted(f"{share:.0%}", share, "" if inside else "outside the range")


def _noted(text: str, value: float, note: str) -> Cell:
    return Cell(f"{text}, {note}", value, more=(("note", note),)) if note else Cell(text, value)

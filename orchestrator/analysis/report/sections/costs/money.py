"""Time and money: predicted and actual per submission, and the cost of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.report.blocks import Block, Section, Text
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

_Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Money:
    """Rows of cells: prediction and actual cost of each submission, and the rate of each target."""

    submissions: tuple[_Row, ...]
    targets: tuple[_Row, ...]


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no job of these sweeps has begun."""
    money = money_of(data.sweep_dirs)
    if not money.submissions:
        return None
    blocks: list[Block] = [
        Table("submissions", _SUBMISSIONS, money.submissions, headed=True),
        Text(_NOTE, note=True),
    ]
    if money.targets:
        heads = cells.columns("target", "#dollars", "#frames", "#dollars for a million frames")
        blocks.append(Table("prices", heads, money.targets, headed=True))
    else:
        blocks.append(Text("The cost is unknown: no profile sets price_per_hour."))
    return Section("money", "Time and money", tuple(blocks))


_SUBMISSIONS = (
    *cells.columns("submission (UTC)", "target", "#runs"),
    cells.time_column("time predicted [80 %]"),
    cells.time_column("actual time"),
    *cells.columns(
        "#of that predicted", "#dollars predicted [80 %]", "#actual dollars", "#of those predicted"
    ),
)


def money_of(sweep_dirs: Iterable[SweepDir]) -> Money:
    """Return the rows of these sweeps: submissions that began or cost money, targets with a price."""
    known = (bill for sweep_dir in sweep_dirs for bill in bills(sweep_dir))
    settled = [bill for bill in known if bill.seconds is not None or bill.cost.priced]
    return Money(tuple(map(_submission, settled)), _targets(settled))


def _submission(bill: Prediction) -> _Row:
    spent, took = bill.dollars, bill.seconds
    return (
        Cell(f"{bill.sweep}, {datetime.fromtimestamp(bill.time, UTC):%Y-%m-%d %H:%M}"),
        Cell(bill.target),
        Cell(str(bill.runs), bill.runs),
        _predicted(bill.predicted, duration),
        Cell(cells.MISSING) if took is None else _actual(took, duration, over=bill.over),
        Cell(cells.MISSING) if took is None else _ratio(took, bill.predicted),
        _predicted(bill.dollars_predicted, dollars),
        Cell(cells.MISSING) if spent is None else _actual(spent, dollars, over=bill.over),
        Cell(cells.MISSING) if spent is None else _ratio(spent, bill.dollars_predicted),
    )


def _targets(predictions: Sequence[Prediction]) -> tuple[_Row, ...]:
    return tuple(
        (
            Cell(rate.target),
            Cell(dollars(rate.dollars), rate.dollars),
            Cell(f"{rate.frames:,}", rate.frames),
            Cell(cells.MISSING)
            if rate.per_million is None
            else Cell(dollars(rate.per_million), rate.per_million),
        )
        for rate in rates(predictions)
    )


def _predicted(predicted: Range | None, show: Callable[[float], str]) -> Cell:
    if predicted is None:
        return Cell(cells.MISSING)
    text = f"{show(predicted.mid)} [{show(predicted.low)}, {show(predicted.high)}]"
    return Cell(text, predicted.mid, ends=(predicted.low, predicted.high))


def _actual(value: float, show: Callable[[float], str], *, over: bool) -> Cell:
    return _noted(show(value), value, "" if over else "so far")


def _ratio(actual: float, predicted: Range | None) -> Cell:
    """Return the actual as a share of the prediction, and whether it lies outside the predicted range."""
    if predicted is None or predicted.mid <= 0:
        return Cell(cells.MISSING)
    inside = predicted.low <= actual <= predicted.high
    share = actual / predicted.mid
    return _noted(f"{share:.0%}", share, "" if inside else "outside the range")


def _noted(text: str, value: float, note: str) -> Cell:
    return Cell(f"{text}, {note}", value, more=(("note", note),)) if note else Cell(text, value)

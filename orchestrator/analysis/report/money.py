"""Time and money: predicted and actual per submission, and the cost of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.analysis.report.blocks import Block, Cell, Section, Table, Text, columns
from orchestrator.core.formatting import dollars, duration
from orchestrator.planning.estimate import Range
from orchestrator.planning.predictions import Prediction, bills, rates
from orchestrator.rundir import SweepDir

_NOT_KNOWN = "–"
_NOTE = (
    "Predicted: at submission. Actual: from the first worker's start to the last worker's end; dollars by "
    "the time of jobs and the price at submission, repeated work included."
)


@dataclass(frozen=True)
class Money:
    """Rows of text: prediction and actual cost of each submission, and the rate of each target."""

    submissions: tuple[tuple[str, ...], ...]
    targets: tuple[tuple[str, ...], ...]


def money_section(sweep_dirs: Iterable[SweepDir]) -> Section | None:
    """Return the report's section; ``None`` where no job of these sweeps has begun."""
    money = money_of(sweep_dirs)
    if not money.submissions:
        return None
    blocks: list[Block] = [
        _plain(
            "submissions",
            money.submissions,
            "submission (UTC)",
            "target",
            "#runs",
            "#time predicted [80 %]",
            "#actual",
            "#of it",
            "#dollars predicted [80 %]",
            "#actual",
            "#of it",
        ),
        Text(_NOTE, note=True),
    ]
    if money.targets:
        names = ("target", "#dollars", "#frames", "#dollars for a million frames")
        blocks.append(_plain("prices", money.targets, *names))
    else:
        blocks.append(Text("The cost is unknown: no profile sets price_per_hour."))
    return Section("money", "Time and money", tuple(blocks))


def _plain(name: str, rows: Iterable[Sequence[str]], *heads: str) -> Table:
    return Table(name, columns(*heads), tuple(tuple(map(Cell, row)) for row in rows), headed=True)


def money_of(sweep_dirs: Iterable[SweepDir]) -> Money:
    """Return the rows of these sweeps: submissions with jobs that began, targets with a price."""
    found = [bill for sweep_dir in sweep_dirs for bill in bills(sweep_dir) if bill.seconds is not None]
    return Money(tuple(map(_submission, found)), _targets(found))


def _submission(bill: Prediction) -> tuple[str, ...]:
    assert bill.seconds is not None
    spent = bill.dollars
    unfinished = "" if bill.over else ", so far"
    return (
        f"{bill.sweep}, {datetime.fromtimestamp(bill.time, UTC):%Y-%m-%d %H:%M}",
        bill.target,
        str(bill.runs),
        _shown(bill.predicted, duration),
        duration(bill.seconds) + unfinished,
        _ratio(bill.seconds, bill.predicted),
        _shown(bill.dollars_predicted, dollars),
        _NOT_KNOWN if spent is None else dollars(spent) + unfinished,
        _NOT_KNOWN if spent is None else _ratio(spent, bill.dollars_predicted),
    )


def _targets(found: Sequence[Prediction]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            rate.target,
            dollars(rate.dollars),
            f"{rate.frames:,}",
            _NOT_KNOWN if rate.per_million is None else dollars(rate.per_million),
        )
        for rate in rates(found)
    )


def _shown(found: Range | None, show: Callable[[float], str]) -> str:
    return _NOT_KNOWN if found is None else f"{show(found.mid)} [{show(found.low)}, {show(found.high)}]"


def _ratio(actual: float, predicted: Range | None) -> str:
    """Return the actual as a share of the prediction, and whether it lies outside the predicted range."""
    if predicted is None or predicted.mid <= 0:
        return _NOT_KNOWN
    inside = predicted.low <= actual <= predicted.high
    return f"{actual / predicted.mid:.0%}{'' if inside else ', outside the range'}"

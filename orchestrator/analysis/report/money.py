"""Rows of time and money for the page: predicted and actual per submission, and the cost of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.core.formatting import dollars, duration
from orchestrator.planning.estimate import Range
from orchestrator.planning.predictions import Prediction, bills, rates
from orchestrator.rundir import SweepDir

_NOT_KNOWN = "–"


@dataclass(frozen=True)
class Money:
    """Rows of text: prediction and actual cost of each submission, and the rate of each target."""

    submissions: tuple[tuple[str, ...], ...]
    targets: tuple[tuple[str, ...], ...]


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

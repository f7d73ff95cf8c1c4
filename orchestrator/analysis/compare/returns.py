"""Returns of compared runs: over frames and time, and at the last point that all runs reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.groups.curves import ReturnCurve, Series, SeriesByRun, on_common_frames
from orchestrator.analysis.groups.grouping import Members
from orchestrator.analysis.run_table import RunRow, distinct, diverged, return_names
from orchestrator.analysis.statistics.bootstrap import finite
from orchestrator.analysis.statistics.significance import Floats


@dataclass(frozen=True, eq=False)
class Returns:
    """Returns of a group's ``n`` runs that have any and did not diverge.

    ``frames`` and ``seconds`` are the most that all counted runs of all compared groups with returns reach;
    ``at_frames`` and ``at_time`` hold a value per run there. The curves are on common frames and times,
    and have the finite values of runs that diverged as well.
    """

    n: int
    frames: float | None
    seconds: float | None
    at_frames: list[float]
    at_time: list[float]
    over_frames: ReturnCurve | None
    over_time: ReturnCurve | None


def returns_between(groups: Sequence[Members], by_run: SeriesByRun) -> list[Returns]:
    """Return the returns of compared groups, of the metric that most of them have."""
    counted = [distinct(group.counted()[0]) for group in groups]
    names = dict.fromkeys(name for rows in counted for row in rows for name in return_names(row))
    best: Sequence[Sequence[tuple[RunRow, Series]]] = [[] for _ in groups]
    for name in names:
        keyed = [[(row, (row["sweep"], row["run_id"], name)) for row in rows] for rows in counted]
        series = [[(row, by_run[key]) for row, key in own if key in by_run] for own in keyed]
        if sum(map(bool, series)) > sum(map(bool, best)):  # the metric that most of them have
            best = series
    rows = [row for own, some in zip(counted, best, strict=True) if some for row in own]
    frames, seconds = _least(rows, "frames"), _least(rows, "wall_time")
    return [_returns(series, frames, seconds) for series in best]


def _returns(series: Sequence[tuple[RunRow, Series]], frames: float | None, seconds: float | None) -> Returns:
    lasting = [curve for row, curve in series if not diverged(row)]
    values = (
        _held([(curve.frames, curve.values) for curve in lasting], frames),
        _held([(curve.seconds, curve.values) for curve in lasting], seconds),
    )
    curves = (
        _on_common([(curve.frames, curve.values) for _, curve in series]),
        _on_common([(curve.seconds, curve.values) for _, curve in series]),
    )
    return Returns(len(lasting), frames, seconds, *values, *curves)


def _least(rows: Sequence[Mapping[str, float | None]], column: str) -> float | None:
    known = [value for row in rows if (value := row[column]) is not None and finite(value)]
    return float(min(known)) if known else None


def _held(series: Sequence[tuple[Floats, Floats]], at: float | None) -> list[float]:
    """Return the last value not after ``at`` of each run that has one."""
    if at is None:
        return []
    numbers = [int(np.searchsorted(along, at, side="right")) - 1 for along, _ in series]
    return [float(own[1][number]) for own, number in zip(series, numbers, strict=True) if number >= 0]


def _on_common(series: Sequence[tuple[Floats, Floats]]) -> ReturnCurve | None:
    if not series:
        return None
    points, values = on_common_frames(series)
    return ReturnCurve(points, values) if len(points) else None

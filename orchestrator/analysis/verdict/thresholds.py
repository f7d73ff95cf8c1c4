"""When runs reached a return: frames, wall time and dollars, censored for runs that never did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.comparability import kind_of
from orchestrator.analysis.groups.curves import (
    FramesToThreshold,
    Series,
    SeriesByRun,
    first_reached,
    series_of,
)
from orchestrator.analysis.groups.grouping import Final, SeedGroup, by_task
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.analysis.verdict.run_cost import HOUR_S, Prices

# The part of the way from the first return of the task to the best group's final one.
USUAL_PART = 0.9


@dataclass(frozen=True)
class TimeToThreshold:
    """When the finished runs of a group first had a return of ``threshold`` or better.

    ``seconds``: wall time, ``None`` where that of a run is unknown. ``dollars_per_second``: the median price
    of its runs, ``None`` where unknown.
    """

    group: SeedGroup
    threshold: float
    frames: FramesToThreshold
    seconds: FramesToThreshold | None
    dollars_per_second: float | None


def times_to_threshold(
    collected: Collected,
    finals: Sequence[Final],
    prices: Prices,
    threshold: float | None = None,
) -> list[TimeToThreshold]:
    """Return the times of every group with returns of evaluations; by default each task has a threshold."""
    able = [
        final
        for final in finals
        if final.estimate is not None and kind_of(final.terms.metric) == "evaluation"
    ]
    series = series_of(collected, [row for final in able for row in final.group.counted()[0]])
    times = []
    for own in by_task(able).values():
        curves = [_curves(final, series) for final in own]
        level = threshold if threshold is not None else _usual(own, curves)
        for final, several in zip(own, curves, strict=True):
            frames = first_reached(several, level, lower=final.terms.lower)
            if frames is not None:
                price, seconds = _price(final.group, prices), _seconds(several, level, final.terms.lower)
                times.append(TimeToThreshold(final.group, level, frames, seconds, price))
    return times


def _seconds(curves: Sequence[Series], threshold: float, lower: bool) -> FramesToThreshold | None:
    if not all(np.isfinite(curve.seconds).all() for curve in curves):
        return None
    by_time = [replace(curve, frames=curve.seconds) for curve in curves]
    return first_reached(by_time, threshold, lower=lower)


def _curves(final: Final, series: SeriesByRun) -> list[Series]:
    rows = final.group.counted()[0]
    keys = [(row["sweep"], row["run_id"], row["return_metric"]) for row in rows]
    return [series[key] for key in keys if key in series]


def _usual(own: Sequence[Final], curves: Sequence[Sequence[Series]]) -> float:
    """Return the usual threshold of a task, with three digits."""
    first = middle([float(curve.values[0]) for several in curves for curve in several]) or 0.0
    best = max(own, key=lambda final: final.merit).estimate
    assert best is not None
    return float(f"{first + USUAL_PART * (best.value - first):.3g}")


def _price(group: SeedGroup, prices: Prices) -> float | None:
    known = [prices.get((row["sweep"], row["run_id"])) for row in group.counted()[0]]
    hour = middle([price for price in known if price is not None])
    return None if hour is None else hour / HOUR_S

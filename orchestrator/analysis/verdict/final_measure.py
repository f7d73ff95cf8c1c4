"""Choose what counts as the final return of a run: one evaluation, a mean of several, or an area."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from orchestrator.analysis.tables import LEVEL_METRICS
from orchestrator.core.errors import OrchestrateError

if TYPE_CHECKING:
    import polars as pl

    from orchestrator.analysis.collect import Collected

_LAST, _MEAN, _AREA = "last", "mean", "area"
# A mean takes at most this part of a run's values, so that a short run is not judged by its beginning.
_MOST_PART = 3
_EVALUATIONS = "eval/"


@dataclass(frozen=True)
class FinalMeasure:
    """What counts as a run's final return. ``count``: values of a mean."""

    kind: str = _MEAN
    count: int = 5

    @classmethod
    def parse(cls, text: str) -> FinalMeasure:
        """Read ``last``, ``mean:K`` or ``area``."""
        if text in (_LAST, _AREA):
            return cls(text, 0)
        if (found := re.fullmatch(rf"{_MEAN}:([1-9]\d{{0,5}})", text)) is not None:
            return cls(_MEAN, int(found[1]))
        raise OrchestrateError(
            f"--final: found {text!r}, expected last, mean:K or area",
            hint="for example --final mean:10, the mean of the last ten evaluations",
        )

    def __str__(self) -> str:
        if self.kind == _LAST:
            return "the last evaluation"
        if self.kind == _AREA:
            return "the area under the curve of evaluations over frames, divided by the frames"
        return f"the mean of the last {self.count} evaluations, or of the last third if these are fewer"

    def of(self, frames: Sequence[float], values: Sequence[float]) -> float:
        """Return the measure of one run's finite values in order."""
        if self.kind == _AREA and len(values) > 1 and frames[-1] > frames[0]:
            area = sum(
                (end - start) * (first + last) / 2
                for (start, end), (first, last) in zip(pairwise(frames), pairwise(values), strict=True)
            )
            return area / (frames[-1] - frames[0])
        number = min(self.count, -(-len(values) // _MOST_PART)) if self.kind == _MEAN else 1
        last = values[-number:]
        return math.fsum(last) / len(last)


def measured_by(collected: Collected, measure: FinalMeasure) -> Collected:
    """Return the tables with this measure as the final return of every run that has one.

    The returns on levels of training, and the gaps, are measured in the same way.
    A run has none if its last evaluation is not a number: it diverged. Of a return of collection such values
    are left out, as no episode ended then.
    """
    import polars as pl

    runs = collected.runs
    metrics = {"final_return": pl.col("return_metric")}
    metrics |= {column: pl.lit(metric) for column, metric in LEVEL_METRICS.items()}
    for column, metric in metrics.items():
        if runs[column].null_count() < len(runs):
            runs = runs.with_columns(_measured(collected, column, metric, measure))
    return replace(collected, runs=runs, final=str(measure))


def _measured(collected: Collected, column: str, metric: pl.Expr, measure: FinalMeasure) -> pl.Series:
    """Return this measure of each run that has a value in the column, which is the last one of the metric."""
    import polars as pl

    wanted = collected.runs.select("sweep", "run_id", name=metric)
    found = (
        collected.metrics.join(wanted, on=["sweep", "run_id", "name"], how="semi")
        .group_by("sweep", "run_id", "name", maintain_order=True)
        .agg("frames", "value")
    )
    scores = {
        (sweep, run_id): _score(measure, name, frames, values)
        for sweep, run_id, name, frames, values in found.iter_rows()
    }
    rows = collected.runs.select("sweep", "run_id", column).iter_rows()
    finals = [
        before if before is None else scores.get((sweep, run_id), before) for sweep, run_id, before in rows
    ]
    return pl.Series(column, finals, dtype=pl.Float64)


def _score(measure: FinalMeasure, metric: str, frames: Sequence[int], values: Sequence[float]) -> float:
    finite = [
        (float(at), value)
        for at, value in zip(frames, values, strict=True)
        if value is not None and math.isfinite(value)
    ]
    if not finite or (metric.startswith(_EVALUATIONS) and not math.isfinite(values[-1])):
        return math.nan
    return measure.of([at for at, _ in finite], [value for _, value in finite])

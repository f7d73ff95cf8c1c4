"""Choose what counts as the final return of a run: one evaluation, a mean of several, or an area."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.run_table import (
    FINAL_MEASURE,
    FINAL_VALUES,
    INTERVAL,
    LAST,
    LAST_RETURN,
    LEVEL_METRICS,
    MEASURE_COLUMNS,
)
from orchestrator.config.returns import is_evaluation, may_lack_episodes
from orchestrator.core.errors import OrchestrateError

_MEAN, _AREA = "mean", "area"
# A mean takes at most this part of a run's values, so that a short run is not judged by its beginning.
_MOST_PART = 3
# What one may write for a measure that is none: ``threshold``, ``threshold:10``, ``time-to-threshold``.
_THRESHOLD = re.compile(r"(?:(?:time|frames)[-_ ]to[-_ ])?threshold(?:[:=](-?[\d.]+(?:e[+-]?\d+)?))?")


@dataclass(frozen=True)
class FinalMeasure:
    """What counts as a run's final return. ``count``: values of a mean."""

    kind: str = _MEAN
    count: int = 5

    @classmethod
    def parse(cls, text: str) -> FinalMeasure:
        """Read ``last``, ``mean:K`` or ``area``."""
        if text in (LAST, _AREA):
            return cls(text, 0)
        if (match := re.fullmatch(rf"{_MEAN}:([1-9]\d{{0,5}})", text)) is not None:
            return cls(_MEAN, int(match[1]))
        if (match := _THRESHOLD.fullmatch(text)) is not None:
            raise OrchestrateError(
                f"--final: found {text!r}, but the time to a threshold is a cost, not a return",
                hint=f"for these times: orchestrate report SWEEP --threshold {match[1] or 'RETURN'}",
            )
        raise OrchestrateError(
            f"--final: found {text!r}, expected last, mean:K or area",
            hint="for example --final mean:10, the mean of the last ten evaluations",
        )

    @property
    def spec(self) -> str:
        """What :meth:`parse` reads."""
        return f"{self.kind}:{self.count}" if self.kind == _MEAN else self.kind

    def describe(self, metrics: Iterable[str], chosen: ChosenMetric | None = None) -> str:
        """Describe the measure of runs with returns of these metrics, or with values of the chosen one."""
        kinds = {is_evaluation(metric) for metric in metrics} or {True}
        one = "evaluation" if True in kinds else "training return"
        one, several = (one, f"{one}s") if chosen is None else (f"value of {chosen}", f"values of {chosen}")
        text = f"the mean of the last {self.count} {several}, or of the last third if these are fewer"
        if self.kind == LAST:
            text = f"the last {one}"
        elif self.kind == _AREA:
            text = f"the area under the curve of {several} over frames, divided by the frames"
        if chosen is not None:
            return text
        if True not in kinds:
            return f"{text}; no run was evaluated in training"
        return text + "; of runs without evaluations, the same of training returns" * (False in kinds)

    def __str__(self) -> str:
        return self.describe(())

    def of(self, frames: Sequence[float], values: Sequence[float]) -> float:
        """Return the measure of one run's finite values in order."""
        if self.kind == _AREA and len(values) > 1 and frames[-1] > frames[0]:
            return float(np.trapezoid(values, frames)) / (frames[-1] - frames[0])
        last = values[-self.values_of(len(values)) :]
        return math.fsum(last) / len(last)

    def values_of(self, number: int) -> int:
        """Return how many values count of a run with so many, one or more."""
        if self.kind == _AREA:
            return number
        return min(self.count, -(-number // _MOST_PART)) if self.kind == _MEAN else 1


@dataclass(frozen=True)
class _Score:
    """A run's measure, the number of ``values`` in it, and the usual number of frames between evaluations."""

    value: float
    values: int | None = None
    interval: float | None = None


def measured_by(collected: Collected, measure: FinalMeasure) -> Collected:
    """Return the tables with this measure as the final return of every run that has one.

    The returns on levels of training, and the gaps, are measured in the same way. ``last_return`` holds the
    last return, ``final_measure`` the measure, ``final_values`` how many values are in it, and
    ``evaluation_interval`` the median number of frames between evaluations.
    A run has none if its last value is not finite: it diverged. NaN of trainers' collection returns is left
    out, as no episode ended then.
    """
    runs = collected.runs
    if LAST_RETURN not in runs.columns:
        runs = runs.with_columns(pl.col("final_return").alias(LAST_RETURN))
    finals = [
        one if before is None or one is not None else _Score(before)
        for before, one in zip(
            runs["final_return"], _scores(collected, pl.col("return_metric"), measure), strict=True
        )
    ]
    own = [
        pl.Series("final_return", [final and final.value for final in finals], dtype=pl.Float64),
        pl.Series(FINAL_MEASURE, [final and measure.spec for final in finals], dtype=pl.String),
        pl.Series(FINAL_VALUES, [final and final.values for final in finals], dtype=pl.Int64),
        pl.Series(INTERVAL, [final and final.interval for final in finals], dtype=pl.Float64),
    ]
    runs = runs.with_columns(own)
    for column, metric in LEVEL_METRICS.items():
        if runs[column].null_count() < len(runs):
            values = [
                before if before is None or one is None else one.value
                for before, one in zip(runs[column], _scores(collected, pl.lit(metric), measure), strict=True)
            ]
            runs = runs.with_columns(pl.Series(column, values, dtype=pl.Float64))
    metrics = runs.filter(pl.col("in_grid"))["return_metric"].drop_nulls().unique().to_list()
    return replace(collected, runs=_in_order(runs), final=measure.describe(metrics, collected.chosen))


def _in_order(runs: pl.DataFrame) -> pl.DataFrame:
    """Put the columns about the measure behind the final return."""
    others = [column for column in runs.get_columns() if column.name not in MEASURE_COLUMNS]
    at = 1 + [column.name for column in others].index("final_return")
    return pl.DataFrame([*others[:at], *(runs[name] for name in MEASURE_COLUMNS), *others[at:]])


def _scores(collected: Collected, metric: pl.Expr, measure: FinalMeasure) -> list[_Score | None]:
    """Return this measure of a metric, for each run that recorded it."""
    wanted = collected.runs.select("sweep", "run_id", name=metric)
    table = (
        collected.metrics.join(wanted, on=["sweep", "run_id", "name"], how="semi")
        .group_by("sweep", "run_id", "name", maintain_order=True)
        .agg("frames", "value")
    )
    scores = {
        (sweep, run_id): _score(measure, name, frames, values)
        for sweep, run_id, name, frames, values in table.iter_rows()
    }
    return [scores.get(run) for run in collected.runs.select("sweep", "run_id").iter_rows()]


def _score(measure: FinalMeasure, metric: str, frames: Sequence[int], values: Sequence[float]) -> _Score:
    at, of = np.array(frames, dtype=float), np.array(values, dtype=float)  # an unknown value is NaN
    if may_lack_episodes(metric):
        at, of = at[~np.isnan(of)], of[~np.isnan(of)]
    known = np.isfinite(of)
    if not known[-1:].any():
        return _Score(math.nan)
    value = measure.of(at[known].tolist(), of[known].tolist())
    gaps = np.diff(at) if is_evaluation(metric) else at[:0]
    return _Score(value, measure.values_of(int(known.sum())), float(np.median(gaps)) if len(gaps) else None)

"""Learning curves of groups, and when they reach a threshold."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.grouping import SeedGroup, joined
from orchestrator.analysis.run_table import RunRow, distinct, return_names
from orchestrator.analysis.statistics.bootstrap import Band, band_of, median_interval
from orchestrator.analysis.statistics.significance import INTERVAL_SEEDS, Floats

_CURVE_POINTS = 100

# Names of losses, of this program's trainers and of BenchMARL.
_LOSS = re.compile(r"loss/.+|.+/loss[^/]*")


@dataclass(frozen=True, eq=False)
class ReturnCurve:
    """Returns along ``x``, frames or seconds of wall time, of shape (points,); ``scores``: runs × points.

    It covers the range that all runs share.
    """

    x: Floats
    scores: Floats

    @cached_property
    def band(self) -> Band:
        """Interquartile mean and both ends of its interval; estimated when first drawn, as it takes time."""
        return band_of(self.scores)


@dataclass(frozen=True, eq=False)
class Curve(ReturnCurve):
    """A group's return over training frames. ``unfinished``: no seed of it is done yet.

    ``seconds``: wall time at the frames, runs × points. ``runs``: the runs' rows, in the order of ``scores``.
    """

    group: SeedGroup
    metric: str
    unfinished: bool
    note: str
    seconds: Floats
    runs: tuple[RunRow, ...]


def curves(collected: Collected, groups: Sequence[SeedGroup]) -> list[Curve]:
    """Return the curve of the return of every group that has one, in order."""
    series = series_of(collected, [row for group in groups for row in group.rows])
    return [curve for group in groups if (curve := _curve(group, series)) is not None]


def curves_of(collected: Collected, groups: Sequence[SeedGroup], metrics: Sequence[str]) -> Iterator[Curve]:
    """Yield the curves of these metrics, one metric after the other."""
    series = series_of(collected, [row for group in groups for row in group.rows], metrics)
    for metric in metrics:
        yield from filter(None, (_curve(group, series, [metric]) for group in groups))


def loss_metrics(collected: Collected) -> list[str]:
    """Return the names of the metrics that are losses, sorted."""
    return sorted(name for name in collected.metrics["name"].unique() if _LOSS.fullmatch(name))


@dataclass(frozen=True, eq=False)
class Series:
    """One run's finite returns, by frames and by seconds of wall time, evaluations and checkpoints included.

    Arrays of one length.
    """

    frames: Floats
    seconds: Floats
    values: Floats


# Returns by sweep, run id and metric.
SeriesByRun = Mapping[tuple[str, str, str], Series]


def series_of(
    collected: Collected, rows: Sequence[RunRow], metrics: Collection[str] | None = None
) -> SeriesByRun:
    """Return these metrics of these runs, by default their returns."""
    names = metrics or {name for row in rows for name in return_names(row)}
    wanted = {row["run_id"] for row in rows}
    run = ("sweep", "run_id", "name")
    table = collected.metrics.filter(
        pl.col("name").is_in(list(names)) & pl.col("value").is_finite() & pl.col("run_id").is_in(list(wanted))
    ).sort(run, maintain_order=True)
    frames, seconds, values = (
        table[column].cast(pl.Float64).to_numpy() for column in ("frames", "wall_time", "value")
    )
    # Slices of whole columns: a table of its own for each of many thousand runs is slow.
    spans = table.with_row_index("start").group_by(run, maintain_order=True).agg(pl.first("start"), pl.len())
    return {
        (sweep, run_id, name): Series(*(column[start : start + size] for column in (frames, seconds, values)))
        for sweep, run_id, name, start, size in spans.iter_rows()
    }


def _curve(group: SeedGroup, series: SeriesByRun, metrics: Sequence[str] | None = None) -> Curve | None:
    rows, note = group.counted()
    unfinished = not rows
    rows = distinct(rows) or list(group.rows)
    for metric in metrics or _return_metrics(rows):
        keys = [(row["sweep"], row["run_id"], metric) for row in rows]
        runs = tuple(row for row, key in zip(rows, keys, strict=True) if key in series)
        several = [series[key] for key in keys if key in series]
        if several:
            break
    else:
        return None
    frames, scores = on_common_frames([(own.frames, own.values) for own in several])
    seconds = held([(own.frames, own.seconds) for own in several], frames)
    lost = len(rows) - len(several)
    ends = {float(own.frames[-1]) for own in several}
    notes = [
        note,
        f"{lost} of {len(rows)} seeds have no values" if lost else "",
        f"seeds differ in length, cut at {min(ends):,.0f} frames" if len(ends) > 1 else "",
        "not finished" if unfinished else "",
    ]
    if not len(frames):
        return None
    return Curve(frames, scores, group, metric, unfinished, joined(notes), seconds, runs)


def _return_metrics(rows: Sequence[RunRow]) -> list[str]:
    """Return the metrics that are these runs' returns, best first: of unfinished runs all that may be."""
    own = {row["return_metric"] for row in rows} - {None}
    return [name for name in return_names(rows[0]) if name in own or not own]


def on_common_frames(series: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Resample runs' (frames, values) on common frames: (points,), and values of shape (runs, points).

    A value holds until the run's next one. The frames begin where every run has a value and end with the
    shortest run, so nothing is extrapolated; they are empty if none is common to all.
    """
    first, last = max(frames[0] for frames, _ in series), min(frames[-1] for frames, _ in series)
    union = np.unique(np.concatenate([frames for frames, _ in series]))
    grid = union[(union >= first) & (union <= last)]
    if len(grid) > _CURVE_POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _CURVE_POINTS).round().astype(int))]
    return grid, held(series, grid)


def held(series: Sequence[tuple[Floats, Floats]], grid: Floats) -> Floats:
    """Return each run's latest value at these frames, of shape (runs, points)."""
    rows = [values[np.searchsorted(frames, grid, side="right") - 1] for frames, values in series]
    return np.array(rows, dtype=np.float64).reshape(len(series), len(grid))


_ROUNDING = 1e-6


@dataclass(frozen=True)
class FramesToThreshold:
    """Frames at the first evaluation in training that reached a threshold, one per seed.

    Infinite for a seed that never did; ``trained`` is the shortest training among these. ``spacing``: frames
    from one evaluation to the next, the median.
    """

    frames: tuple[float, ...]
    trained: float
    spacing: float | None

    @property
    def reached(self) -> int:
        """Number of seeds that reached it."""
        return sum(map(math.isfinite, self.frames))

    @property
    def median(self) -> float:
        """The median over seeds, infinite if too few reached it."""
        return median(self.frames)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median by bootstrap; none below four seeds."""
        return median_interval(self.frames) if len(self.frames) >= INTERVAL_SEEDS else None


def first_reached(
    curves: Sequence[Series], threshold: float, *, lower: bool = False
) -> FramesToThreshold | None:
    """Return when each curve first had a value of ``threshold`` or better; ``None`` without curves."""
    if not curves:
        return None
    first, ends, spacings = [], [], []
    for curve in curves:
        alike = np.isclose(curve.values, threshold, rtol=_ROUNDING, atol=0.0)
        beyond = curve.values <= threshold if lower else curve.values >= threshold
        reached = np.flatnonzero(beyond | alike)
        first.append(float(curve.frames[reached[0]]) if len(reached) else math.inf)
        if not len(reached):
            ends.append(float(curve.frames[-1]))
        spacings += np.diff(curve.frames).tolist()
    return FramesToThreshold(
        tuple(first), min(ends, default=math.inf), median(spacings) if spacings else None
    )

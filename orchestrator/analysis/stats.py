"""Group runs by seed, and estimate their final returns and learning curves.

A group is all runs of a sweep that differ in nothing but the seed. Returns are raw: groups are compared
within a task and never averaged across tasks. Aggregates are interquartile means over seeds, with 95 %
intervals by bootstrap over seeds, as rliable defines them; fewer than four seeds have none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.comparability import ReturnTerms, terms_of
from orchestrator.analysis.significance import INTERVAL_SEEDS, Floats
from orchestrator.config.trainers import returns_of
from orchestrator.core.labels import run_labels
from orchestrator.core.types import RunState

_Point = Mapping[str, Any]

# Colours of lines: one per algorithm, and of its variants each has another dash.
HUES = 8
RESAMPLES = 1000
_BOOTSTRAP_SEED = 20
# Resampled numbers held at once, which bounds the memory: 32 MB, and as much for their order.
_MOST_RESAMPLED = 4_000_000
_CURVE_POINTS = 100
# Names of losses, of this program's trainers and of BenchMARL.
_LOSS = re.compile(r"loss/.+|.+/loss[^/]*")


@dataclass(frozen=True)
class Members:
    """Runs that differ only in their seed: their rows of the table of runs."""

    rows: tuple[_Point, ...]

    @property
    def states(self) -> dict[str, int]:
        """Number of runs in each state."""
        counted = Counter(row["state"] for row in self.rows)
        return {state.value: counted[state.value] for state in RunState if counted[state.value]}

    @property
    def states_text(self) -> str:
        """Number of runs in each state, as text."""
        return ", ".join(f"{count} {state}" for state, count in self.states.items())

    def counted(self) -> tuple[list[_Point], str]:
        """Return the finished runs, or stale ones if there is nothing else, and a note on those left out."""
        done = [row for row in self.rows if row["state"] == RunState.DONE.value]
        stale = [row for row in self.rows if row["state"] == RunState.STALE.value]
        if done:
            return done, f"{len(stale)} stale left out" if stale else ""
        return stale, f"all {len(stale)} stale" if stale else ""


@dataclass(frozen=True)
class Group(Members):
    """Runs of one sweep that differ only in their seed.

    ``variant`` is the part of ``point`` that other tasks and other sweeps may have as well. ``number``
    of the variant and ``side``, which counts sweeps from 0, fix colour and dash in every picture.
    """

    sweep: str
    number: int
    side: int
    label: str
    point: Mapping[str, Any]
    variant: Mapping[str, Any]

    @property
    def task(self) -> str:
        """The task, empty if the grid names none."""
        return str(self.point.get("task", ""))


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean of ``n`` seeds with its 95 % interval, ``None`` below four seeds."""

    value: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Final:
    """A group's final returns: one per seed (finite ones only), and their estimate if there is any."""

    group: Group
    values: tuple[float, ...]
    estimate: Estimate | None
    note: str
    terms: ReturnTerms


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

    group: Group
    metric: str
    unfinished: bool
    note: str
    seconds: Floats
    runs: tuple[_Point, ...]


def groups(collected: Collected) -> tuple[Group, ...]:
    """Return the groups of the present grids, in the order of their first run."""
    rows = [row for row in collected.runs.iter_rows(named=True) if row["in_grid"]]
    parted = by_point(rows, ["sweep", *(key for key in collected.keys if key != "seed")])
    points = [point for point, _ in parted]
    variants = _variants(points, [own[0]["trainer"] for _, own in parted])
    sides = list(dict.fromkeys(point["sweep"] for point in points))
    return tuple(
        Group(tuple(own), point["sweep"], number, sides.index(point["sweep"]), label, point, variant)
        for (point, own), number, label, variant in zip(
            parted, _numbers(variants), group_labels(points), variants, strict=True
        )
    )


def by_point(rows: Iterable[_Point], keys: Sequence[str]) -> list[tuple[dict[str, Any], list[_Point]]]:
    """Group rows with the same values of ``keys``: these values, without unknown ones, and the rows."""
    members: dict[tuple[Any, ...], list[_Point]] = {}
    for row in rows:
        members.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        ({key: value for key, value in zip(keys, values, strict=True) if value is not None}, own)
        for values, own in members.items()
    ]


def _variants(points: Sequence[_Point], trainers: Sequence[str]) -> list[dict[str, Any]]:
    """Return each point's variant: its algorithm, and the keys that vary within a task of a sweep.

    Other keys are settings of the whole sweep or task, as the number of frames often is. No two points of a
    sweep and task have the same variant.
    """
    alike: dict[tuple[Any, Any], list[_Point]] = {}
    for point in points:
        alike.setdefault((point["sweep"], point.get("task")), []).append(point)
    kept = dict.fromkeys(("algorithm", "model"))
    for several in alike.values():
        for key in dict.fromkeys(key for point in several for key in point):
            if any(point.get(key) != several[0].get(key) for point in several):
                kept[key] = None
    kept.pop("task", None)
    found = [{key: point[key] for key in point if key in kept} for point in points]
    if len(set(trainers)) > 1:
        return [{"trainer": name, **variant} for name, variant in zip(trainers, found, strict=True)]
    return found


def _numbers(variants: Sequence[_Point]) -> list[int]:
    """Number each variant: its algorithm's colour, plus ``HUES`` times its place among those of that colour.

    Where all variants have one algorithm, each has a colour of its own.
    """
    identities = [tuple(variant.items()) for variant in variants]
    algorithms = [variant.get("algorithm", variant.get("trainer")) for variant in variants]
    kinds = algorithms if len(set(algorithms)) > 1 else identities
    hues = {kind: number % HUES for number, kind in enumerate(dict.fromkeys(kinds))}
    taken: Counter[int] = Counter()
    numbers: dict[Any, int] = {}
    for identity, kind in zip(identities, kinds, strict=True):
        if identity not in numbers:
            numbers[identity] = hues[kind] + HUES * taken[hues[kind]]
            taken[hues[kind]] += 1
    return [numbers[identity] for identity in identities]


def group_labels(points: Sequence[Mapping[str, Any]], without: tuple[str, ...] = ()) -> list[str]:
    """Label each point by the keys that vary, or by its algorithm where none does."""
    if len(points) > 1 and all(labels := run_labels(points, without)):
        return labels
    return [str(point.get("algorithm", point["sweep"])) for point in points]


# Returns


def final_returns(found: Sequence[Group], *, intervals: bool = True) -> list[Final]:
    """Return the final returns of every group, in order; without ``intervals`` in a tenth of the time."""
    finals = []
    for group in found:
        rows, note = group.counted()
        values, lost = final_values(rows)
        estimate = estimate_of(values, intervals=intervals)
        finals.append(Final(group, values, estimate, joined([note, lost]), terms_of(rows)))
    return finals


def final_values(rows: Sequence[_Point]) -> tuple[tuple[float, ...], str]:
    """Return the finite final returns, and a note on runs without one."""
    values = known(rows, "final_return")
    lost = len(rows) - len(values)
    return values, f"{lost} of {len(rows)} without a finite return" if lost else ""


def estimate_of(sample: Sequence[float], *, intervals: bool = True) -> Estimate | None:
    """Estimate a sample of finite numbers, ``None`` for an empty one."""
    if not len(sample):
        return None
    value, low, high = band_of(np.array(sample)[:, None], intervals)
    ends = (None if low is None else float(low[0]), None if high is None else float(high[0]))
    return Estimate(float(value[0]), *ends, len(sample))


def curves(collected: Collected, found: Sequence[Group], metric: str | None = None) -> list[Curve]:
    """Return the curve of a metric, by default the return, of every group that has one, in order."""
    return next(several_curves(collected, found, [metric]))


def several_curves(
    collected: Collected, found: Sequence[Group], metrics: Sequence[str | None]
) -> Iterator[list[Curve]]:
    """Yield the curves of each metric, as :func:`curves`, and read the tables once for all."""
    rows = [row for group in found for row in group.rows]
    series: SeriesByRun = {}
    if names := [name for name in metrics if name is not None]:
        series = series_of(collected, rows, names)
    if None in metrics:
        series = {**series, **series_of(collected, rows)}
    for metric in metrics:
        wanted = None if metric is None else [metric]
        yield [curve for group in found if (curve := _curve(group, series, wanted)) is not None]


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
    collected: Collected, rows: Sequence[_Point], metrics: Collection[str] | None = None
) -> SeriesByRun:
    """Return these metrics of these runs, by default their returns."""
    names = metrics or {name for row in rows for name in returns_of(row["trainer"])}
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


def _curve(group: Group, series: SeriesByRun, metrics: Sequence[str] | None = None) -> Curve | None:
    rows, note = group.counted()
    unfinished = not rows
    rows = rows or list(group.rows)
    for metric in metrics or returns_of(group.rows[0]["trainer"]):
        keys = [(row["sweep"], row["run_id"], metric) for row in rows]
        runs = tuple(row for row, key in zip(rows, keys, strict=True) if key in series)
        found = [series[key] for key in keys if key in series]
        if found:
            break
    else:
        return None
    frames, scores = on_common_frames([(own.frames, own.values) for own in found])
    seconds = held([(own.frames, own.seconds) for own in found], frames)
    lost = len(rows) - len(found)
    ends = {float(own.frames[-1]) for own in found}
    notes = [
        note,
        f"{lost} of {len(rows)} seeds have no values" if lost else "",
        f"seeds differ in length, cut at {min(ends):,.0f} frames" if len(ends) > 1 else "",
        "not finished" if unfinished else "",
    ]
    if not len(frames):
        return None
    return Curve(frames, scores, group, metric, unfinished, joined(notes), seconds, runs)


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


# The bootstrap

# An interquartile mean and both ends of its interval, point by point; no interval of too few seeds.
Band = tuple["Floats", "Floats | None", "Floats | None"]


def band_of(scores: Floats, intervals: bool = True) -> Band:
    """Return the interquartile mean and interval of a matrix (seeds × points), point by point."""
    enough = intervals and len(scores) >= INTERVAL_SEEDS
    low, high = bootstrap_interval(scores) if enough else (None, None)
    return interquartile_mean(scores), low, high


def interquartile_mean(scores: Floats, axis: int = 0) -> Floats:
    """Return the interquartile mean of each column (seeds × columns), as rliable's ``aggregate_iqm`` does.

    It cuts a whole number of seeds at each end, so up to three seeds it is their mean.
    """
    n = scores.shape[axis]
    kept = np.arange(n // 4, n - n // 4)
    means: Floats = np.sort(scores, axis=axis).take(kept, axis=axis).mean(axis=axis)
    return means


def bootstrap_interval(scores: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % percentile interval of each column's interquartile mean (seeds × columns).

    Seeds are resampled, by the same fixed draws in every column.
    """
    generator, number = np.random.default_rng(_BOOTSTRAP_SEED), len(scores)
    at_once = max(1, _MOST_RESAMPLED // max(1, scores.size))
    means = []
    for first in range(0, RESAMPLES, at_once):
        drawn = generator.integers(number, size=(min(at_once, RESAMPLES - first), number))
        means.append(interquartile_mean(scores[drawn], axis=1))
    low, high = np.percentile(np.concatenate(means), (2.5, 97.5), axis=0)
    return low, high


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a median; infinite values are larger than all others."""
    drawn = np.random.default_rng(_BOOTSTRAP_SEED).integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.sort(np.median(np.array(values)[drawn], axis=1))
    cut = RESAMPLES // 40
    return float(medians[cut]), float(medians[-1 - cut])


def finite(value: float | None) -> bool:
    """Return whether a value is known and finite."""
    return value is not None and math.isfinite(value)


def diverged(row: _Point) -> bool:
    """Return whether a finished run recorded a return, but no finite one in the end."""
    return row["return_metric"] is not None and not finite(row["final_return"])


def known(rows: Iterable[_Point], column: str) -> tuple[float, ...]:
    """Return the finite values of a column."""
    return tuple(row[column] for row in rows if finite(row[column]))


def middle(values: Sequence[float]) -> float | None:
    """Return the median, ``None`` for no values."""
    return median(values) if values else None


def joined(notes: Iterable[str]) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)

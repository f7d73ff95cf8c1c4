"""Group runs by seed, and estimate their final returns and learning curves.

A group is all runs of a sweep that differ in nothing but the seed. Returns are raw: groups are compared
within a task and never averaged across tasks. Aggregates are interquartile means over seeds, with 95 %
intervals by bootstrap over seeds, as rliable defines them; one seed has no interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.comparability import ReturnTerms, terms_of
from orchestrator.config.trainers import returns_of
from orchestrator.core.labels import run_labels
from orchestrator.core.types import RunState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_Point = Mapping[str, Any]

# Most variants that can be distinguished by colour and dash.
FEW_VARIANTS = 24
RESAMPLES = 1000
_BOOTSTRAP_SEED = 20
# Columns resampled at once, which bounds the memory.
_COLUMNS_AT_ONCE = 200
_CURVE_POINTS = 100


@dataclass(frozen=True)
class Group:
    """Runs of one sweep that differ only in their seed. ``rows`` are their rows of the table of runs.

    ``variant`` is the part of ``point`` that other tasks and other sweeps may have as well. ``number`` counts
    variants and ``side`` sweeps, from 0: they fix colour and dash in every picture.
    """

    sweep: str
    number: int
    side: int
    label: str
    point: Mapping[str, Any]
    variant: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def task(self) -> str:
        """The task, empty if the grid names none."""
        return str(self.point.get("task", ""))

    @property
    def states(self) -> dict[str, int]:
        """Number of runs in each state."""
        return states_of(self.rows)

    def counted(self) -> tuple[list[Mapping[str, Any]], str]:
        """Return the runs that count, and a note on those left out."""
        return counted_rows(self.rows)


def states_of(rows: Sequence[_Point]) -> dict[str, int]:
    """Count the runs in each state."""
    counted = Counter(row["state"] for row in rows)
    return {state.value: counted[state.value] for state in RunState if counted[state.value]}


def counted_rows(rows: Sequence[_Point]) -> tuple[list[_Point], str]:
    """Return the finished runs, or stale ones if there is nothing else, and a note on those left out."""
    done = [row for row in rows if row["state"] == RunState.DONE.value]
    stale = [row for row in rows if row["state"] == RunState.STALE.value]
    if done:
        return done, f"{len(stale)} stale left out" if stale else ""
    return stale, f"all {len(stale)} stale" if stale else ""


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean of ``n`` seeds with its 95 % interval, ``None`` for one seed."""

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
class Curve:
    """A group's return over training frames; arrays have one entry per point, no band for n=1.

    It covers the frames that all seeds share. ``unfinished``: no seed of it is done yet.
    """

    group: Group
    metric: str
    frames: Floats
    value: Floats
    low: Floats | None
    high: Floats | None
    n: int
    unfinished: bool
    note: str


def groups(collected: Collected) -> tuple[Group, ...]:
    """Return the groups of the present grids, in the order of their first run."""
    own = [key for key in collected.keys if key != "seed"]
    members: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in collected.runs.iter_rows(named=True):
        if row["in_grid"]:
            members.setdefault((row["sweep"], *(row[key] for key in own)), []).append(row)
    points = [
        {key: value for key, value in zip(("sweep", *own), values, strict=True) if value is not None}
        for values in members
    ]
    trainers = [rows[0]["trainer"] for rows in members.values()]
    variants = _variants(points, trainers)
    sides = list(dict.fromkeys(point["sweep"] for point in points))
    return tuple(
        Group(point["sweep"], number, sides.index(point["sweep"]), label, point, variant, tuple(rows))
        for point, number, label, variant, rows in zip(
            points,
            _numbers(points, variants),
            group_labels(points),
            variants,
            members.values(),
            strict=True,
        )
    )


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


def _numbers(points: Sequence[_Point], variants: Sequence[_Point]) -> list[int]:
    """Number each variant, over all tasks if few enough to be distinguished, else by task."""
    identities = [tuple(variant.items()) for variant in variants]
    few = len(set(identities)) <= FEW_VARIANTS
    seen: dict[Any, dict[Any, int]] = {}
    numbers = []
    for point, identity in zip(points, identities, strict=True):
        own = seen.setdefault(None if few else point.get("task"), {})
        numbers.append(own.setdefault(identity, len(own)))
    return numbers


def group_labels(points: Sequence[Mapping[str, Any]], without: tuple[str, ...] = ()) -> list[str]:
    """Label each point by the keys that vary, or by its algorithm where none does."""
    if len(points) > 1 and all(labels := run_labels(points, without)):
        return labels
    return [str(point.get("algorithm", point["sweep"])) for point in points]


# Returns


def final_returns(found: Sequence[Group], *, intervals: bool = True) -> list[Final]:
    """Return the final returns of every group, in order; without ``intervals`` in a tenth of the time."""
    counted = [group.counted() for group in found]
    values = [
        tuple(row["final_return"] for row in rows if finite(row["final_return"])) for rows, _ in counted
    ]
    estimates = estimates_of(values, intervals=intervals)
    finals = []
    for group, own, estimate, (rows, note) in zip(found, values, estimates, counted, strict=True):
        lost = len(rows) - len(own)
        notes = [note, f"{lost} of {len(rows)} without a finite return" if lost else ""]
        finals.append(Final(group, own, estimate, _joined(notes), terms_of(rows)))
    return finals


def estimates_of(samples: Sequence[Sequence[float]], *, intervals: bool = True) -> list[Estimate | None]:
    """Estimate each sample of finite numbers, ``None`` for an empty one."""
    import numpy as np

    found = iter(bands_of([np.array(own)[:, None] for own in samples if len(own)], intervals))
    return [_estimate(next(found), len(own)) if len(own) else None for own in samples]


def _estimate(band: Band, n: int) -> Estimate:
    value, low, high = band
    ends = (None if low is None else float(low[0]), None if high is None else float(high[0]))
    return Estimate(float(value[0]), *ends, n)


def curves(collected: Collected, found: Sequence[Group]) -> list[Curve]:
    """Return the learning curve of every group that has one, in order."""
    import numpy as np

    series = _series(collected, found)
    drafts = [draft for group in found if (draft := _draft(group, series)) is not None]
    bands = bands_of([draft.scores for draft in drafts])
    return [
        Curve(
            draft.group,
            draft.metric,
            np.asarray(draft.frames, dtype=np.float64),
            value,
            low,
            high,
            len(draft.scores),
            draft.unfinished,
            draft.note,
        )
        for draft, (value, low, high) in zip(drafts, bands, strict=True)
    ]


_Series = Mapping[tuple[str, str, str], "tuple[Floats, Floats]"]


def _series(collected: Collected, found: Sequence[Group]) -> _Series:
    """Return (sweep, run_id, metric) → frames and finite values of that run's return metrics."""
    import polars as pl

    names = {name for group in found for row in group.rows for name in returns_of(row["trainer"])}
    wanted = {row["run_id"] for group in found for row in group.rows}
    table = collected.metrics.filter(
        pl.col("name").is_in(list(names)) & pl.col("value").is_finite() & pl.col("run_id").is_in(list(wanted))
    )
    return {
        key: (part["frames"].to_numpy().astype(float), part["value"].to_numpy())
        for key, part in table.partition_by("sweep", "run_id", "name", as_dict=True).items()
    }


@dataclass(frozen=True, eq=False)
class _Draft:
    """A curve before its statistics. ``scores``: seeds × points."""

    group: Group
    metric: str
    frames: Floats
    scores: Floats
    unfinished: bool
    note: str


def _draft(group: Group, series: _Series) -> _Draft | None:
    rows, note = group.counted()
    unfinished = not rows
    rows = rows or list(group.rows)
    for metric in returns_of(group.rows[0]["trainer"]):
        keys = [(row["sweep"], row["run_id"], metric) for row in rows]
        found = [series[key] for key in keys if key in series]
        if found:
            break
    else:
        return None
    frames, scores = on_common_frames(found)
    lost = len(rows) - len(found)
    ends = {float(own[-1]) for own, _ in found}
    notes = [
        note,
        f"{lost} of {len(rows)} seeds have no values" if lost else "",
        f"seeds differ in length, cut at {min(ends):,.0f} frames" if len(ends) > 1 else "",
        "not finished" if unfinished else "",
    ]
    return _Draft(group, metric, frames, scores, unfinished, _joined(notes)) if len(frames) else None


def on_common_frames(series: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Resample runs' (frames, values) on common frames: (points,), and values of shape (runs, points).

    A value holds until the run's next one. The frames begin where every run has a value and end with the
    shortest run, so nothing is extrapolated; they are empty if none is common to all.
    """
    import numpy as np

    first, last = max(frames[0] for frames, _ in series), min(frames[-1] for frames, _ in series)
    union = np.unique(np.concatenate([frames for frames, _ in series]))
    grid = union[(union >= first) & (union <= last)]
    if len(grid) > _CURVE_POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _CURVE_POINTS).round().astype(int))]
    rows = [values[np.searchsorted(frames, grid, side="right") - 1] for frames, values in series]
    return grid, np.array(rows, dtype=np.float64).reshape(len(series), len(grid))


# The bootstrap

# An interquartile mean and both ends of its interval, point by point; no interval of one seed.
Band = tuple["Floats", "Floats | None", "Floats | None"]


def bands_of(scores: Sequence[Floats], intervals: bool = True) -> list[Band]:
    """Return the interquartile mean and interval of each matrix (seeds × points), point by point."""
    bands: list[Band] = []
    for matrix in scores:
        low, high = bootstrap_interval(matrix) if intervals and len(matrix) > 1 else (None, None)
        bands.append((interquartile_mean(matrix), low, high))
    return bands


def interquartile_mean(scores: Floats, axis: int = 0) -> Floats:
    """Return the interquartile mean of each column (seeds × columns), as rliable's ``aggregate_iqm`` does.

    It cuts a whole number of seeds at each end, so up to three seeds it is their mean.
    """
    from scipy.stats import trim_mean  # type: ignore[import-untyped]

    means: Floats = trim_mean(scores, 0.25, axis=axis)
    return means


def bootstrap_interval(scores: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % percentile interval of each column's interquartile mean (seeds × columns).

    Seeds are resampled, by the same fixed draws in every column.
    """
    import numpy as np

    drawn = np.random.default_rng(_BOOTSTRAP_SEED).integers(len(scores), size=(RESAMPLES, len(scores)))
    ends = []
    for start in range(0, scores.shape[1], _COLUMNS_AT_ONCE):
        means = interquartile_mean(scores[drawn, start : start + _COLUMNS_AT_ONCE], axis=1)
        ends.append(np.percentile(means, (2.5, 97.5), axis=0))
    low, high = np.concatenate(ends, axis=1)
    return low, high


def finite(value: float | None) -> bool:
    """Return whether a value is known and finite."""
    return value is not None and math.isfinite(value)


def _joined(notes: Sequence[str]) -> str:
    return "; ".join(note for note in notes if note)

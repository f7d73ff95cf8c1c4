"""Interquartile means and medians of samples, with intervals by bootstrap, as rliable defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from orchestrator.analysis.statistics.significance import INTERVAL_SEEDS, Floats

RESAMPLES = 1000

_BOOTSTRAP_SEED = 20

# Resampled numbers held at once, which bounds the memory: 32 MB, and as much for their order.
_MOST_RESAMPLED = 4_000_000


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


# An interquartile mean and both ends of its interval, point by point; no interval of too few seeds.
Band = tuple["Floats", "Floats | None", "Floats | None"]


def band_of(scores: Floats, intervals: bool = True) -> Band:
    """Return the interquartile mean and interval of a matrix (seeds × points), point by point."""
    enough = intervals and len(scores) >= INTERVAL_SEEDS
    low, high = bootstrap_interval(scores) if enough else (None, None)
    return interquartile_mean(scores), low, high


def estimate_of(sample: Sequence[float], *, intervals: bool = True) -> Estimate | None:
    """Estimate a sample of finite numbers, ``None`` for an empty one."""
    if not len(sample):
        return None
    value, low, high = band_of(np.array(sample)[:, None], intervals)
    ends = (None if low is None else float(low[0]), None if high is None else float(high[0]))
    return Estimate(float(value[0]), *ends, len(sample))


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
    low, high = np.percentile(_resampled(scores, np.random.default_rng(_BOOTSTRAP_SEED)), (2.5, 97.5), axis=0)
    return low, high


def _resampled(scores: Floats, generator: np.random.Generator) -> Floats:
    """Return the interquartile means of each column in every resample of the seeds."""
    number = len(scores)
    at_once = max(1, _MOST_RESAMPLED // max(1, scores.size))
    means = []
    for first in range(0, RESAMPLES, at_once):
        drawn = generator.integers(number, size=(min(at_once, RESAMPLES - first), number))
        means.append(interquartile_mean(scores[drawn], axis=1))
    return np.concatenate(means)


def difference_of(mine: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Estimate the difference of two interquartile means; the seeds of each side are resampled."""
    sides, fewest = [np.array(side)[:, None] for side in (mine, theirs)], min(len(mine), len(theirs))
    value = float((interquartile_mean(sides[0]) - interquartile_mean(sides[1]))[0])
    if fewest < INTERVAL_SEEDS:
        return Estimate(value, None, None, fewest)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    draws = _resampled(sides[0], generator) - _resampled(sides[1], generator)
    low, high = np.percentile(draws, (2.5, 97.5))
    return Estimate(value, float(low), float(high), fewest)


def over_tasks(scores: Sequence[Floats], measure: Callable[[Floats], Floats]) -> Estimate:
    """Estimate a measure of all runs of several tasks, one array of scores each.

    ``measure`` reduces the last axis. The interval is by stratified bootstrap: runs are resampled within
    each task, as rliable does (Agarwal et al., 2021).
    """
    value, fewest = float(measure(np.concatenate(scores))), min(map(len, scores))
    if fewest < INTERVAL_SEEDS:
        return Estimate(value, None, None, fewest)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    drawn = [own[generator.integers(len(own), size=(RESAMPLES, len(own)))] for own in scores]
    low, high = np.percentile(measure(np.concatenate(drawn, axis=1)), (2.5, 97.5))
    return Estimate(value, float(low), float(high), fewest)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a median; infinite values are larger than all others."""
    drawn = np.random.default_rng(_BOOTSTRAP_SEED).integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.sort(np.median(np.array(values)[drawn], axis=1))
    cut = RESAMPLES // 40
    return float(medians[cut]), float(medians[-1 - cut])


def finite(value: float | None) -> bool:
    """Return whether a value is known and finite."""
    return value is not None and math.isfinite(value)


def middle(values: Sequence[float]) -> float | None:
    """Return the median, ``None`` for no values."""
    return median(values) if values else None


def weights(generator: np.random.Generator, n: int) -> Floats:
    """Return (resamples, n): the weight of each run in each resample."""
    weights: Floats = generator.multinomial(n, [1 / n] * n, size=RESAMPLES) / n
    return weights

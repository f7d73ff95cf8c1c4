"""Tests of differences that hold with few seeds, corrected for the number of comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Below this many seeds a side there is no verdict.
FEW_SEEDS = 5
# What the rate of false verdicts holds for, as simulated for two equal variants.
ONE_LOOK = (
    "The 5 % of false verdicts holds for one look, at seeds planned beforehand: adding seeds after a look "
    "raises it (two equal variants: 11 % after four looks, 18 % seed by seed from 5 to 20)."
)
# Below the first of these there is no interval: of 2 and 3 seeds it would cover 54 % and 71 % where 95 % is
# written. Below the second it covers less than it says, with a warning.
INTERVAL_SEEDS, NOMINAL_SEEDS = 4, 10
# A corrected p-value above this counts as noise.
LEVEL = 0.05
# Beyond so many steps the exact test is slow, and the normal distribution close enough: both sides have some
# sixty runs then.
_MOST_EXACT = 100_000_000
# The most sums of ranks over several tasks that are told apart.
_MOST_SUMS = 200_000
# Permutations of the test of all variants together, and ranks that are permuted at once.
_DEALS, _MOST_DEALT = 9_999, 4_000_000
_SEED = 20


def holm(chances: Sequence[float], among: int) -> list[float]:
    """Correct p-values by Holm's method for the ``among`` comparisons that these were picked from."""
    corrected = [1.0] * len(chances)
    least = 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (among - rank) * chances[number]))
        corrected[number] = least
    return corrected


def wins(mine: Floats, theirs: Floats) -> Floats:
    """Return a (mine, theirs) matrix: 1 for each pair in which mine returns more, a half for a tie."""
    won: Floats = (mine[:, None] > theirs) + 0.5 * (mine[:, None] == theirs)
    return won


def chances_to_win(several: Sequence[Sequence[float] | Floats]) -> list[float]:
    """Return for each of two samples or more the mean chance that one of it exceeds one of another sample.

    A tie counts half, and every other sample weighs the same. One sort for any number of samples.
    """
    sizes = np.array([len(sample) for sample in several])
    values = np.concatenate([np.asarray(sample, dtype=float) for sample in several])
    weights = np.repeat(1 / sizes, sizes)
    order = np.argsort(values, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weights[order])])
    ends = [np.searchsorted(values[order], values, side) for side in ("left", "right")]
    won = np.add.reduceat(weights * (below[ends[0]] + below[ends[1]]) / 2, np.cumsum(sizes) - sizes)
    # A sample wins half against itself. Sums of thirds are no thirds: equal chances shall be equal.
    return [round(float(chance), 12) for chance in (won - 0.5) / (len(several) - 1)]


def chance_of_wins(mine: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """Return the two-sided p-value of how often one side returns more.

    Both hold one number per run, per task; every task weighs the same. The higher of two p-values: that of
    the permutation test of ranks, which is right for sides that are alike, and Brunner–Munzel's, which is
    about right for sides that win as often but differ in spread.
    """
    return max(chance_of_ranks(mine, theirs), chance_of_placements(mine, theirs))


def average_ranks(values: Floats) -> Floats:
    """Return the rank of each value from 1; equal values share the mean of theirs."""
    return pl.Series(values).rank("average").to_numpy(writable=True)


def chance_of_ranks(mine: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """Return the p-value by a permutation test of the ranks within each task.

    Exact, ties included; by the normal distribution for sides with very many runs.
    """
    away, variance = 0.0, 0.0
    dealt: list[_Dealt] | None = []
    for one, other in zip(mine, theirs, strict=True):
        n, m = len(one), len(other)
        ranks = average_ranks(np.concatenate([one, other]))
        away += (ranks[:n].sum() - n * (n + m + 1) / 2) / (n * m)
        # Variance of the sum of n ranks drawn without replacement.
        variance += n * m / (n + m) * ranks.var(ddof=1) / (n * m) ** 2
        whole = np.sort(np.rint(2 * ranks).astype(int))
        step = int(np.gcd.reduce(whole - whole[0])) or 1
        reduced = (whole - whole[0]) // step
        if dealt is not None and (min(n, m) + 1) * int(reduced.sum()) * (n + m) <= _MOST_EXACT:
            parts = _ways(tuple(reduced.tolist()), min(n, m))
            dealt.append(_Dealt(step, n * m, parts if n <= m else parts[::-1]))
        else:
            dealt = None
    if not variance:
        return 1.0
    return math.erfc(abs(away) / math.sqrt(2 * variance)) if dealt is None else _tail(away, dealt)


@dataclass(frozen=True)
class _Dealt:
    """How a task's rank sum is distributed if its runs are dealt anew.

    ``parts``: the parts of all deals with a sum of 0, 1, …, in units of ``step`` half ranks. ``pairs``: of
    runs, one of either side.
    """

    step: int
    pairs: int
    parts: Floats


@lru_cache(maxsize=1024)
def _ways(ranks: tuple[int, ...], n: int) -> Floats:
    """Return the parts of all choices of ``n`` of these sorted ranks by their sum, the lowest one first."""
    total = sum(ranks[-n:])
    ways = np.zeros((n + 1, total + 1))
    ways[0, 0] = 1
    for rank in ranks:
        with_it = ways.copy()
        with_it[1:, rank:] += ways[:-1, : total + 1 - rank]
        ways = with_it
    parts: Floats = ways[n][sum(ranks[:n]) :] / ways[n].sum()
    return parts


def _tail(away: float, dealt: Sequence[_Dealt]) -> float:
    """Return the part of all deals in which wins are as far as ``away`` from those expected.

    ``away``: the sum over tasks of the distances of the chance to win from a half.
    """
    # In units of one over twice the least common multiple of all pairs every sum is a whole number.
    unit = math.lcm(*(deal.pairs for deal in dealt))
    steps = [deal.step * (unit // deal.pairs) for deal in dealt]
    common = math.gcd(*steps)
    size, rounded = 2 * unit / common, 0.0
    length = sum(step // common * len(deal.parts) for step, deal in zip(steps, dealt, strict=True))
    if length > _MOST_SUMS:  # a coarser grid: what may have been rounded off counts as far
        size *= _MOST_SUMS / length
        rounded = len(dealt) / 2
    parts, middle = np.ones(1), 0.0
    for deal in dealt:
        places = np.arange(len(deal.parts)) * (deal.step * size / (2 * deal.pairs))
        own = np.bincount(np.rint(places).astype(int), deal.parts).astype(float)
        middle += float(places @ deal.parts)
        parts = _convolved(parts, own) if len(parts) > 1 else own
    off = np.abs(np.arange(len(parts)) - middle)
    return min(1.0, max(0.0, float(parts[off >= abs(away) * size - rounded - 1e-6].sum())))


def _convolved(one: Floats, other: Floats) -> Floats:
    """Return the distribution of a sum, by Fourier's transform: direct sums are slow for many tasks."""
    size = len(one) + len(other) - 1
    padded = 1 << (size - 1).bit_length()
    summed: Floats = np.fft.irfft(np.fft.rfft(one, padded) * np.fft.rfft(other, padded), padded)[:size]
    return summed


def chance_of_placements(mine: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """Return the p-value by Brunner and Munzel's test, summed over tasks; 0 where one side wins always."""
    from scipy.special import stdtr  # type: ignore[import-untyped]

    away, variance, spread = 0.0, 0.0, 0.0
    for one, other in zip(mine, theirs, strict=True):
        won = wins(one, other)
        away += float(won.mean()) - 0.5
        for placed in (won.mean(axis=1), won.mean(axis=0)):
            if len(placed) > 1:
                own = float(placed.var(ddof=1)) / len(placed)
                variance += own
                spread += own**2 / (len(placed) - 1)
    if variance <= 1e-12:
        return 0.0 if abs(away) > 1e-12 else 1.0
    return float(2 * stdtr(variance**2 / spread, -abs(away) / math.sqrt(variance)))


def chance_alike(
    panels: Sequence[Sequence[Floats] | Floats], exact: float = 1.0, *, paired: bool = False
) -> float:
    """Return the p-value of several variants' differences, if all of them are alike in every task.

    ``panels`` holds for each task one number per run, per variant. Kruskal and Wallis's statistic, summed
    over tasks; its distribution is that of fixed random permutations within each task. ``exact``: a p-value
    of the same by another test, which is taken where no permutation is as extreme and it is lower.
    ``paired``: the variants' first runs belong together, as do all others in order; numbers are compared with
    the mean of these, and permuted among them alone.
    """
    seen, dealt = 0.0, np.zeros(_DEALS)
    for number, samples in enumerate(panels):
        sizes = tuple(map(len, samples))
        level = np.mean(samples, axis=0) if paired else 0.0
        ranks = average_ranks(np.concatenate([sample - level for sample in samples]))
        seen += float(_between(ranks[None], sizes)[0])
        own = _deals((ranks if paired else np.sort(ranks)).tobytes(), sizes, paired)
        dealt += np.random.default_rng((_SEED, number)).permutation(own)
    extreme = int((dealt >= seen - 1e-9).sum())
    return (1 + extreme) / (1 + _DEALS) if extreme else least_alike(exact)


def least_alike(exact: float) -> float:
    """Return the p-value of :func:`chance_alike` where no permutation is as extreme.

    Two tests need no correction here: at levels that permutations can reach they decide alone, and at lower
    ones ``exact`` does.
    """
    return min(exact, 1 / (1 + _DEALS))


@lru_cache(maxsize=256)
def _deals(ranks: bytes, sizes: tuple[int, ...], paired: bool) -> Floats:
    """Return the statistic of many deals of these ranks, among all runs or among those of each pair."""
    generator, deals = np.random.default_rng(_SEED), []
    whole = np.frombuffer(ranks)
    at_once = max(1, _MOST_DEALT // len(whole))
    for first in range(0, _DEALS, at_once):
        drawn = np.tile(whole, (min(at_once, _DEALS - first), 1))
        parts = drawn.reshape(len(drawn), len(sizes), -1) if paired else drawn
        deals.append(_between(generator.permuted(parts, axis=1).reshape(drawn.shape), sizes))
    return np.concatenate(deals)


def _between(ranks: Floats, sizes: Sequence[int]) -> Floats:
    """Return Kruskal and Wallis's statistic of each row of ranks, which holds the variants one by one."""
    variance = float(ranks[0].var(ddof=1))
    if not variance:
        return np.zeros(len(ranks))
    starts = np.cumsum([0, *sizes[:-1]])
    middles = np.add.reduceat(ranks, starts, axis=1) / np.array(sizes)
    between: Floats = (np.array(sizes) * (middles - (ranks.shape[1] + 1) / 2) ** 2).sum(axis=1) / variance
    return between


def least_chance(sizes: Sequence[tuple[int, int]]) -> float:
    """Return the lowest p-value that :func:`chance_of_wins` can give with these numbers of runs per task."""
    return _least_chance(tuple(sizes))


@lru_cache(maxsize=1024)
def _least_chance(sizes: tuple[tuple[int, int], ...]) -> float:
    return chance_of_wins(
        [np.arange(n, dtype=float) for n, _ in sizes], [np.arange(n, n + m, dtype=float) for n, m in sizes]
    )


def mean_with_chance(differences: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the 95 % interval of a mean by Student's t, and the p-value of its distance from zero.

    ``None`` for fewer than two values.
    """
    from statistics import fmean, stdev

    from scipy.special import stdtr, stdtrit

    n = len(differences)
    if n < 2:
        return None
    middle, error = fmean(differences), stdev(differences) / math.sqrt(n)
    if error <= 1e-12 * abs(middle):  # all alike, but for rounding
        return middle, middle, float(middle == 0)
    reach = float(stdtrit(n - 1, 0.975)) * error
    return middle - reach, middle + reach, float(2 * stdtr(n - 1, -abs(middle) / error))

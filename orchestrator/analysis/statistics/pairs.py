"""Compare runs within pairs that share prefix and seed: forks of one run, which share its luck. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of, weights
from orchestrator.analysis.statistics.significance import Floats, average_ranks
from orchestrator.core.formatting import count

# What runs are paired by: the id of the run that they begin with, and their seed.
Luck = tuple[Any, Any]
# Fewer pairs are compared as other runs are, as no test of signs can tell them apart: 5 have p ≥ 1/16.
FEW_PAIRS = 6
# Beyond so many pairs the exact test is slow, and the normal distribution close enough.
_MOST_EXACT = 300
_SEED = 20


def paired(
    samples: Sequence[Sequence[float] | Floats], lucks: Sequence[Sequence[Luck]], fewest: int = FEW_PAIRS
) -> Floats | None:
    """Return a (samples, pairs) matrix of the numbers of runs with common luck.

    ``lucks``: of each number of each sample, empty for runs without a prefix. ``None`` unless every number of
    one sample has its counterpart in all others, or with fewer pairs than ``fewest``.
    """
    by_luck = [dict(zip(luck, sample, strict=False)) for luck, sample in zip(lucks, samples, strict=True)]
    common = [luck for luck in by_luck[0] if all(luck in own for own in by_luck)]
    if len(common) < max(fewest, min(map(len, samples))):
        return None
    return np.array([[own[luck] for luck in common] for own in by_luck], dtype=float)


def chance_of_pairs(several: Sequence[Floats]) -> float:
    """Return the two-sided p-value of differences within pairs, per task: Wilcoxon's signed rank test.

    Exact, ties included, by all signs that the differences could have; ranks are within a task. 1 where the
    side with the higher ranks does not win most pairs, so that both say the same.
    """
    away, steps = 0, list[int]()
    for differences in several:
        unequal = differences[differences != 0]
        ranks = np.rint(2 * average_ranks(np.abs(unequal))).astype(int)
        away += int((ranks * np.sign(unequal)).sum())
        steps += ranks.tolist()
    if away * (pairs_won(several, intervals=False)[0] - 1 / 2) <= 0:
        return 1.0
    if len(steps) > _MOST_EXACT:
        return math.erfc(abs(away) / math.sqrt(2 * sum(step**2 for step in steps)))
    ways = _ways(tuple(sorted(steps)))
    return min(1.0, float(ways[np.abs(2 * np.arange(len(ways)) - sum(steps)) >= abs(away)].sum()))


@lru_cache(maxsize=1024)
def _ways(steps: tuple[int, ...]) -> Floats:
    """Return the parts of all choices of signs by the sum of the positive steps, from 0 on."""
    ways = np.ones(1)
    for step in steps:
        ways = (np.pad(ways, (step, 0)) + np.pad(ways, (0, step))) / 2
    return ways


def least_of_pairs(pairs: int) -> float:
    """Return the lowest p-value that :func:`chance_of_pairs` can give for so many pairs."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_won(
    several: Sequence[Floats], *, intervals: bool = True
) -> tuple[float, float | None, float | None]:
    """Return the share of pairs with a difference above zero, ties counting half, averaged over tasks.

    With its 95 % interval by bootstrap of pairs within each task.
    """
    won = [(np.sign(differences) + 1) / 2 for differences in several]
    value = float(np.mean([own.mean() for own in won]))
    if not intervals:
        return value, None, None
    generator = np.random.default_rng(_SEED)
    draws = np.mean([weights(generator, len(own)) @ own for own in won], axis=0)
    low, high = np.clip(np.round(np.quantile(draws, (0.025, 0.975)), 12), 0, 1)
    return value, float(low), float(high)


def difference_within(samples: Sequence[Sequence[float]], lucks: Sequence[Sequence[Luck]]) -> Estimate | None:
    """Estimate the interquartile mean of two samples' differences, with an interval by bootstrap of pairs.

    ``None`` where they are not :func:`paired`.
    """
    panel = paired(samples, lucks)
    return None if panel is None else estimate_of(panel[0] - panel[1])


def in_words(numbers: Iterable[int]) -> str:
    """Say that comparisons are paired, given the number of pairs of each, or how many are needed."""
    if not (known := sorted(numbers)):
        return ""
    if known[-1] < FEW_PAIRS:
        return f"{count(known[-1], 'pair')} by common prefix and seed, {FEW_PAIRS} needed for a paired test"
    enough = [number for number in known if number >= FEW_PAIRS]
    of = "–".join(dict.fromkeys(map(str, (enough[0], enough[-1]))))
    return f"paired by common prefix and seed, {of} pairs"

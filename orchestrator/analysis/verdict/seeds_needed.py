"""Estimate how many more seeds would tell two variants apart, from the spread of their returns so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from orchestrator.analysis.statistics.pairs import FEW_PAIRS, least_of_pairs
from orchestrator.analysis.statistics.significance import FEW_SEEDS, LEVEL, Floats, least_chance

# Chance of a verdict with so many seeds, if the returns differ as much as they seem to.
POWER = 0.8
MOST = 100
# Numbers of runs of both sides, per task.
_Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class MoreSeeds:
    """Number of further seeds of each variant in each task. ``at_least``: the spread is not known yet."""

    more: int
    at_least: bool = False

    def __str__(self) -> str:
        if self.more > MOST:
            return f"more than {MOST} more"
        return f"{'at least' if self.at_least else 'about'} {self.more} more"


def more_seeds(mine: Sequence[Floats], theirs: Sequence[Floats], times: float = 1.0) -> MoreSeeds:
    """Estimate how many more seeds a test of ranks would need to tell two variants apart.

    Both hold one number per run, per task; ``times`` is what the p-value is multiplied by.
    Noether's formula, with the chance to win that means and spread give for normal distributions.
    """
    sizes = tuple((len(one), len(other)) for one, other in zip(mine, theirs, strict=True))
    effects = [_effect(*pair) for pair in zip(mine, theirs, strict=True)]
    return _more(sizes, effects, _fewest(sizes, times), times)


def more_pairs(several: Sequence[Floats], times: float = 1.0) -> MoreSeeds:
    """Estimate how many more pairs of runs a test of their differences, given per task, would need.

    By the same formula: of two differences the sum is above zero as often as a run wins that is twice as many
    deviations ahead, and the share of these sums varies twice as much as that of wins.
    """
    sizes = tuple((len(apart), len(apart)) for apart in several)
    fewest = max(0, FEW_PAIRS - min(map(len, several)))
    while fewest <= MOST and least_of_pairs(sum(n + fewest for n, _ in sizes)) * times > LEVEL:
        fewest += 1
    effects = [_effect(apart, np.zeros(1)) for apart in several]
    return _more(sizes, [effect and 2 * effect for effect in effects], fewest, times, vary=2)


def _more(
    sizes: _Sizes, effects: Sequence[float | None], fewest: int, times: float, vary: float = 1
) -> MoreSeeds:
    """Estimate how many more seeds are enough for these effects, ``fewest`` or more.

    ``vary``: how many times the variance of the test's statistic is that of a test of ranks.
    """
    known = [effect for effect in effects if effect is not None]
    if len(known) < len(effects):
        return MoreSeeds(max(1, fewest), at_least=True)
    wins = [_wins(effect) for effect in known]
    away = abs(sum(chance for chance, _ in wins) / len(wins) - 0.5)
    spread = math.sqrt(sum(variance for _, variance in wins) / len(wins))
    normal = NormalDist()
    reach = normal.inv_cdf(1 - LEVEL / times / 2) * math.sqrt(1 / 6) + normal.inv_cdf(POWER) * spread
    least = (away * len(wins) / reach) ** 2 / vary
    more = next((more for more in range(1, MOST + 1) if _inverse(sizes, more) <= least), MOST + 1)
    return MoreSeeds(max(more, fewest))


def _inverse(sizes: _Sizes, more: int) -> float:
    """Return the sum over tasks of one over the number of seeds, the harmonic mean of both sides'."""
    return sum((1 / (n + more) + 1 / (m + more)) / 2 for n, m in sizes)


def _wins(effect: float) -> tuple[float, float]:
    """Return the chance that a run of the one wins, and the variance of its estimate times the seeds of each.

    Of two normal distributions that are ``effect`` deviations apart.
    """
    from scipy.special import owens_t  # type: ignore[import-untyped]

    apart = effect / math.sqrt(2)
    chance = NormalDist().cdf(apart)
    both = chance - 2 * float(owens_t(apart, 1 / math.sqrt(3)))  # one run wins against two
    return chance, max(0.0, 2 * (both - chance**2))


def _effect(mine: Floats, theirs: Floats) -> float | None:
    """Return the difference of means in pooled standard deviations; ``None`` of fewer than four runs.

    Corrected by Hedges' factor, as few seeds show too large an effect. Of three runs the factor is 0.
    """
    free = len(mine) + len(theirs) - 2
    if free < 2:
        return None
    difference = float(mine.mean() - theirs.mean())
    squares = float(((mine - mine.mean()) ** 2).sum() + ((theirs - theirs.mean()) ** 2).sum())
    if squares <= 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return (1 - 3 / (4 * free - 1)) * difference / math.sqrt(squares / free)


@cache
def _fewest(sizes: tuple[tuple[int, int], ...], times: float) -> int:
    """Return the fewest more seeds with which any pair could be told apart."""
    more = max(0, FEW_SEEDS - min(map(min, sizes)))
    while more <= MOST and least_chance([(n + more, m + more) for n, m in sizes]) * times > LEVEL:
        more += 1
    return more

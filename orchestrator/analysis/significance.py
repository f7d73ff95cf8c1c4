"""Tests of differences that hold with few seeds, corrected for the number of comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Below this many seeds a side there is no verdict.
FEW_SEEDS = 5
# Below the first of these there is no interval: of 2 and 3 seeds it would cover 54 % and 71 % where 95 % is
# written. Below the second it covers less than it says, with a warning.
INTERVAL_SEEDS, NOMINAL_SEEDS = 4, 10
# A corrected p-value above this counts as noise.
LEVEL = 0.05
# Beyond this many runs the normal distribution is close enough, and the exact test slow.
_MOST_EXACT = 60


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


def chance_of_wins(mine: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """Return the two-sided p-value of how often one side returns more.

    Both hold one number per run, per task; every task weighs the same. A permutation test of the ranks: exact
    for one task (ties included), by the normal distribution for several tasks and for many runs.
    """
    import numpy as np
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    away, variance, tasks = 0.0, 0.0, len(mine)
    for one, other in zip(mine, theirs, strict=True):
        n, m = len(one), len(other)
        ranks = rankdata(np.concatenate([one, other]))
        if tasks == 1 and n + m <= _MOST_EXACT:
            return _exact_chance(np.rint(2 * ranks).astype(int), n)
        away += (ranks[:n].sum() - n * (n + m + 1) / 2) / (n * m)
        # Variance of the sum of n ranks drawn without replacement.
        variance += n * m / (n + m) * ranks.var(ddof=1) / (n * m) ** 2
    return math.erfc(abs(away) / math.sqrt(2 * variance)) if variance else 1.0


def _exact_chance(ranks: NDArray[np.int_], n: int) -> float:
    """Return the share of all choices of ``n`` ranks with a sum as far off as that of the first n."""
    import numpy as np

    total = int(ranks.sum())
    ways = np.zeros((n + 1, total + 1))
    ways[0, 0] = 1
    for rank in map(int, ranks):
        with_it = ways.copy()
        with_it[1:, rank:] += ways[:-1, : total + 1 - rank]
        ways = with_it
    # Scaled by the number of ranks, so that the middle is a whole number too.
    off = np.abs(np.arange(total + 1) * len(ranks) - n * total)
    as_far = off >= off[int(ranks[:n].sum())]
    return float(ways[n][as_far].sum() / ways[n].sum())


def least_chance(sizes: Sequence[tuple[int, int]]) -> float:
    """Return the lowest p-value that :func:`chance_of_wins` can give with these numbers of runs per task."""
    import numpy as np

    return chance_of_wins(
        [np.arange(n, dtype=float) for n, _ in sizes], [np.arange(n, n + m, dtype=float) for n, m in sizes]
    )


def mean_with_chance(differences: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the 95 % interval of a mean by Student's t, and the p-value of its distance from zero.

    ``None`` for fewer than two values.
    """
    from statistics import fmean, stdev

    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

    n = len(differences)
    if n < 2:
        return None
    middle, error = fmean(differences), stdev(differences) / math.sqrt(n)
    if error <= 1e-12 * max(1.0, abs(middle)):  # all alike, but for rounding
        return middle, middle, float(abs(middle) <= 1e-12)
    reach = float(stdtrit(n - 1, 0.975)) * error
    return middle - reach, middle + reach, float(2 * stdtr(n - 1, -abs(middle) / error))

"""How many times better one thing is than another, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from orchestrator.stats import FEW_SEEDS, RESAMPLES

# A point of the grid → seed → a figure greater than zero.
Side = Mapping[tuple[Any, ...], Mapping[Any, float]]
_SEED = 20


@dataclass(frozen=True)
class Ratio:
    """How many times ``better`` beats ``other``: at speed, at money or at whatever was measured.

    ``low`` and ``high`` are its 95 % interval, ``None`` where there is too little for one. ``n``: pairs, or
    configurations where there are ``paired`` none.
    """

    better: str
    other: str
    value: float
    low: float | None
    high: float | None
    n: int
    paired: bool

    @property
    def beyond_noise(self) -> bool | None:
        """``None`` where so few cannot tell."""
        if self.low is None or self.high is None or self.n < FEW_SEEDS:
            return None
        return self.low > 1 or self.high < 1

    def __str__(self) -> str:
        noun = ("pair" if self.paired else "configuration") + ("" if self.n == 1 else "s")
        within = "" if self.low is None else f"95 % interval {self.low:.2f} to {self.high:.2f}, "
        verdict = {
            True: "more than noise",
            False: "no more than noise",
            None: f"too few to tell from noise, {FEW_SEEDS} can",
        }[self.beyond_noise]
        return f"{within}{self.n} {noun}: {verdict}"


def ratio(better: str, other: str, mine: Side, theirs: Side) -> Ratio | None:
    """The geometric mean of one side's figures over the other's: over pairs of the same point and seed if
    there are any, else over points that both have; ``None`` without either.
    """
    both = [point for point in mine if point in theirs]
    differences = [
        math.log(mine[point][seed]) - math.log(theirs[point][seed])
        for point in both
        for seed in mine[point]
        if seed in theirs[point]
    ]
    paired = bool(differences)
    if not paired:
        differences = [_middle(mine[point]) - _middle(theirs[point]) for point in both]
    if not differences:
        return None
    low, high = _interval(differences)
    return Ratio(better, other, math.exp(fmean(differences)), low, high, len(differences), paired)


def _middle(figures: Mapping[Any, float]) -> float:
    return fmean(map(math.log, figures.values()))


def _interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """95 % interval of the ratio that is the mean of these logarithms, resampled as they are."""
    import numpy as np

    if len(differences) < 2:
        return None, None
    draws = np.random.default_rng(_SEED).choice(differences, (RESAMPLES, len(differences)))
    low, high = np.exp(np.quantile(draws.mean(axis=1), (0.025, 0.975)))
    return float(low), float(high)

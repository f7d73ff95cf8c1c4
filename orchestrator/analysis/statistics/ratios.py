"""Ratios of speed, money or memory between two sides, and whether they exceed noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from orchestrator.analysis.statistics.significance import FEW_SEEDS, LEVEL, mean_with_chance

# A point of the grid → seed → a figure greater than zero.
Side = Mapping[tuple[Any, ...], Mapping[Any, float]]


@dataclass(frozen=True)
class Ratio:
    """Ratio of ``better`` to ``other`` in some figure, such as speed.

    ``low`` and ``high`` are its 95 % interval and ``chance`` the p-value of no difference, ``None`` with too
    little data. ``n``: pairs, or configurations where none are ``paired``. ``seeds``: of the side that has
    fewer. ``among``: the number of ratios that this one was picked from by its value.
    """

    better: str
    other: str
    value: float
    low: float | None
    high: float | None
    n: int
    paired: bool
    seeds: int
    chance: float | None = None
    among: int = 1

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the ratio exceeds noise; ``None`` with too few pairs or seeds for a verdict."""
        if self.chance is None or min(self.n, self.seeds) < FEW_SEEDS:
            return None
        return self.chance * self.among <= LEVEL

    @property
    def even(self) -> bool:
        """Whether it is 1 with the two decimals shown."""
        return f"{self.value:.2f}" == "1.00"

    @property
    def inverse(self) -> Ratio:
        """The ratio of the other side to this one."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return replace(self, better=self.other, other=self.better, value=1 / self.value, low=low, high=high)

    def __str__(self) -> str:
        noun = ("pair" if self.paired else "configuration") + ("" if self.n == 1 else "s")
        within = "" if self.low is None else f"95 % interval {self.low:.2f} to {self.high:.2f}, "
        if self.beyond_noise is None:
            of = f" of {self.seeds} seed{'s' * (self.seeds != 1)}" if self.seeds < self.n else ""
            return f"{within}{self.n} {noun}{of}: too few to tell from noise ({FEW_SEEDS} needed)"
        picked = f", corrected for {self.among} values" if self.among > 1 else ""
        significant = "significant" if self.beyond_noise else "not significant"
        return f"{within}{self.n} {noun}: {significant}{picked}"


def ratio(better: str, other: str, mine: Side, theirs: Side, *, among: int = 1) -> Ratio | None:
    """Return the geometric mean of one side's figures over the other's; ``None`` without common points.

    Uses pairs of the same point and seed if there are any, else the points that both have. The interval and
    the p-value are by Student's t, of the logarithms.
    """
    both = [point for point in mine if point in theirs]
    pairs = [(point, seed) for point in both for seed in mine[point] if seed in theirs[point]]
    differences = [math.log(mine[point][seed]) - math.log(theirs[point][seed]) for point, seed in pairs]
    seeds = len({seed for _, seed in pairs})
    if not pairs:
        differences = [_middle(mine[point]) - _middle(theirs[point]) for point in both]
        seeds = min(len({seed for point in both for seed in side[point]}) for side in (mine, theirs))
    if not differences:
        return None
    told = mean_with_chance([round(one, 12) for one in differences])  # equal figures differ by rounding
    low, high, chance = (_exp(told[0]), _exp(told[1]), told[2]) if told else (None, None, None)
    value = math.exp(fmean(differences))
    return Ratio(better, other, value, low, high, len(differences), bool(pairs), seeds, chance, among)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _middle(figures: Mapping[Any, float]) -> float:
    return fmean(map(math.log, figures.values()))

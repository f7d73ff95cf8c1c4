"""Amdahl's law fitted to frames/s: the part of the time that more actors do not shorten.

A frame takes ``serial + parallel / n`` seconds with n actors. Both parts are at least 0 and minimise the sum
of squares of relative deviations over runs. The interval is by bootstrap over the runs of each size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from orchestrator.analysis.statistics.bootstrap import RESAMPLES
from orchestrator.analysis.statistics.significance import Floats

# Fewer sizes fit any two parts.
FEW_SIZES = 3
# Frames/s that doubling the actors must bring to pay, in parts of what it costs, which is as much again.
WORTH = 0.5
_SEED = 20


@dataclass(frozen=True)
class Amdahl:
    """A fit: ``serial`` and ``parallel`` are seconds of a frame, ``low`` and ``high`` bound the fraction.

    There is no interval where each size has one run. ``off``: the largest relative deviation of the fit from
    the median of a size.
    """

    serial: float
    parallel: float
    low: float | None
    high: float | None
    off: float

    @property
    def fraction(self) -> float:
        """The serial part of the time of one actor."""
        return self.serial / (self.serial + self.parallel)

    def fps(self, actors: float) -> float:
        """Return the frames/s of so many actors."""
        return 1 / (self.serial + self.parallel / actors)


def pays_up_to(fraction: float) -> float:
    """Return the most actors from which doubling brings :data:`WORTH` of what it costs, by Amdahl's law."""
    # (s + p/n) / (s + p/2n) = 1 + WORTH, solved for n; p = 1 - s.
    return (1 - fraction) * (1 - WORTH) / (2 * WORTH * fraction) if fraction > 0 else math.inf


def fit(sizes: Mapping[int, Sequence[float]]) -> Amdahl | None:
    """Fit the frames/s of runs, by their number of actors; ``None`` with fewer than three sizes."""
    if len(sizes) < FEW_SIZES:
        return None
    actors = np.repeat(list(sizes), [len(fps) for fps in sizes.values()]).astype(np.float64)
    speeds = np.concatenate([np.asarray(fps, dtype=np.float64) for fps in sizes.values()])
    [[serial, parallel]] = _parts(actors[None], speeds[None])
    low = high = None
    if any(len(fps) > 1 for fps in sizes.values()):
        drawn = _parts(np.broadcast_to(actors, (RESAMPLES, len(actors))), _resampled(list(sizes.values())))
        low, high = map(float, np.percentile(drawn[:, 0] / drawn.sum(1), (2.5, 97.5)))
    law = Amdahl(float(serial), float(parallel), low, high, 0.0)
    off = max(abs(law.fps(number) / median(fps) - 1) for number, fps in sizes.items())
    return Amdahl(law.serial, law.parallel, low, high, off)


def _resampled(sizes: Sequence[Sequence[float]]) -> Floats:
    """Draw the runs of each size anew: a matrix (resamples × runs).

    Deviations from the mean are widened: draws of n values have (n - 1) / n of their variance.
    """
    generator = np.random.default_rng(_SEED)
    drawn = []
    for fps in sizes:
        speeds, n = np.asarray(fps, dtype=np.float64), len(fps)
        wide = speeds.mean() + (speeds - speeds.mean()) * math.sqrt(n / max(1, n - 1))
        drawn.append(generator.choice(wide, size=(RESAMPLES, n)))
    return np.concatenate(drawn, axis=1)


def _parts(actors: Floats, speeds: Floats) -> Floats:
    """Return serial and parallel seconds of each row of runs (rows × 2): least squares, neither below 0."""
    # Relative deviations: (serial + parallel / n) × frames/s should be 1.
    one, other = speeds, speeds / actors
    a, b, c = (one * one).sum(1), (one * other).sum(1), (other * other).sum(1)
    x, y = one.sum(1), other.sum(1)
    parts: Floats = np.stack((x * c - y * b, y * a - x * b), 1) / (a * c - b * b)[:, None]
    parts[parts[:, 0] < 0] = np.stack((np.zeros_like(y), y / c), 1)[parts[:, 0] < 0]
    parts[parts[:, 1] < 0] = np.stack((x / a, np.zeros_like(x)), 1)[parts[:, 1] < 0]
    return parts

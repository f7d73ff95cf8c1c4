"""The sample of segments to train again: how many find a falsified one, and which."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import comb, floor

# The least chance to find a falsified segment with the proposed sample. So of 100 sweeps with falsified
# segments, 95 are found but for one time in sixty.
_CHANCE = 0.98


def falsified_of(segments: int, share: float) -> int:
    """Return the number of falsified segments, at least 1."""
    return max(1, floor(share * segments + 1e-9))


def chance(segments: int, share: float, sample: int) -> float:
    """Return the chance that a sample holds one of the falsified segments, a ``share`` of all."""
    honest = segments - falsified_of(segments, share)
    return 1 - comb(honest, sample) / comb(segments, sample)


def proposed(segments: int, share: float) -> int:
    """Return the size of the smallest sample that is likely to hold a falsified segment."""
    return next(size for size in range(1, segments + 1) if chance(segments, share, size) >= _CHANCE)


def drawn(run_ids: Iterable[str], size: int, seed: int) -> list[str]:
    """Return a sample; a larger one with the same seed contains it."""
    order = sorted(run_ids)
    random.Random(seed).shuffle(order)
    return order[:size]

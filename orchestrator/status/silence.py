"""How long workers are silent about a run between two lines of their journals, and what that means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# A run is shown as stalled after this many of its own longest silences (and never before a lease is over).
_SILENCES = 5
# A worker that spoke within this time (s), or within two of its silences, is taken to be at work.
_RECENT_S = 30.0


def is_stalled(times: Sequence[float], now: float, lease: float) -> bool:
    """Whether it is unusually long since the last of these times, in epoch seconds."""
    return now - times[-1] > max(lease, _SILENCES * _longest_gap(times))


def is_heard(times: Sequence[float], now: float, lease: float) -> bool:
    """Whether the last of these times is so recent that the worker is at work; at most a lease ago."""
    return now - times[-1] <= min(lease, max(_RECENT_S, 2 * _longest_gap(times)))


def _longest_gap(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)

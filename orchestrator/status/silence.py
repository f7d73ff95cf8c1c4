"""Judge a worker by its silence about a run between two lines of its journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# A run is shown as stalled after this many of its own longest silences, and never within a lease.
_SILENCES = 5
# A worker counts as active for this many seconds, or two of its silences, after its last line.
_RECENT_S = 30.0


def is_stalled(times: Sequence[float], now: float, lease: float) -> bool:
    """Return whether the silence after the last of these times (epoch seconds) is unusually long."""
    return now - times[-1] > max(lease, _SILENCES * _longest_gap(times))


def is_active(times: Sequence[float], now: float, lease: float) -> bool:
    """Return whether the last of these times is recent enough for an active worker; at most a lease ago."""
    return now - times[-1] <= min(lease, max(_RECENT_S, 2 * _longest_gap(times)))


def _longest_gap(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)

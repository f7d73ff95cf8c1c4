"""Cost of a run in US dollars, by its wall time and the price of an hour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.bootstrap import finite, middle

# (sweep, run id) → US dollars for an hour of that run.
Prices = Mapping[tuple[str, str], float]
HOUR_S = 3600.0


def _dollars(row: RunRow, prices: Prices) -> float | None:
    """Return what a run cost in US dollars, by its wall time; ``None`` where that or its price is unknown."""
    hour = prices.get((row["sweep"], row["run_id"]))
    if hour is None or not finite(row["wall_time"]):
        return None
    cost: float = hour * row["wall_time"] / HOUR_S
    return cost if math.isfinite(cost) else None


def median_dollars(rows: Iterable[RunRow], prices: Prices) -> float | None:
    """Return the median cost of these runs; ``None`` if that of none is known."""
    return middle([cost for row in rows if (cost := _dollars(row, prices)) is not None])

"""The cost of a submission in the ledger, and the life of machines rented for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The least part of a rented machine's life that is left for its results to be fetched.
_FETCH_SHARE = 0.1


@dataclass(frozen=True)
class SubmissionCost:
    """The cost fields of a submission, in US dollars and seconds.

    ``budget``: of the whole sweep, ``inf`` for no limit, ``None`` for no change. ``prediction``: the
    forecast's time and cost. ``machine``: the priced machine. ``hold``, ``idle``: how long a rented machine
    waits for its results to be fetched, and then until it is terminated; ``None`` for other machines.
    """

    budget: float | Literal["inf"] | None = None
    price_per_hour: float | None = None
    prediction: Mapping[str, Any] | None = None
    machine: str | None = None
    hold: float | None = None
    idle: float | None = None

    def lifetime(self, allowance: float, price: float | None = None) -> float:
        """Return the most seconds from the request of a rented machine to its end.

        ``price`` per hour: of the machine obtained. A dearer one than planned has as much money, and less
        time.
        """
        held = min(allowance / (1 - _FETCH_SHARE), allowance + (self.hold or 0.0))
        planned = self.price_per_hour
        dearer = price / planned if price and planned and price > planned else 1.0
        return (held + (self.idle or 0.0)) / dearer

    def allowance(self, lifetime: float) -> float:
        """Return the seconds, from the request, in which runs may work on a machine with that lifetime."""
        held = lifetime - (self.idle or 0.0)
        return max((1 - _FETCH_SHARE) * held, held - (self.hold or 0.0))

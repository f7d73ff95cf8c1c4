"""Look up what a profile's machine costs in SkyPilot's price list."""

from __future__ import annotations

from functools import cache

from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.formatting import dollars
from orchestrator.core.types import Price


@cache
def price_of(address: str) -> Price | None:
    """Return the list price of a profile's machine; ``None`` without one, as for an own cluster.

    Raises :class:`BackendUnavailableError` if the list is unavailable or has no such machine.
    """
    from orchestrator.backends.skypilot.client import price
    from orchestrator.backends.skypilot.task import machine_text

    found = price(machine_text(find_profile(address)))
    if not found.usd_per_hour:
        return None
    where = " ".join(part for part in (found.cloud, found.region) if part)
    kind, other = ("spot", "on demand") if found.spot else ("on demand", "as spot")
    words = f"{found.instance_type} of {where}, {kind}, by SkyPilot's price list"
    if found.otherwise is not None:
        words += f" ({other} {dollars(found.otherwise)}/h)"
    return Price(found.usd_per_hour, words)


def list_price(profile: Profile) -> Price | None:
    """Return :func:`price_of` the profile's file, cached."""
    return price_of(profile.address)

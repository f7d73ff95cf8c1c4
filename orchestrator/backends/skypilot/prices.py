"""Look up what a profile's machine costs in SkyPilot's price list."""

from __future__ import annotations

from functools import cache

from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.formatting import dollars
from orchestrator.core.types import Price


@cache
def price_of(address: str) -> Price | None:
    """What SkyPilot's price list says of the machine that this profile would get; nothing of what has no
    price there, as a cluster of one's own.

    Raises :class:`BackendUnavailableError` where it cannot be asked, or has no such machine.
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
    """As :func:`price_of`, once for each profile."""
    return price_of(profile.address)

"""Describe a target for a forecast: hardware, price, number of machines, and their time beside runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.config.backends import NO_CLOUDS, get_backend
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.errors import OrchestrateError, ProfileError
from orchestrator.core.machine import hardware
from orchestrator.core.types import Price
from orchestrator.core.units import megabytes, seconds
from orchestrator.planning.estimate.ranges import NOTHING, Range
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.model import TrainingPlace

# Seconds from a job's start to its first run, without a measurement: the training libraries are loaded.
_BEGIN = Range(1.0, 6.0, 30.0)
# Seconds from the request of an instance to its worker's start, with `setup`; without a measurement.
_PROVISION = Range(120.0, 240.0, 600.0)
# The uncertainty of one measurement of such a time.
_SHORTER, _LONGER = 0.6, 1.8

Catalog = Callable[[Profile], Price | None]
"""Looks up a price; ``None`` if the list has none. Raises :class:`OrchestrateError` if it is unavailable."""


@dataclass(frozen=True)
class TargetCost:
    """A target. ``limit``: machines at once; ``None`` if only its queue decides. ``begin``, ``end``: seconds
    of each machine before its first run and after its last. ``notes``: assumptions. ``hold``, ``idle``: as
    for :class:`SubmissionCost`.
    """

    name: str
    kind: str
    place: TrainingPlace
    price: Price | None = None
    limit: int | None = None
    begin: Range = _BEGIN
    end: Range = NOTHING
    notes: tuple[str, ...] = ()
    hold: float | None = None
    idle: float | None = None

    def on_nodes(self, nodes: int) -> TargetCost:
        """Return the target with jobs of so many machines, each at its price."""
        if nodes == 1 or self.price is None:
            return self
        words = f"{nodes} times {self.price.words}"
        return replace(self, price=Price(nodes * self.price.per_hour, words))


def where_of(profile: Profile, table: SpeedTable, catalog: Catalog) -> TargetCost:
    """Describe the target of a profile; the table gives the measured start-up time of its jobs."""
    price, notes = _price(profile, catalog)
    place = TrainingPlace(profile.name, None, profile.gpu_type)
    begin = _BEGIN
    if profile.name in table.starts:
        begin = _range_around(table.starts[profile.name])
    spec, end = get_backend(profile.backend), NOTHING
    hold = idle = None
    if profile.backend == "local":
        gpus = hardware.gpus()
        place = TrainingPlace(profile.name, hardware.cpu_model(), gpus[0] if gpus else None)
    elif spec.rented:
        gpu = (profile.accelerators or "").partition(":")[0] or None
        place = TrainingPlace(profile.name, None, gpu, machine=_requested_machine(profile))
        waited = table.waits.get(profile.name)
        begin += _PROVISION if waited is None else _range_around(waited)
        hold, idle = float(seconds(profile.hold)), profile.idle_minutes * 60.0
        end = Range(0.0, idle, idle + (0.0 if profile.store is not None else hold))
        notes += _cloud_notes(profile, waited)
    limit = spec.parallel(profile)
    return TargetCost(profile.name, profile.backend, place, price, limit, begin, end, notes, hold, idle)


def where_at(address: str, catalog: Catalog, table: SpeedTable) -> TargetCost | None:
    """Describe the target at an address of the ledger; ``None`` if its profile file was removed."""
    try:
        return where_of(find_profile(address), table, catalog)
    except (ProfileError, OSError):
        return None


def _requested_machine(profile: Profile) -> str:
    """Describe the machine requested from a cloud, without region and spot, which do not change its speed.

    For a cluster the part after the slash names the cluster and is kept. Names of clouds and accelerators are
    converted to one case, as any case counts.
    """
    kind, _, rest = (profile.infra or "any cloud").partition("/")
    cloud = f"{kind.lower()}/{rest}" if kind.lower() in NO_CLOUDS and rest else kind.lower()
    if profile.instance_type is not None:
        return f"{cloud} {profile.instance_type}"
    parts = (
        profile.accelerators and profile.accelerators.upper().removesuffix(":1"),
        profile.cpus_per_task and f"{profile.cpus_per_task} cores",
        profile.mem and profile.mem != "0" and f"{megabytes(profile.mem)} MB",
    )
    return " ".join([cloud, *map(str, filter(None, parts))])


def _range_around(measured: float) -> Range:
    return Range(_SHORTER * measured, measured, _LONGER * measured)


def _cloud_notes(profile: Profile, waited: float | None) -> tuple[str, ...]:
    start = (
        f"an instance is assumed to start in {_PROVISION.mid / 60:.0f} min: none was measured yet"
        if waited is None
        else f"an instance started in {waited / 60:.1f} min"
    )
    stays = f"after its runs it stays up to {profile.idle_minutes} min"
    if profile.store is None:
        stays += f", and {seconds(profile.hold) / 60:.0f} min more (hold) until its results are fetched"
    spot = ("a spot instance may be preempted: runs then continue from their last checkpoint",)
    return (f"{start}; {stays}", *(spot if profile.spot else ()))


def _price(profile: Profile, catalog: Catalog) -> tuple[Price | None, tuple[str, ...]]:
    """Return the price of a job per hour, and the reason where it is unknown."""
    if profile.price_per_hour is not None:
        return Price(profile.price_per_hour, "by the profile's price_per_hour"), ()
    try:
        price = catalog(profile)
    except OrchestrateError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, (re.sub(r"\s+", " ", f"price lookup failed: {error}{hint}"),)
    return price, ()

"""A target as money and time see it: hardware, price, how many machines, what each takes beside runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.config.profiles import Profile
from orchestrator.core import hardware
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Price
from orchestrator.core.units import megabytes, seconds
from orchestrator.planning.estimate.ranges import NOTHING, Range
from orchestrator.planning.throughput import SpeedTable, TrainingPlace

# From a job's beginning to its first run, where none was measured: Python and the training libraries load.
_BEGIN = Range(1.0, 6.0, 30.0)
# From asking a cloud for an instance to its worker's start, with what setup installs; where none was seen.
_PROVISION = Range(120.0, 240.0, 600.0)
# SkyPilot's names for what is not a cloud.
_CLUSTERS = ("k8s", "kubernetes", "slurm", "ssh")
# What one measurement of such a time leaves open.
_SHORTER, _LONGER = 0.6, 1.8


Catalog = Callable[[Profile], Price | None]
"""A cloud's price list. ``None`` where nothing in it fits; raises :class:`OrchestrateError` if it cannot be
asked."""


@dataclass(frozen=True)
class TargetCost:
    """A target. ``limit``: machines at once, ``None`` if only its queue decides. ``begin``, ``end``: seconds
    that each machine is there before its first run and after its last. ``notes``: what was assumed.
    """

    name: str
    kind: str
    place: TrainingPlace
    price: Price | None = None
    limit: int | None = None
    begin: Range = _BEGIN
    end: Range = NOTHING
    notes: tuple[str, ...] = ()


def where_of(profile: Profile, table: SpeedTable, catalog: Catalog) -> TargetCost:
    """The target behind a profile; how long its jobs took to begin is taken from the table."""
    price, notes = _price(profile, catalog)
    place = TrainingPlace(profile.name, None, profile.gpu_type)
    begin = _BEGIN
    if profile.name in table.starts:
        begin = _around(table.starts[profile.name])
    limit = profile.array_limit if profile.backend == "slurm" else 1
    end = NOTHING
    if profile.backend == "local":
        gpus = hardware.gpus()
        place = TrainingPlace(profile.name, hardware.cpu_model(), gpus[0] if gpus else None)
    elif profile.backend == "skypilot":
        gpu = (profile.accelerators or "").partition(":")[0] or None
        place = TrainingPlace(profile.name, None, gpu, machine=_asked(profile))
        waited = table.waits.get(profile.name)
        begin += _PROVISION if waited is None else _around(waited)
        limit, end = profile.instances, _end(profile)
        notes += _cloud_notes(profile, waited)
    return TargetCost(profile.name, profile.backend, place, price, limit, begin, end, notes)


def _asked(profile: Profile) -> str:
    """The machine that a cloud is asked for, in words; its region, and whether it is spot, play no part.

    What stands after a cluster is no region but which one it is. SkyPilot reads names of clouds and of
    accelerators in any case, so that these are brought to one.
    """
    kind, _, rest = (profile.infra or "any cloud").partition("/")
    cloud = f"{kind.lower()}/{rest}" if kind.lower() in _CLUSTERS and rest else kind.lower()
    if profile.instance_type is not None:
        return f"{cloud} {profile.instance_type}"
    parts = (
        profile.accelerators and profile.accelerators.upper().removesuffix(":1"),
        profile.cpus_per_task and f"{profile.cpus_per_task} cores",
        profile.mem and f"{megabytes(profile.mem)} MB",
    )
    return " ".join([cloud, *map(str, filter(None, parts))])


def _around(measured: float) -> Range:
    return Range(_SHORTER * measured, measured, _LONGER * measured)


def _end(profile: Profile) -> Range:
    """An instance goes down as soon as its results are home, by itself after a while without work, and if
    nobody fetches them where there is no store, after ``hold``.
    """
    idle = profile.idle_minutes * 60.0
    hold = 0.0 if profile.store is not None else float(seconds(profile.hold))
    return Range(0.0, idle, idle + hold)


def _cloud_notes(profile: Profile, waited: float | None) -> tuple[str, ...]:
    start = (
        f"an instance is taken to need {_PROVISION.mid / 60:.0f} min to start: none was measured yet"
        if waited is None
        else f"an instance needed {waited / 60:.1f} min to start"
    )
    stays = f"after its runs it stays up to {profile.idle_minutes} min"
    if profile.store is None:
        stays += f", and {seconds(profile.hold) / 60:.0f} min more if nobody fetches its results (hold)"
    spot = ("a spot instance may be taken back: what it did since its last checkpoint is done again",)
    return (f"{start}; {stays}", *(spot if profile.spot else ()))


def _price(profile: Profile, catalog: Catalog) -> tuple[Price | None, tuple[str, ...]]:
    """The price of one job and hour, and what keeps it from being known."""
    if profile.price_per_hour is not None:
        return Price(profile.price_per_hour, "by the profile's price_per_hour"), ()
    if profile.backend != "skypilot":
        return None, ()
    try:
        price = catalog(profile)
    except OrchestrateError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return None, (re.sub(r"\s+", " ", f"its price could not be looked up: {error}{hint}"),)
    return price, ()

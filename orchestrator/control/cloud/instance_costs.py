"""Report what the instances of a sweep cost, and which of them nothing stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from orchestrator.backends.instances import Instance, RecordedState, instances_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import moment
from orchestrator.planning.accounts import price_of
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.parcel import condemned_at, unpacked
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, jobs_of, obtained_prices

# Workers kill what does not leave within its grace, half a minute; they hear of it by an exchange.
_SAVING_S = 60.0


@dataclass(frozen=True)
class InstanceCost:
    """An instance of a backend that is up, since its request and at its job's price; ``warning``: what its
    user must know, empty for nothing.
    """

    backend: str
    instance: Instance
    warning: str

    @property
    def dollars(self) -> float | None:
        """What it cost so far, ``None`` without a price."""
        price, since = self.instance.price_per_hour, self.instance.since
        hours = max(0.0, time.time() - since) / 3600 if since else 0.0
        return None if price is None else price * hours

    def as_dict(self) -> dict[str, object]:
        """Return it in JSON types; times in seconds since the epoch."""
        one = self.instance
        return {
            "backend": self.backend,
            "name": one.name,
            "state": one.state.value,
            "since": one.since or None,
            "dollars_per_hour": one.price_per_hour,
            "dollars": self.dollars,
            "region": one.region,
            "instance_type": one.instance_type,
            "spot": one.spot,
            "warning": self.warning or None,
        }

    def __str__(self) -> str:
        one, dollars = self.instance, self.dollars
        spent = f": {one.price_per_hour:.2f} $/h, {dollars:.2f} $ so far" if dollars is not None else ""
        at = moment(one.since, time.time())
        warning = f". {self.warning}" if self.warning else ""
        return f"instance {one.name} is {one.state.value} since {at}{spent}{warning}"


@dataclass(frozen=True)
class UnknownCost:
    """Instances of a backend that may be up; ``problem``: why that is unknown."""

    backend: str
    names: tuple[str, ...]
    problem: str

    def as_dict(self) -> dict[str, object]:
        """Return it in JSON types."""
        return {"backend": self.backend, "names": list(self.names), "problem": self.problem}

    def __str__(self) -> str:
        return f"unknown whether an instance is up ({self.problem}): {', '.join(self.names)}"


def costs(sweep: SweepDir) -> list[str]:
    """Return a line for every instance of the sweep that is up, unrecorded ones too; or why it is unknown."""
    return list(map(str, instance_costs(sweep)))


def instance_costs(sweep: SweepDir) -> list[InstanceCost | UnknownCost]:
    """Return every instance of the sweep that is up, unrecorded ones too; or why it is unknown."""
    left = set() if read_copy(sweep.path) is not None else set(unpacked(sweep))
    ids: dict[str, dict[str, str]] = {}
    entries: dict[str, SubmissionEntry] = {}
    ledger = sweep.read_ledger() if left else []
    for entry, job in jobs_of(ledger):
        if job.token in left:
            known = entry.job_ids.get(job.token)
            job_id = known or instances_of(entry.backend).unrecorded_id(sweep, job.token)
            ids.setdefault(entry.backend, {})[job.token] = job_id
            entries[job.token] = entry
    obtained = obtained_prices(ledger)

    def charged(token: str, one: Instance) -> Instance:
        price = price_of(entries[token], obtained.get(token), one.price_per_hour)
        since = min(entries[token].time, one.since or math.inf)
        return replace(one, price_per_hour=price, since=since)

    return sorted((one for kind, own in ids.items() for one in _costs(sweep, own, kind, charged)), key=str)


def _costs(
    sweep: SweepDir, ids: Mapping[str, str], kind: str, charged: Callable[[str, Instance], Instance]
) -> list[InstanceCost | UnknownCost]:
    cloud = instances_of(kind)
    try:
        up = cloud.up(list(ids.values()))
        found = {token: one for token, job_id in ids.items() if (one := up.get(cloud.instance_of(job_id)))}
        orphans = {token for token, one in found.items() if cloud.is_orphan(ids[token], one)}
    except OrchestrateError as error:
        return [UnknownCost(kind, tuple(map(cloud.instance_of, ids.values())), str(error))]
    return [
        InstanceCost(kind, charged(token, one), _warning(sweep, token, one, token in orphans))
        for token, one in found.items()
    ]


def _warning(sweep: SweepDir, token: str, instance: Instance, is_orphan: bool) -> str:
    """Return the action for an instance that nothing stops; empty for one that terminates by itself."""
    stop = f"`orchestrate cancel {sweep.name}` takes it down"
    if (condemned := condemned_at(sweep, token)) is not None:
        until, at_work = condemned + _SAVING_S, instance.state is RecordedState.UP and instance.autodown
        if at_work and time.time() < until:
            clock = time.strftime("%H:%M:%S", time.localtime(until))
            again = f"`orchestrate status {sweep.name} --exchange` then fetches them and takes it down"
            return f"Its runs were cancelled, and save checkpoints until {clock} at most; {again}"
        return f"WARNING: its runs were cancelled; it could not be taken down yet: {stop}"
    if is_orphan:
        return (
            f"WARNING: nothing stops it, its launch died before its job began: {stop}, the sweep command "
            f"starts another in its place"
        )
    if instance.launched_long:
        return f"WARNING: its launch takes very long, and nothing stops it before that is over: {stop}"
    return ""

"""Report what the instances of a sweep cost, and which of them nothing stops."""

from __future__ import annotations

import time
from collections.abc import Mapping

from orchestrator.backends.instances import Instance, Instances, RecordedState, instances_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import moment
from orchestrator.rundir import SweepDir
from orchestrator.rundir.ledger_entries import jobs_of
from orchestrator.rundir.parcel import condemned_at, unpacked
from orchestrator.rundir.synced import copy_of

# Workers kill what does not leave within its grace, half a minute; they hear of it by an exchange.
_SAVING_S = 60.0


def costs(sweep: SweepDir) -> list[str]:
    """Return a line for every instance of the sweep that is up, unrecorded ones too; or why it is unknown."""
    left = set() if copy_of(sweep) is not None else set(unpacked(sweep))
    ids: dict[str, dict[str, str]] = {}
    for entry, job in jobs_of(sweep.read_ledger()) if left else ():
        if job.token in left:
            known = entry.job_ids.get(job.token)
            job_id = known or instances_of(entry.backend).unrecorded_id(sweep, job.token)
            ids.setdefault(entry.backend, {})[job.token] = job_id
    return sorted(line for kind, own in ids.items() for line in _costs(sweep, own, instances_of(kind)))


def _costs(sweep: SweepDir, ids: Mapping[str, str], cloud: Instances) -> list[str]:
    try:
        up = cloud.up(list(ids.values()))
        found = {token: one for token, job_id in ids.items() if (one := up.get(cloud.instance_of(job_id)))}
        orphans = {token for token, one in found.items() if cloud.is_orphan(ids[token], one)}
    except OrchestrateError as error:
        names = ", ".join(map(cloud.instance_of, ids.values()))
        return [f"unknown whether an instance is up ({error}): {names}"]
    return [f"{_cost(one)}{_warning(sweep, token, one, token in orphans)}" for token, one in found.items()]


def _warning(sweep: SweepDir, token: str, instance: Instance, is_orphan: bool) -> str:
    """Return the action for an instance that nothing stops; empty for one that terminates by itself."""
    stop = f"`orchestrate cancel {sweep.name}` takes it down"
    if (condemned := condemned_at(sweep, token)) is not None:
        until, at_work = condemned + _SAVING_S, instance.state is RecordedState.UP and instance.autodown
        if at_work and time.time() < until:
            clock = time.strftime("%H:%M:%S", time.localtime(until))
            again = f"`orchestrate status {sweep.name} --exchange` then fetches them and takes it down"
            return f". Its runs were cancelled, and save checkpoints until {clock} at most; {again}"
        return f". WARNING: its runs were cancelled; it could not be taken down yet: {stop}"
    if is_orphan:
        return (
            f". WARNING: nothing stops it, its launch died before its job began: {stop}, the sweep command "
            f"starts another in its place"
        )
    if instance.launched_long:
        return f". WARNING: its launch takes very long, and nothing stops it before that is over: {stop}"
    return ""


def _cost(instance: Instance) -> str:
    hours = max(0.0, time.time() - instance.since) / 3600 if instance.since else 0.0
    price = instance.price_per_hour
    spent = f": {price:.2f} $/h, {price * hours:.2f} $ so far" if price is not None else ""
    at = moment(instance.since, time.time())
    return f"instance {instance.name} is {instance.state.value} since {at}{spent}"

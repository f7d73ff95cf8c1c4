"""Record in the ledger which machines were obtained for jobs, and when they ended."""

from __future__ import annotations

import time

from orchestrator.backends.instances import Instance
from orchestrator.planning.accounts import latest_end, price_of
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import InstanceEntry, jobs_of, obtained_prices


class InstanceRecords:
    """The instances of a sweep in its ledger, as read at the start."""

    def __init__(self, sweep: SweepDir) -> None:
        self._sweep = sweep
        ledger = sweep.read_ledger()
        self._jobs = {job.token: (entry, job) for entry, job in jobs_of(ledger)}
        self._prices = obtained_prices(ledger)
        self._known = {one.token: one for one in ledger if isinstance(one, InstanceEntry)}

    def machine(self, token: str, instance: Instance) -> None:
        """Record the machine obtained for a job, unless it is on record."""
        price, known = instance.price_per_hour, self._known.get(token)
        found = (instance.region, instance.instance_type, instance.spot)
        if known is not None and found == (known.region, known.instance_type, known.spot):
            return
        if price is not None:
            self._prices[token] = max(price, self._prices.get(token, 0.0))
        self._add(
            InstanceEntry(
                token=token, price_per_hour=price, region=found[0], instance_type=found[1], spot=found[2]
            )
        )

    def end(self, token: str, *, observed: bool, launch_over: float | None = None) -> None:
        """Record that a job's instance is gone, unless that is on record.

        ``observed``: it was up until now. Otherwise it ended at the latest when it terminated by itself, or
        when its launch was over without success.
        """
        known, now = self._known.get(token), time.time()
        if known is not None and known.ended is not None:
            return
        at = now
        if not observed:
            entry, job = self._jobs[token]
            price = price_of(entry, self._prices.get(token))
            by_itself = latest_end(entry, job, self._sweep.worker_log(token), price)
            at = min(now, by_itself, now if launch_over is None else launch_over)
        self._add(InstanceEntry(token=token, ended=at))

    def _add(self, entry: InstanceEntry) -> None:
        self._sweep.add_to_ledger(entry)
        self._known[entry.token] = entry

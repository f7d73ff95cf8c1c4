"""What each job of a sweep costs, by ledger and journals. Pure.

An own machine is paid for while a worker works. A rented one is paid for from its request to its proven end:
its set-up, the wait for its results to be fetched and the wait for its termination included, and also where
no journal of it ever arrived.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.config.backends import is_rented
from orchestrator.core.types import Job
from orchestrator.rundir import LedgerEntry, WorkerLog
from orchestrator.rundir.records.ledger_entries import (
    InstanceEntry,
    SubmissionEntry,
    jobs_of,
    obtained_prices,
)
from orchestrator.status.cost import Cost, job_cost, worked
from orchestrator.status.survey import Survey

_HOUR_S = 3600.0
# Time in which a backend notices that an instance is idle, and terminates it.
_TERMINATION_S = 300.0


@dataclass(frozen=True)
class Account:
    """One job. ``seconds``: paid for so far. ``open``: whether more may be. ``most``: the most seconds in
    all; ``None`` without a limit. ``price``: US dollars per hour, as of :func:`price_of`.
    """

    seconds: float
    price: float | None
    open: bool
    most: float | None

    @property
    def cost(self) -> Cost:
        """What it costs so far."""
        return job_cost(self.seconds, self.price)

    @property
    def promised(self) -> float:
        """US dollars that it may still cost within its limit."""
        left = max(0.0, (self.most or 0.0) - self.seconds) if self.open else 0.0
        return left * (self.price or 0.0) / _HOUR_S


def accounts(
    ledger: Sequence[LedgerEntry],
    logs: Iterable[WorkerLog],
    rented: Collection[str],
    now: float,
    seen: Survey | None = None,
) -> dict[str, Account]:
    """Return the account of every job by token.

    ``rented``: the jobs with an instance not known to be gone. ``now``: epoch seconds. ``seen``: which own
    jobs are active; without it none is.
    """
    known = {log.token: log for log in logs}
    times = (
        worked(seen, known.values(), now) if seen else {token: one.worked() for token, one in known.items()}
    )
    ends, obtained = _ends(ledger), obtained_prices(ledger)
    live = seen.live if seen else frozenset()
    found = {}
    for entry, job in jobs_of(ledger):
        token, log = job.token, known.get(job.token)
        price = price_of(entry, obtained.get(token))
        if is_rented(entry.backend):
            is_open = token in rented and token not in ends
            end = now if is_open else _last_known(entry, log)
            end = ends.get(token, min(end, latest_end(entry, job, log, price)))
            most = None if job.allowance is None else entry.cost.lifetime(job.allowance, price)
            found[token] = Account(max(0.0, end - entry.time), price, is_open, most)
        else:
            found[token] = Account(times.get(token, 0.0), price, token in live, job.allowance)
    return found


def price_of(entry: SubmissionEntry, *obtained: float | None) -> float | None:
    """Return the US dollars per hour of a job: as planned, or of a machine obtained for it if that is dearer.

    The list price of a machine of an own cluster is zero, and says nothing of its cost.
    """
    known = [entry.cost.price_per_hour, *(price or None for price in obtained)]
    return max((price for price in known if price is not None), default=None)


def latest_end(entry: SubmissionEntry, job: Job, log: WorkerLog | None, price: float | None) -> float:
    """Return when a job's instance has terminated by itself at the latest; infinite if that is unknown."""
    cost, ends = entry.cost, [math.inf]
    if cost.hold is None or cost.idle is None:
        return math.inf
    if job.allowance is not None:
        ends.append(entry.time + cost.lifetime(job.allowance, price))
    if log is not None and log.exited and not log.revoked:
        ends.append(log.events[-1].time + cost.hold + cost.idle)
    return min(ends) + _TERMINATION_S


def _ends(ledger: Iterable[LedgerEntry]) -> Mapping[str, float]:
    return {
        one.token: one.ended for one in ledger if isinstance(one, InstanceEntry) and one.ended is not None
    }


def _last_known(entry: SubmissionEntry, log: WorkerLog | None) -> float:
    """Return the last sign of an instance without an end on record."""
    return entry.time if log is None or log.revoked or not log.events else log.events[-1].time

"""The parts of a submission in the ledger: its jobs, its cost, and the life of machines rented for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

from orchestrator.core.types import Job, PluginSource, Resources, Size
from orchestrator.rundir.kinds import number, require_kinds

# The least part of a rented machine's life that is left for its results to be fetched.
_FETCH_SHARE = 0.1


class SubmittedJob(NamedTuple):
    """A job of a submission. ``record`` is its whole JSON object, which :attr:`job` parses."""

    token: str
    run_ids: tuple[str, ...]
    target: str
    slots: int
    allowance: float | None
    record: Mapping[str, Any]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        token, run_ids = data["token"], data["run_ids"]
        if type(token) is not str or type(run_ids) is not list:
            raise TypeError("a job has a token and a list of runs")
        if any(type(run_id) is not str for run_id in run_ids):
            raise TypeError("run ids are text")
        _require_resources(tuple(data.get("resources", {}).items()))
        for plugin in data.get("plugins", ()):
            require_kinds(PluginSource(**plugin))
        for size in (*data.get("sizes", {}).values(), *([data["room"]] if data.get("room") else [])):
            require_kinds(Size(*size))
        target, slots = data.get("target", "local"), data.get("slots", 1)
        allowance = data.get("allowance")
        if type(target) is not str or type(slots) is not int or number(allowance) != allowance:
            raise TypeError("a job has a target, a number of slots and seconds")
        return cls(token, tuple(run_ids), target, slots, allowance, data)

    @classmethod
    def of(cls, job: Job) -> Self:
        return cls.from_json(job.to_json())

    @property
    def job(self) -> Job:
        """Parse the job. Raises ``KeyError`` or ``TypeError`` for a record of another version."""
        return Job.from_json(self.record)


@cache
def _require_resources(items: tuple[tuple[str, Any], ...]) -> None:
    """Raise ``TypeError`` unless these are resources; once for all jobs with the same ones."""
    require_kinds(Resources(**dict(items)))


@dataclass(frozen=True)
class SubmissionCost:
    """The cost fields of a submission, in US dollars and seconds.

    ``budget``: of the whole sweep, infinite for no limit, ``None`` for no change. ``prediction``: the
    forecast's time and cost. ``machine``: the priced machine. ``hold``, ``idle``: how long a rented machine
    waits for its results to be fetched, and then until it is terminated; ``None`` for other machines.
    """

    budget: float | None = None
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

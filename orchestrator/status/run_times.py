"""Compute the time that attempts took, from journals. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.rundir import Event, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, elapsed


class AttemptTime(NamedTuple):
    """Seconds from an attempt's claim to its end; unless ``ended``, to the last event of its worker."""

    seconds: float
    ended: bool


def attempt_times(logs: Iterable[WorkerLog]) -> dict[str, dict[int, AttemptTime]]:
    """Return the time of each attempt, by run and number."""
    found: dict[str, dict[int, AttemptTime]] = {}
    for log in logs:
        claims: dict[tuple[str, int], Event] = {}
        for event in log.events:
            key = (event.run_id or "", event.attempt or 0)
            if event.kind == CLAIMED:
                claims[key] = event
            elif event.kind == ENDED and key in claims:
                took = AttemptTime(elapsed(claims.pop(key), event), ended=True)
                found.setdefault(key[0], {})[key[1]] = took
        for (run_id, attempt), claim in claims.items():  # its worker was killed, or is at it
            took = AttemptTime(elapsed(claim, log.events[-1]), ended=False)
            found.setdefault(run_id, {}).setdefault(attempt, took)
    return found

"""Detect machines on which runs fail that succeed elsewhere. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Event, IndexRow, WorkerLog
from orchestrator.rundir.records.journal import ENDED, STARTED

# A machine is avoided after failures of this many different runs since its last finished run, ...
_FAILURES = 3
# ... within this many seconds, on at most this many machines, ...
_FORGIVEN_AFTER_S, _AT_MOST = 24 * 3600.0, 4
# ... for a reason that the machine may cause.
_REASONS = (
    Reason.CODE_ERROR,
    Reason.KILLED,
    Reason.NODE_FAILURE,
    Reason.CRASH_LOOP,
    Reason.INCOMPLETE,
)


@dataclass(frozen=True)
class _Ending:
    """The end of an attempt, with its machine."""

    at: float
    machine: str
    configuration: str
    run_id: str
    event: Event


def failing_machines(
    rows: Sequence[IndexRow], logs: Iterable[WorkerLog], now: float
) -> dict[str, dict[str, int]]:
    """Map each machine to avoid, by its scheduler's name, to the failed attempts there by run id.

    A run counts only if another one of its configuration (all but the seed) finished elsewhere: otherwise the
    configuration is at fault. A machine is forgiven after a day, and only a few are avoided at a time.
    ``now`` is in epoch seconds.
    """
    logs = list(logs)
    if sum(_machine_may_cause(event) for log in logs for event in log.events) < _FAILURES:
        return {}
    endings = sorted(_endings(rows, logs), key=lambda ending: ending.at)
    finished: dict[str, set[str]] = {}
    for ending in endings:
        if _outcome(ending.event) is RunState.DONE:
            finished.setdefault(ending.configuration, set()).add(ending.machine)
    failed: dict[str, dict[str, int]] = {}
    for ending in endings:
        elsewhere = finished.get(ending.configuration, set()) - {ending.machine}
        if _outcome(ending.event) is RunState.DONE:
            failed.pop(ending.machine, None)
        elif elsewhere and now - ending.at < _FORGIVEN_AFTER_S and _machine_may_cause(ending.event):
            failed.setdefault(ending.machine, {})[ending.run_id] = ending.event.attempt or 0
    bad = {name: runs for name, runs in sorted(failed.items()) if len(runs) >= _FAILURES}
    worst = sorted(bad, key=lambda name: -len(bad[name]))[:_AT_MOST]
    return {name: bad[name] for name in sorted(worst)}


def _endings(rows: Sequence[IndexRow], logs: Iterable[WorkerLog]) -> Iterable[_Ending]:
    configurations = {row.run_id: _configuration(row.point) for row in rows}
    for log in logs:
        machine = ""
        for event in log.events:
            if event.kind == STARTED:
                machine = event.node
            elif event.kind == ENDED and machine and event.run_id in configurations:
                yield _Ending(event.time, machine, configurations[event.run_id], event.run_id, event)


def _configuration(point: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in point.items() if key != "seed"}, sort_keys=True)


def _outcome(event: Event) -> RunState:
    return event.end.outcome


def _machine_may_cause(event: Event) -> bool:
    if event.kind != ENDED:
        return False
    ended_badly = _outcome(event) in (RunState.FAILED, RunState.INTERRUPTED)
    return ended_badly and event.end.reason in _REASONS

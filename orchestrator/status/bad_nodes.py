"""Machines that fail the runs they are given, told apart from runs that fail everywhere. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Event, IndexRow, WorkerLog
from orchestrator.rundir.journal import ENDED, STARTED

# So many different runs must have failed on a machine since the last that it finished, ...
_FAILURES = 3
# ... not longer ago than this, on not more machines than these, ...
_FORGIVEN_AFTER_S, _AT_MOST = 24 * 3600.0, 4
# ... for a reason that can be the machine's.
_REASONS = (Reason.CODE_ERROR.value, Reason.KILLED.value, Reason.NODE_FAILURE.value, Reason.CRASH_LOOP.value)


@dataclass(frozen=True)
class _Word:
    """What a worker said of a run, and where."""

    at: float
    machine: str
    configuration: str
    run_id: str
    event: Event


def failing_machines(
    rows: Sequence[IndexRow], logs: Iterable[WorkerLog], now: float
) -> dict[str, dict[str, int]]:
    """Of every machine that is to be avoided, by its scheduler's name for it: what failed there, by run.

    A run counts only if another of its configuration (all but the seed) was finished elsewhere: what fails
    everywhere is the configuration's fault. A machine is given another chance after a day, and no more than
    a few are avoided at a time. ``now`` is in epoch seconds; values are attempts.
    """
    logs = list(logs)
    if sum(_can_be_the_machines(event) for log in logs for event in log.events) < _FAILURES:
        return {}
    words = sorted(_words(rows, logs), key=lambda word: word.at)
    finished: dict[str, set[str]] = {}
    for word in words:
        if _outcome(word.event) is RunState.DONE:
            finished.setdefault(word.configuration, set()).add(word.machine)
    failed: dict[str, dict[str, int]] = {}
    for word in words:
        elsewhere = finished.get(word.configuration, set()) - {word.machine}
        if _outcome(word.event) is RunState.DONE:
            failed.pop(word.machine, None)
        elif elsewhere and now - word.at < _FORGIVEN_AFTER_S and _can_be_the_machines(word.event):
            failed.setdefault(word.machine, {})[word.run_id] = word.event.attempt or 0
    bad = {name: runs for name, runs in sorted(failed.items()) if len(runs) >= _FAILURES}
    worst = sorted(bad, key=lambda name: -len(bad[name]))[:_AT_MOST]
    return {name: bad[name] for name in sorted(worst)}


def _words(rows: Sequence[IndexRow], logs: Iterable[WorkerLog]) -> Iterable[_Word]:
    configurations = {row.run_id: _configuration(row.point) for row in rows}
    for log in logs:
        machine = ""
        for event in log.events:
            if event.kind == STARTED:
                machine = str((event.data.get("host") or {}).get("node") or "")
            elif event.kind == ENDED and machine and event.run_id in configurations:
                yield _Word(event.time, machine, configurations[event.run_id], event.run_id, event)


def _configuration(point: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in point.items() if key != "seed"}, sort_keys=True)


def _outcome(event: Event) -> RunState:
    return RunState(event.data["outcome"])


def _can_be_the_machines(event: Event) -> bool:
    if event.kind != ENDED:
        return False
    ended_badly = _outcome(event) in (RunState.FAILED, RunState.INTERRUPTED)
    return ended_badly and event.data.get("reason") in _REASONS

"""Fold journals into the attempts of each run. The order in which files were read does not matter. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from orchestrator.core.types import RunState, number_of
from orchestrator.rundir import Event, WorkerLog
from orchestrator.rundir.records.journal import CLAIMED, ENDED, PROGRESS, AttemptEnd
from orchestrator.rundir.records.run_state import RunDecisions

# Of several ends of one attempt the last of these counts: a worker may judge anew what another one left.
_DECISIVE = (RunState.INTERRUPTED, RunState.CANCELLED, RunState.FAILED, RunState.DONE)
_FIGURES = ("frames", "total", "end_to_end_fps", "value")


class Attempt:
    """One attempt at a run. ``times``: of its worker's events, in epoch seconds.

    ``token``: of the worker that claimed it, or that recorded its end.
    """

    __slots__ = ("_end_key", "end", "progress", "times", "token")

    def __init__(self) -> None:
        self.token: str | None = None
        self.times: list[float] = []
        self.progress: Event | None = None
        self.end: AttemptEnd | None = None
        self._end_key: tuple[int, float, str] = (-2, 0.0, "")

    def take(self, event: Event, token: str) -> None:
        """Take an event of the worker ``token``."""
        if event.kind == ENDED:
            self._take_end(event, token)
        elif event.kind in (CLAIMED, PROGRESS):
            if self.end is None:
                self.token = token
            self.times.append(event.time)
            if event.kind == PROGRESS:
                self.progress = event

    def _take_end(self, event: Event, token: str) -> None:
        end = event.end
        rank = _DECISIVE.index(end.outcome) if end.outcome in _DECISIVE else -1
        if (key := (rank, event.time, token)) > self._end_key:
            self._end_key, self.end, self.token = key, end, token

    @property
    def outcome(self) -> RunState | None:
        """The outcome of its end, if that is on record."""
        return None if self.end is None else self.end.outcome

    @property
    def since(self) -> float | None:
        """The time of its latest event, or of its end."""
        return self._end_key[1] if self.end is not None else self.times[-1] if self.times else None

    def details(self) -> dict[str, Any]:
        """Return what is known of it beside its progress, by the names of a run's status."""
        found: dict[str, Any] = {"token": self.token, "since": self.since}
        if self.end is not None:
            found |= {name: getattr(self.end, name) for name in ("reason", "message", "code_id")}
        elif self.progress is not None:
            found["message"] = self.progress.progress.note
        return found

    def figures(self) -> dict[str, Any]:
        """Return what is known of its progress, by the same names."""
        found: dict[str, Any] = {}
        for source in (self.progress and self.progress.progress, self.end):
            for name in _FIGURES if source is not None else ():
                if (value := getattr(source, name, None)) is not None:
                    found[name] = value
        return found


Attempts = Mapping[int, Attempt]


def attempts_of(
    run_ids: Container[str], logs: Iterable[WorkerLog], decisions: RunDecisions
) -> dict[str, dict[int, Attempt]]:
    """Return the attempts at these runs by number.

    Attempt 0 stands for workers that could not take the run, of jobs submitted since its latest retry.
    """
    found: dict[str, dict[int, Attempt]] = {}
    for log in logs:
        for event in log.events:
            run_id, number = event.run_id, event.attempt
            if run_id is None or number is None or number < 0 or run_id not in run_ids:
                continue
            if number == 0 and number_of(log.token) < decisions.of(run_id).again:
                continue
            attempts = found.setdefault(run_id, {})
            if (attempt := attempts.get(number)) is None:
                attempt = attempts[number] = Attempt()
            attempt.take(event, log.token)
    return found


def figures(attempts: Attempts, last: int) -> dict[str, Any]:
    """Return a run's progress up to an attempt: of each figure the newest attempt's that has it."""
    if len(attempts) == 1:
        return attempts[last].figures()
    found: dict[str, Any] = {}
    for number in sorted(attempts):
        if number <= last:
            found |= attempts[number].figures()
    return found

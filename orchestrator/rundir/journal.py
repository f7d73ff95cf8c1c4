"""Journals: one append-only file per worker, which is also its submission token.

A worker's first act is to create ``journals/<token>.jsonl`` exclusively. A second process with the same token
finds it and exits; a command line that gives a lost submission up creates it itself, marked revoked. Each
line is an :class:`Event`. `status` reads journals and opens no run folder.

Attempts count from 1. An event of attempt 0 tells that a worker could not take a run, and why: it says
nothing about attempts that others made, and counts only where nothing better is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Self

from orchestrator.rundir.atomic import (
    dump_json,
    parse_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.process import Holder
from orchestrator.types import RunState

# Kinds of event, in the order they can happen to one worker.
STARTED = "started"  # the worker: holder, slots, host facts
REVOKED = "revoked"  # the token was given up before any worker took it
CLAIMED = "claimed"  # a run's attempt began
PROGRESS = "progress"  # frames, total, fps, return
ENDED = "ended"  # the attempt ended: outcome, reason, message
EXITED = "exited"  # the worker left


@dataclass(frozen=True)
class Event:
    """One line of a journal. ``time`` is seconds since the epoch by the worker's clock."""

    kind: str
    time: float
    run_id: str | None = None
    attempt: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_line(self) -> bytes:
        record: dict[str, Any] = {"kind": self.kind, "time": round(self.time, 3)}
        if self.run_id is not None:
            record |= {"run": self.run_id, "attempt": self.attempt}
        return dump_json(record | ({"data": dict(self.data)} if self.data else {}))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what no worker writes."""
        event = cls(
            record["kind"],
            record["time"],
            record.get("run"),
            record.get("attempt"),
            record.get("data", {}),
        )
        if type(event.time) not in (int, float) or not isinstance(event.data, dict):
            raise TypeError("an event has a time, and its data are by name")
        if not isinstance(event.run_id, str | None) or type(event.attempt) not in (int, NoneType):
            raise TypeError("a run is named by text, an attempt by a number")
        if event.kind == STARTED:
            Holder.from_json(event.data["holder"])
        elif event.kind == ENDED:
            RunState(event.data["outcome"])
            if not isinstance(event.data.get("summary"), dict | None):
                raise TypeError("a summary is by name")
        return event


@dataclass(frozen=True)
class WorkerLog:
    """A worker as its journal tells it. ``damaged`` counts lines that could not be read."""

    token: str
    events: tuple[Event, ...]
    damaged: int = 0

    @property
    def holder(self) -> Holder | None:
        """The worker process of the latest start, or ``None`` for a revoked token."""
        starts = [event for event in self.events if event.kind == STARTED]
        return Holder.from_json(starts[-1].data["holder"]) if starts else None

    @property
    def exited(self) -> bool:
        ends = [event.kind for event in self.events if event.kind in (STARTED, REVOKED, EXITED)]
        return not ends or ends[-1] != STARTED

    @property
    def revoked(self) -> bool:
        """Whether the token was given up before any worker took it: the job will never do anything."""
        return bool(self.events) and self.events[0].kind == REVOKED

    def worked(self, until: float | None = None) -> float:
        """Seconds for which its job has had a machine: from its first event to its last, or to ``until``.

        A job that was given back to the queue counts each of its times, and not the waiting between.
        """
        total, began, last = 0.0, None, 0.0
        for event in self.events:
            if event.kind == STARTED:
                if began is not None:
                    total += max(0.0, last - began)
                began = last = event.time
            elif began is not None:
                last = max(last, event.time)
                if event.kind == EXITED:
                    total, began = total + last - began, None
        if began is None:
            return total
        return total + max(0.0, max(until or last, last) - began)

    @property
    def returning(self) -> bool:
        """Whether the worker left to come back: its job was given back to the queue and is not over."""
        return self.exited and bool(self.events) and bool(self.events[-1].data.get("again"))


class Journal:
    """The writing side, one process only. A line that a full disk cut is closed off by the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._torn = False

    @classmethod
    def create(cls, path: Path, started: Event) -> Self | None:
        """Take the token; ``None`` if somebody has it."""
        return cls(path) if write_exclusive(path, started.to_line()) else None

    def read(self) -> WorkerLog:
        """What it holds so far."""
        return read_journal(self._path)

    def append(self, event: Event) -> None:
        line = event.to_line()
        with storage_errors(self._path), open(self._path, "ab", buffering=0) as file:
            prefix = b"\n" if self._torn else b""
            self._torn = True
            if file.write(prefix + line) == len(prefix + line):
                self._torn = False


def read_journal(path: Path) -> WorkerLog:
    """Raises ``FileNotFoundError`` if compaction took the file meanwhile: read the folder again."""
    return _parse(path.stem, path.read_bytes().split(b"\n"))


def read_compacted(path: Path) -> list[WorkerLog]:
    """The workers in a compacted file: each event with its worker's token."""
    by_token: dict[str, list[bytes]] = {}
    for line in path.read_bytes().split(b"\n"):
        token, _, record = line.partition(b"\t")
        if record:
            by_token.setdefault(token.decode(errors="replace"), []).append(record)
    return [_parse(token, lines) for token, lines in by_token.items()]


def write_compacted(path: Path, logs: Iterable[WorkerLog]) -> None:
    """What stays of workers that left: when they came and went, the last event of each kind per attempt."""
    lines = []
    for log in logs:
        last = {(event.kind, event.run_id, event.attempt, _once(event)): event for event in log.events}
        lines += [log.token.encode() + b"\t" + event.to_line() for event in last.values()]
    write_atomic(path, b"".join(lines))


def _once(event: Event) -> float | None:
    """What tells starts and ends of one worker apart: a job that was given back has several."""
    return event.time if event.kind in (STARTED, EXITED) else None


def _parse(token: str, lines: Iterable[bytes]) -> WorkerLog:
    events, damaged = [], 0
    for line in lines:
        if not line:
            continue
        try:
            events.append(Event.from_json(parse_json(line)))
        except (ValueError, KeyError, TypeError):
            damaged += 1
    return WorkerLog(token, tuple(events), damaged)

"""Journals: one append-only file per worker, which is also its submission token.

A worker's first act is to create ``journals/<token>.jsonl`` exclusively. A second process with the same token
finds it and exits; a command line that gives a lost submission up creates it itself, marked revoked. Each
line is an :class:`Event`. `status` reads journals and opens no run folder.

Attempts count from 1. An event of attempt 0 tells that a worker could not take a run, and why: it says
nothing about attempts that others made, and counts only where nothing better is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import RunState
from orchestrator.rundir.atomic import (
    dump_json,
    parse_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.holder import Holder
from orchestrator.rundir.plain_files import (
    Version,
    open_plain,
    open_to_write,
    read_plain,
    read_rest,
    version_of,
)

# Kinds of event, in the order they can happen to one worker.
STARTED = "started"  # the worker: holder, slots, host facts
REVOKED = "revoked"  # the token was given up before any worker took it
CLAIMED = "claimed"  # a run's attempt began
PROGRESS = "progress"  # frames, total, end_to_end_fps, iteration_fps, return
ENDED = "ended"  # the attempt ended: outcome, reason, message
EXITED = "exited"  # the worker left

# The end of a journal that holds the last line of a worker that left, in bytes.
_LAST_WORDS = 1 << 14


@dataclass(frozen=True)
class Event:
    """One line of a journal. ``time`` is seconds since the epoch by the worker's clock.

    ``up`` is the moment by its machine's clock of seconds since boot, for durations: the other one can jump.
    """

    kind: str
    time: float
    run_id: str | None = None
    attempt: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    up: float | None = None

    def to_line(self) -> bytes:
        record: dict[str, Any] = {"kind": self.kind, "time": round(self.time, 3)}
        if self.up is not None:
            record["up"] = round(self.up, 3)
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
            record.get("up"),
        )
        if type(event.up) not in (int, float, NoneType):
            raise TypeError("the seconds since boot are a number")
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
    """A worker as its journal tells it. ``damaged`` counts lines that could not be read.

    ``compacted``: its journal was folded away, so that no job begins with its token again.
    """

    token: str
    events: tuple[Event, ...]
    damaged: int = 0
    compacted: bool = False

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
        total, began, last, longest = 0.0, None, None, 0.0
        for event in self.events:
            if event.kind == STARTED:
                total, longest, began = total + longest, 0.0, event
            if began is not None:
                if (span := _between(began, event)) >= longest:  # else a clock was set back
                    longest, last = span, event
                if event.kind == EXITED:
                    total, longest, began = total + longest, 0.0, None
        since = max(0.0, until - last.time) if until and began and last else 0.0
        return total + longest + since

    @property
    def returning(self) -> bool:
        """Whether the worker left to come back: its job was given back to the queue and is not over."""
        again = bool(self.events) and bool(self.events[-1].data.get("again"))
        return self.exited and again and not self.compacted

    @property
    def may_return(self) -> bool:
        """Whether its job may be in a queue again: it did not leave for want of work.

        A scheduler gives preempted jobs, and those of dead nodes, back to the queue by itself.
        """
        if self.compacted or self.revoked:
            return False
        return not self.exited or bool(self.events and self.events[-1].data.get("asked", True))


def _between(one: Event, other: Event) -> float:
    """Seconds from one event of a worker to a later one; by the clock that never jumps if both tell it."""
    if one.up is not None and other.up is not None:
        return max(0.0, other.up - one.up)
    return max(0.0, other.time - one.time)


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
        with storage_errors(self._path), open_to_write(self._path, "ab", buffering=0) as file:
            prefix = b"\n" if self._torn else b""
            self._torn = True
            if file.write(prefix + line) == len(prefix + line):
                self._torn = False


class JournalReader:
    """Reads journals again and again, each only from where it was read to. They only grow."""

    def __init__(self) -> None:
        # By path: the version read, how far whole lines went, those, and these with a last one under way.
        self._known: dict[Path, tuple[Version, int, WorkerLog, WorkerLog]] = {}

    def read(self, path: Path) -> WorkerLog:
        """Raises ``FileNotFoundError`` if compaction took the file meanwhile: read the folder again."""
        try:
            with open_plain(path) as file:
                version = version_of(os.fstat(file.fileno()))
                nothing = WorkerLog(path.stem, ())
                before, start, known, seen = self._known.get(path, (None, 0, nothing, nothing))
                if version == before:
                    return seen
                if before is None or before.inode != version.inode or version.size <= before.size:
                    start, known = 0, nothing
                file.seek(start)
                data = read_rest(file, path)
        except DamagedFileError:
            return WorkerLog(path.stem, (), damaged=1)
        whole, end, rest = data.rpartition(b"\n")  # a line under way is read again once it is there
        log = _after(known, _parse(path.stem, whole.split(b"\n")))
        seen = _after(log, _parse(path.stem, [rest])) if rest else log
        self._known[path] = version, start + len(whole) + len(end), log, seen
        return seen


def _after(log: WorkerLog, more: WorkerLog) -> WorkerLog:
    return WorkerLog(log.token, log.events + more.events, log.damaged + more.damaged)


def read_journal(path: Path) -> WorkerLog:
    """As :meth:`JournalReader.read`, once."""
    return JournalReader().read(path)


def ends_with_exit(path: Path) -> bool:
    """Whether a worker's last word is that it left. Reads the end of its journal only."""
    try:
        with open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
        return bool(Event.from_json(parse_json(last)).kind == EXITED)
    except (DamagedFileError, ValueError, KeyError, TypeError):
        return False


def read_compacted(path: Path) -> list[WorkerLog]:
    """The workers in a compacted file: each event with its worker's token."""
    by_token: dict[str, list[bytes]] = {}
    for line in read_plain(path).split(b"\n"):
        token, _, record = line.partition(b"\t")
        if record:
            by_token.setdefault(token.decode(errors="replace"), []).append(record)
    return [replace(_parse(token, lines), compacted=True) for token, lines in by_token.items()]


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

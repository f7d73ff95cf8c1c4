"""Journals: one append-only file per worker, created exclusively as the mark of its token.

A worker's first act is to create ``journals/<token>.jsonl`` exclusively. A second process with the same token
finds it and exits; a command that gives up a lost submission creates it itself, marked revoked. Each
line is an :class:`Event`. `status` reads journals and opens no run folder.

Attempts count from 1. An event of attempt 0 records why a worker could not take a run: it is no evidence
about attempts of others, and counts only without better evidence.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse
from orchestrator.core.types import Int64, Reason, RunState
from orchestrator.rundir.attempts.holder import Holder
from orchestrator.rundir.files.atomic import (
    dump_json,
    line_parser,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.files.file_server import persist
from orchestrator.rundir.files.kinds import MALFORMED, number, reason, text, whole
from orchestrator.rundir.files.plain_files import (
    Version,
    open_plain,
    open_to_write,
    read_rest,
    version_of,
)

# Kinds of event, in their order for one worker.
STARTED = "started"  # the worker: holder, slots, host facts
REVOKED = "revoked"  # the token was given up before any worker took it
CLAIMED = "claimed"  # a run's attempt began
PROGRESS = "progress"  # frames, total, end_to_end_fps, iteration_fps, return, note
ENDED = "ended"  # the attempt ended: outcome, reason, message
EXITED = "exited"  # the worker left

# Bytes at the end of a journal that contain the last line of an exited worker.
_LAST_WORDS = 1 << 14


@dataclass(frozen=True)
class Progress:
    """The data of a progress event. Frames per second: of the attempt so far, and of its latest iteration.

    ``note``: what is to be said of the run.
    """

    frames: int | None
    total: int | None
    end_to_end_fps: float | None
    iteration_fps: float | None
    value: float | None
    note: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        speeds = data.get("end_to_end_fps"), data.get("iteration_fps")
        frames, total = whole(data.get("frames")), whole(data.get("total"))
        end_to_end, of_iteration = map(number, speeds)
        return cls(
            frames, total, end_to_end, of_iteration, number(data.get("return")), text(data.get("note"))
        )


@dataclass(frozen=True)
class AttemptEnd:
    """The data of an ended event. ``end_to_end_fps`` and ``value`` are of the result's summary."""

    outcome: RunState
    reason: Reason | None
    message: str | None
    frames: int | None
    end_to_end_fps: float | None
    value: float | None
    code_id: str | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        summary = data.get("summary") or {}
        return cls(
            RunState(data["outcome"]),
            reason(data.get("reason")),
            text(data.get("message")),
            whole(data.get("frames")),
            number(summary.get("end_to_end_fps")),
            number(summary.get("final_return")),
            text(data.get("code_id")),
        )


_CAUSES = [one.value for one in (Reason.SETUP, Reason.BUDGET, Reason.STORAGE)]


@dataclass(frozen=True)
class WorkerExit:
    """The data of a worker's last event.

    ``asked``: whether the worker left before its runs were over; ``again``: whether
    its job was requeued. ``cause``: why it left runs: ``SETUP`` (no run could begin), ``BUDGET`` or
    ``STORAGE``. ``start``: the nonce of the worker's own start, ``None`` if unrecorded.
    """

    why: str | None
    asked: bool
    again: bool
    cause: Reason | None
    start: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        asked = data.get("asked") is not False
        cause = Reason(data["cause"]) if data.get("cause") in _CAUSES else None
        return cls(text(data.get("why")), asked, bool(data.get("again")), cause, text(data.get("start")))


class Event(msgspec.Struct, frozen=True, rename={"run_id": "run"}):
    """One line of a journal. ``time``: epoch seconds by the worker's clock.

    ``up``: seconds since boot by its machine's clock, for durations, as the other clock can jump.
    """

    kind: str
    time: float
    run_id: str | None = None
    attempt: Int64 | None = None
    data: Mapping[str, Any] = {}
    up: float | None = None

    @property
    def progress(self) -> Progress:
        return Progress.from_json(self.data)

    @property
    def end(self) -> AttemptEnd:
        return AttemptEnd.from_json(self.data)

    @property
    def exit(self) -> WorkerExit:
        return WorkerExit.from_json(self.data)

    @property
    def node(self) -> str:
        """The scheduler's name of a started worker's machine; empty if there is none."""
        host = self.data.get("host")
        return str(host.get("node") or "") if isinstance(host, dict) else ""

    def adding(self, **data: Any) -> Self:
        """Return the event with more data."""
        return msgspec.structs.replace(self, data={**self.data, **data})

    def to_line(self) -> bytes:
        record: dict[str, Any] = {"kind": self.kind, "time": round(self.time, 3)}
        if self.up is not None:
            record["up"] = round(self.up, 3)
        if self.run_id is not None:
            record |= {"run": self.run_id, "attempt": self.attempt}
        return dump_json(record | ({"data": dict(self.data)} if self.data else {}))


_event_of = line_parser(Event)


def read_event(line: bytes) -> Event:
    """Parse a line. Raises one of :data:`MALFORMED` for invalid ones."""
    event = _event_of(line)
    if not math.isfinite(event.time) or not math.isfinite(event.up or 0.0):
        raise ValueError("a time is finite")
    if event.kind == STARTED:
        parse(Holder, event.data["holder"])
    elif event.kind == ENDED:
        RunState(event.data["outcome"])
        if not isinstance(event.data.get("summary"), dict | None):
            raise TypeError("a summary is by name")
    return event


@dataclass(frozen=True)
class WorkerLog:
    """A worker's journal, parsed. ``damaged`` counts unreadable lines.

    ``compacted``: its journal is compacted, so that no job starts with its token again.
    """

    token: str
    events: tuple[Event, ...]
    damaged: int = 0
    compacted: bool = False

    @property
    def holder(self) -> Holder | None:
        """The worker process of the latest start, or ``None`` for a revoked token."""
        starts = [event for event in self.events if event.kind == STARTED]
        return parse(Holder, starts[-1].data["holder"]) if starts else None

    @property
    def exited(self) -> bool:
        """Whether the worker left or never started. One that writes after an exit is another, at work."""
        last = next(reversed(self.events), None)
        for event in reversed(self.events):
            if event.kind in (STARTED, REVOKED, EXITED):
                return event is last and event.kind != STARTED
        return True

    @property
    def revoked(self) -> bool:
        """Whether the token was given up before a worker took it: the job will never do anything."""
        return bool(self.events) and self.events[0].kind == REVOKED

    @property
    def setup_failure(self) -> str | None:
        """Why the job's set-up failed at its last start, if it did."""
        left = self.events[-1].exit if self.exited and self.events else None
        return left.why if left is not None and left.cause is Reason.SETUP else None

    def worked(self, until: float | None = None) -> float:
        """Return the seconds its job has had a machine: from its first event to its last, or to ``until``.

        A requeued job counts each of its starts without the waiting between.
        """
        total, began, last, longest = 0.0, None, None, 0.0
        for event in self.events:
            if event.kind == STARTED:
                total, longest, began = total + longest, 0.0, event
            if began is not None:
                if (span := elapsed(began, event)) >= longest:  # otherwise a clock was set back
                    longest, last = span, event
                if event.kind == EXITED:
                    total, longest, began = total + longest, 0.0, None
        since = max(0.0, until - last.time) if until and began and last else 0.0
        return total + longest + since

    @property
    def returning(self) -> bool:
        """Whether the worker left a job that was requeued and is not over."""
        again = bool(self.events) and self.events[-1].exit.again
        return self.exited and again and not self.compacted

    @property
    def may_return(self) -> bool:
        """Whether its job may be queued again: the worker did not leave for lack of work.

        Schedulers requeue preempted jobs and those of dead nodes by themselves.
        """
        if self.compacted or self.revoked:
            return False
        return not self.exited or (bool(self.events) and self.events[-1].exit.asked)


def elapsed(one: Event, other: Event) -> float:
    """Return the seconds between two events of a worker; by the monotonic clock if both have it."""
    if one.up is not None and other.up is not None:
        return max(0.0, other.up - one.up)
    return max(0.0, other.time - one.time)


class Journal:
    """The writer of a journal, in one process only. A line cut by a full disk is ended before the next."""

    def __init__(self, path: Path, started: Event | None = None) -> None:
        self._path, self._start = path, _nonce(started)
        self._torn = False

    @classmethod
    def create(cls, path: Path, started: Event) -> Self | None:
        """Take the token; return None if it is taken."""
        return cls(path, started) if write_exclusive(path, started.to_line()) else None

    def read(self) -> WorkerLog:
        """Read the journal so far."""
        return read_journal(self._path)

    def append(self, event: Event) -> None:
        """Append an event."""
        if event.kind == EXITED and self._start:
            event = event.adding(start=self._start)
        with storage_errors(self._path):
            persist(lambda: self._append(event.to_line()))

    def _append(self, line: bytes) -> None:
        with open_to_write(self._path, "ab", buffering=0) as file:
            prefix = b"\n" if self._torn else b""
            self._torn = True
            if file.write(prefix + line) == len(prefix + line):
                self._torn = False


class JournalReader:
    """Reads growing journals repeatedly, each time only the new part."""

    def __init__(self) -> None:
        # By path: the version read, the end of whole lines, their log, and the log with an unfinished last
        # line.
        self._known: dict[Path, tuple[Version, int, WorkerLog, WorkerLog]] = {}
        self._compacted: tuple[Version, list[WorkerLog]] | None = None

    def read(self, path: Path) -> WorkerLog:
        """Read a journal. Raises ``FileNotFoundError`` after compaction: then list the folder again."""
        return persist(lambda: self._read(path))

    def _read(self, path: Path) -> WorkerLog:
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
        whole, end, rest = data.rpartition(b"\n")  # an unfinished line is read again later
        log = _after(known, _parse(path.stem, whole.split(b"\n")))
        seen = _after(log, _parse(path.stem, [rest])) if rest else log
        self._known[path] = version, start + len(whole) + len(end), log, seen
        return seen

    def read_compacted(self, path: Path) -> list[WorkerLog]:
        """Read a compacted file: each line holds a worker's token and an event."""
        return persist(lambda: self._read_compacted(path))

    def _read_compacted(self, path: Path) -> list[WorkerLog]:
        with open_plain(path) as file:
            version = version_of(os.fstat(file.fileno()))
            if self._compacted is not None and self._compacted[0] == version:
                return self._compacted[1]
            data = read_rest(file, path)
        by_token: dict[str, list[bytes]] = {}
        for line in data.split(b"\n"):
            token, _, record = line.partition(b"\t")
            if record:
                by_token.setdefault(token.decode(errors="replace"), []).append(record)
        whole = (_after(WorkerLog(token, ()), _parse(token, lines)) for token, lines in by_token.items())
        logs = [replace(log, compacted=True) for log in whole]
        self._compacted = version, logs
        return logs


def _after(log: WorkerLog, more: WorkerLog) -> WorkerLog:
    events = tuple(_without_late_exits(log.events, more.events))
    return WorkerLog(log.token, log.events + events, log.damaged + more.damaged)


def _without_late_exits(before: Sequence[Event], events: Sequence[Event]) -> Iterable[Event]:
    """Leave out exits of workers from a lost node that came back when the job had begun again elsewhere."""
    if not any(event.kind == EXITED and event.exit.start for event in events):
        return events
    start = next((_nonce(event) for event in reversed(before) if event.kind == STARTED), None)
    own = []
    for event in events:
        if event.kind == STARTED:
            start = _nonce(event)
        if event.kind != EXITED or start is None or event.exit.start in (None, start):
            own.append(event)
    return own


def _nonce(started: Event | None) -> str | None:
    return None if started is None else started.data.get("nonce")


def read_journal(path: Path) -> WorkerLog:
    """Read a journal once, as :meth:`JournalReader.read`."""
    return JournalReader().read(path)


def ends_with_exit(path: Path) -> bool:
    """Return whether the last event is the worker's exit. Reads only the end of the journal."""
    try:
        with open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
        return read_event(last).kind == EXITED
    except (DamagedFileError, *MALFORMED):
        return False


def write_compacted(path: Path, logs: Iterable[WorkerLog]) -> None:
    """Compact journals of exited workers to starts, exits and the last event of each kind per attempt."""
    lines = []
    for log in logs:
        last = {(event.kind, event.run_id, event.attempt, _repeat_key(event)): event for event in log.events}
        lines += [log.token.encode() + b"\t" + event.to_line() for event in last.values()]
    write_atomic(path, b"".join(lines))


def _repeat_key(event: Event) -> float | None:
    """Return a key that separates repeated starts and exits of one worker: a requeued job has several."""
    return event.time if event.kind in (STARTED, EXITED) else None


def _parse(token: str, lines: Iterable[bytes]) -> WorkerLog:
    events, damaged = [], 0
    for line in lines:
        if not line:
            continue
        try:
            events.append(read_event(line))
        except MALFORMED:
            damaged += 1
    return WorkerLog(token, tuple(events), damaged)

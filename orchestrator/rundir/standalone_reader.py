"""Read the state of a results tree with Python's standard library alone.

Sent to other machines as text, with :mod:`orchestrator.ui.monitor.probe`: it imports nothing of ours and runs
on Python 3.6 and later. Each refresh reads only new data.
"""

import json
import os
import re
import stat
from typing import Any

_SWEEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RUN_ID = re.compile(r"[0-9a-f]{16}")
_CHECKPOINT = re.compile(r"(\d{12})-[0-9a-f]{16}\.pt")
_EVENTS = "events.out.tfevents."
_COMPACTED = "compacted.jsonl"

# Attempts searched for event files at each refresh, until one is found.
_SEARCHED = 200
# A run is stalled after this many of its longest silences, and never within a lease.
_SILENCES = 5
# Bytes at the end of a metrics file that contain its last line.
_TAIL = 1 << 16
_LONGEST_VALUE, _FAILURES = 60, 3
# Limit in bytes for one read, against files that are not ours.
_MOST = 1 << 30
# As in core.formats and .kinds, which this file cannot import.
_FORMAT = 1
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
# Ledger entries about run states: users' decisions, and facts found on disk. Others concern ownership.
_DECIDED = ("submission", "cancel", "retry", "memory")
_FACTS = ("found", "ended", "lost")
_FINAL = ("done", "failed", "cancelled", "skipped")
_MOST_KEYS = 8
_FIRST = ("running", "stalled", "failed", "interrupted", "unknown", "done", "cancelled", "skipped")


class GlanceTree:
    """A results folder with all its sweeps. ``lease``: seconds of tolerated silence."""

    def __init__(self, path: str, lease: float) -> None:
        self.path, self._lease = path, lease
        self._sweeps = {}  # type: dict[str, GlanceSweep]
        self.has_events = False

    def look(self, now: float, limit: int) -> "dict[str, Any]":
        """Return counts of all sweeps, details of the ``limit`` most urgent runs, and a few failures."""
        for name in _listed(self.path):
            if name not in self._sweeps and _SWEEP.fullmatch(name):
                folder = os.path.join(self.path, name)
                if os.path.isdir(os.path.join(folder, "grids")):
                    self._sweeps[name] = GlanceSweep(name, folder)
        for sweep in self._sweeps.values():
            sweep.read()
            self.has_events = self.has_events or sweep.finds_events()
        states = {
            sweep.name: {run_id: sweep.state(run, now, self._lease) for run_id, run in sweep.runs.items()}
            for sweep in self._sweeps.values()
        }
        known = [
            (_FIRST.index(state), -sweep.runs[run_id].since, sweep.name, run_id)
            for sweep in self._sweeps.values()
            for run_id, state in states[sweep.name].items()
            if sweep.runs[run_id].since and state in _FIRST
        ]
        known.sort()
        failed = [one for one in known[limit:] if _FIRST[one[0]] == "failed"][:_FAILURES]
        chosen = [(self._sweeps[name], run_id) for _, _, name, run_id in known[:limit] + failed]
        return {
            "sweeps": [sweep.summary(states[sweep.name]) for sweep in self._sweeps.values()],
            "rows": [sweep.row(sweep.runs[run_id], states[sweep.name][run_id]) for sweep, run_id in chosen],
        }


class GlanceRun:
    """A run as its journals describe it. Times are epoch seconds, by its worker's clock."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.state, self.token, self.attempt = run_id, "pending", "", 0
        self.frames = self.total = self.end_to_end_fps = self.value = self.why = None  # type: Any
        self.since = self.gap = 0.0
        self.cancelled = False
        self.forgiven = self.reopened = 0

    def is_late(self, attempt: int, state: str) -> bool:
        """Return whether an event of the attempt changes nothing: the run has a newer one, or a result."""
        if state == "done" and attempt > self.reopened:
            return False
        done = self.state == "done" and self.attempt > self.reopened
        return attempt < self.attempt or (done and attempt > self.attempt)

    def note_time(self, time: float) -> None:
        """Record a sign of life."""
        self.gap = max(self.gap, time - self.since) if self.state == "running" else 0.0
        self.since = time

    def update(self, frames: Any, total: Any, end_to_end_fps: Any, value: Any) -> None:
        """Update the given values; None leaves a value unchanged."""
        self.frames = self.frames if frames is None else frames
        self.total = self.total if total is None else total
        self.end_to_end_fps = self.end_to_end_fps if end_to_end_fps is None else end_to_end_fps
        self.value = self.value if value is None else value

    def apply_decision(self, kind: str, said: Any) -> None:
        """Apply a decision; ``said``: the reason of a skip, or the last attempt it concerns."""
        if kind == "submission":
            if not self.attempt or self.state == "pending":
                self.state, self.why = "skipped", str(said)[:300]
        elif kind == "cancel":
            self.cancelled = self.state != "done"
        else:
            self.forgiven = max(said, self.forgiven)
            if self.attempt <= said and (self.cancelled or self.state in _FINAL):
                self.state, self.why = "pending", None
            self.cancelled = False

    def apply_fact(self, kind: str, said: Any) -> None:
        """Apply a fact missing from the journals: a result, an end, or the loss of a result."""
        if kind == "lost":
            if self.state == "done" and self.attempt <= said:
                self.state, self.cancelled = "pending", False
        elif kind == "found":
            if not self.is_late(said["attempt"], "done"):
                self.attempt, self.state, self.why, self.cancelled = said["attempt"], "done", None, False
        elif self.attempt <= said["attempt"] and self.state != "done" and self.forgiven < said["attempt"]:
            self.state, self.why = "failed", said.get("message")


class GlanceSweep:
    """One sweep's folder: index, ledger and journals, read once and then only where they grew."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self._folder = name, folder
        self.runs = {}  # type: dict[str, GlanceRun]
        self._points = {}  # type: dict[str, dict[str, Any]]
        self._in_grid = set()  # type: set[str]
        self._varying = []  # type: list[str]
        self._index = self._compacted = None  # type: tuple[int, int, float] | None
        self._read_to = {}  # type: dict[str, tuple[int, int]]
        self._ledger = 0
        self._holders, self._starts = {}, {}  # type: dict[str, dict[str, Any]], dict[str, Any]
        self._left = set()  # type: set[str]
        self._unsearched = None  # type: list[GlanceRun] | None
        self._damaged = set()  # type: set[tuple[str, bytes]]

    def read(self) -> None:
        """Read new data: decisions before the events that follow them, and apply them afterwards."""
        self._read_index()
        decisions = self._new_decisions()
        self._read_journals()
        for number, entry in decisions:
            try:
                self._decide(entry)
            except _MALFORMED:
                self._damaged.add((str(number), b""))

    def _read_index(self) -> None:
        path = os.path.join(self._folder, "index.tsv")
        version = _version(path)
        if version is None or version == self._index:
            return
        self._index = version
        self._points, self._in_grid = {}, set()
        for line in _bytes(path).decode("utf-8", "replace").split("\n")[1:]:
            run_id, _, rest = line.partition("\t")
            in_grid, _, point = rest.partition("\t")
            try:
                self._points[run_id] = dict(json.loads(point))
            except _MALFORMED:
                continue
            if in_grid == "1":
                self._in_grid.add(run_id)
            if _RUN_ID.fullmatch(run_id):
                self.runs.setdefault(run_id, GlanceRun(run_id))
        self._varying = _varying([self._points[run_id] for run_id in self._in_grid])
        self._unsearched = None

    def _read_journals(self) -> None:
        folder = os.path.join(self._folder, "journals")
        for name, (inode, size) in sorted(_files(folder, ".jsonl").items()):
            path = os.path.join(folder, name)
            if name == _COMPACTED:
                self._read_compacted(path)
                continue
            known, start = self._read_to.get(name, (inode, 0))
            if known != inode or size < start:
                start = 0
            if size > start:
                whole = _bytes(path, start).rpartition(b"\n")[0]  # an unfinished line is read later
                for line in whole.split(b"\n"):
                    self._take(name[: -len(".jsonl")], line)
                self._read_to[name] = (inode, start + len(whole) + 1 if whole else start)

    def _read_compacted(self, path: str) -> None:
        version = _version(path)
        if version != self._compacted:
            self._compacted = version
            for line in _bytes(path).split(b"\n"):
                token, _, record = line.partition(b"\t")
                self._take(token.decode("utf-8", "replace"), record)
            self._ledger = 0  # decisions apply again after the events that they concern

    def _take(self, token: str, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = json.loads(line.decode("utf-8"))
            self._apply(token, event, event.get("data", {}))
        except _MALFORMED:
            self._damaged.add((token, line))

    def _note_worker(self, token: str, kind: str, data: "dict[str, Any]") -> None:
        if kind == "started":
            self._holders[token], self._starts[token] = dict(data["holder"]), data.get("nonce")
            self._left.discard(token)
        elif kind == "exited" and data.get("start") in (None, self._starts.get(token)):
            self._left.add(token)  # another start is that of a node that was lost before

    def _apply(self, token: str, event: "dict[str, Any]", data: "dict[str, Any]") -> None:
        kind, time, run_id = event["kind"], float(event["time"]), event.get("run")
        self._note_worker(token, kind, data)
        if not isinstance(run_id, str) or run_id not in self.runs:
            return
        run, attempt = self.runs[run_id], int(event["attempt"])
        if run.is_late(attempt, str(data.get("outcome")) if kind == "ended" else ""):
            return
        if kind == "claimed":
            run.attempt, run.token, run.state, run.why, run.since = attempt, token, "running", None, time
            run.gap = 0.0
        elif kind == "progress":
            run.note_time(time)
            fps = data.get("end_to_end_fps", data.get("fps"))
            run.update(data.get("frames"), data.get("total"), fps, data.get("return"))
        elif kind == "ended":
            summary = data.get("summary") or {}
            run.attempt, run.token, run.state, run.since = attempt, token, str(data["outcome"]), time
            words = [str(data[key]) for key in ("reason", "message") if data.get(key)]
            run.why = ": ".join(words)[:300] or None
            if attempt and attempt <= run.forgiven and run.state in _FINAL:
                run.state, run.why = "pending", None
            run.update(data.get("frames"), None, summary.get("end_to_end_fps"), summary.get("final_return"))

    def _new_decisions(self) -> "list[tuple[int, dict[str, Any]]]":
        """Read new decisions about runs: cancellations, retries, results found."""
        folder, found = os.path.join(self._folder, "ledger"), []
        numbers = (name[:-5] for name in _listed(folder) if name.endswith(".json"))
        for number in sorted(int(number) for number in numbers if number.isdigit()):
            if number > self._ledger:
                self._ledger = number
                try:
                    entry = json.loads(_bytes(os.path.join(folder, "%04d.json" % number)).decode("utf-8"))
                    found.append((number, entry))
                    self._reopen(entry)
                except _MALFORMED:
                    self._damaged.add((str(number), b""))
        return found

    def _reopen(self, entry: "dict[str, Any]") -> None:
        """Note whether attempts count that follow a result: the run was retried, or lost the result."""
        for run_id, said in entry["runs"].items() if entry["kind"] in ("retry", "lost", "found") else ():
            if run_id in self.runs:
                run = self.runs[run_id]
                found = entry["kind"] == "found"
                run.reopened = min(run.reopened, said["attempt"] - 1) if found else max(run.reopened, said)

    def _decide(self, entry: "dict[str, Any]") -> None:
        if entry.get("format", _FORMAT) != _FORMAT:
            raise ValueError(entry["format"])
        kind = entry["kind"]
        if kind == "submission":
            for run_id in [run_id for job in entry["jobs"] for run_id in job["run_ids"]]:
                if run_id in self.runs and self.runs[run_id].state == "skipped":
                    self.runs[run_id].state, self.runs[run_id].why = "pending", None
        if kind in _DECIDED + _FACTS:
            for run_id, said in entry["skipped" if kind == "submission" else "runs"].items():
                if run_id in self.runs:
                    run = self.runs[run_id]
                    (run.apply_decision if kind in _DECIDED else run.apply_fact)(kind, said)

    def state(self, run: GlanceRun, now: float, lease: float) -> str:
        """Return the run's state; a process on another machine can only be silent."""
        if run.cancelled and run.state != "done":
            return "cancelled"
        if run.state != "running":
            return run.state
        if run.token in self._left or _is_dead(self._holders.get(run.token, {})):
            return "interrupted"
        return "stalled" if now - run.since > max(lease, _SILENCES * run.gap) else "running"

    def summary(self, states: "dict[str, str]") -> "dict[str, Any]":
        """Summarise the latest grid. ``left``: frames still to train, if known."""
        runs = [self.runs[run_id] for run_id in self._in_grid if run_id in self.runs]
        counts = {}  # type: dict[str, int]
        for run in runs:
            counts[states[run.run_id]] = counts.get(states[run.run_id], 0) + 1
        totals = [run.total for run in runs if isinstance(run.total, (int, float))]
        usual = sum(totals) / len(totals) if totals else 0
        left = [
            (run.total if isinstance(run.total, (int, float)) else usual)
            - (run.frames if isinstance(run.frames, (int, float)) else 0)
            for run in runs
            if states[run.run_id] not in _FINAL
        ]
        speeds = [
            run.end_to_end_fps
            for run in runs
            if states[run.run_id] == "running" and isinstance(run.end_to_end_fps, (int, float))
        ]
        return {
            "name": self.name,
            "counts": counts,
            "end_to_end_fps": sum(speeds),
            "left": sum(one for one in left if one > 0) if totals else None,
            "since": max([run.since for run in runs] or [0.0]),
            "damaged": len(self._damaged),
        }

    def row(self, run: GlanceRun, state: str) -> "dict[str, Any]":
        """Return all details of a run with its newest checkpoint; opens its folder."""
        point = self._points.get(run.run_id, {})
        return {
            "sweep": self.name,
            "run": run.run_id,
            "point": {key: _short(point[key]) for key in self._varying[:_MOST_KEYS] if key in point},
            "state": state,
            "attempt": run.attempt,
            "frames": run.frames,
            "total": run.total,
            "end_to_end_fps": run.end_to_end_fps,
            "value": run.value,
            "since": run.since,
            "why": run.why,
            "host": self._holders.get(run.token, {}).get("host"),
            "checkpoint": self._checkpoint(run),
            "memory_mb": self._memory(run) if state == "running" else None,
        }

    def _attempt(self, run_id: str, number: int) -> str:
        return os.path.join(self._folder, "runs", run_id, "attempts", str(number))

    def _checkpoint(self, run: GlanceRun) -> "dict[str, Any] | None":
        """Return the most advanced checkpoint of the newest attempt with one, among the last three."""
        for number in range(run.attempt, max(run.attempt - 3, 0), -1):
            folder = os.path.join(self._attempt(run.run_id, number), "checkpoints")
            names = [name for name in _listed(folder) if _CHECKPOINT.fullmatch(name)]
            if names:
                try:
                    status = os.stat(os.path.join(folder, max(names)))
                except OSError:  # replaced by its successor a moment ago
                    continue
                return {"frames": int(max(names)[:12]), "time": status.st_mtime, "bytes": status.st_size}
        return None

    def _memory(self, run: GlanceRun) -> Any:
        """Return the run's peak memory in MiB, if its trainer records it."""
        path = os.path.join(self._attempt(run.run_id, run.attempt), "metrics.jsonl")
        lines = _bytes(path, -_TAIL).split(b"\n")
        try:
            return json.loads(lines[-2].decode("utf-8"))["metrics"]["system/peak_memory_mb"]
        except _MALFORMED:
            return None

    def finds_events(self) -> bool:
        """Return whether TensorBoard has data here; continues an earlier search."""
        if not self._unsearched:
            self._unsearched = [run for run in self.runs.values() if run.attempt]
        for _ in range(min(_SEARCHED, len(self._unsearched))):
            run = self._unsearched.pop()
            for number in range(1, run.attempt + 1):
                if any(name.startswith(_EVENTS) for name in _listed(self._attempt(run.run_id, number))):
                    return True
        return False


def _is_dead(holder: "dict[str, Any]") -> bool:
    """Return whether a process of this very machine has ended; False without proof."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            here = file.read().strip() == holder["boot_id"]
        if not here or os.readlink("/proc/self/ns/pid") != holder["pid_namespace"]:
            return False
    except (OSError, KeyError):
        return False
    try:
        with open("/proc/%d/stat" % int(holder["pid"]), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (OSError, KeyError, TypeError, ValueError):
        return True
    return fields[0] in b"ZX" or int(fields[19]) != holder.get("started")


def _varying(points: "list[dict[str, Any]]") -> "list[str]":
    """Return the keys that differ between points, in their own order; all keys of a single point."""
    first = points[0] if points else {}
    found = {}  # type: dict[str, bool]
    for point in points:
        for key, value in point.items():
            found[key] = found.get(key, False) or key not in first or first[key] != value
    return [key for key, varies in found.items() if varies] if len(points) > 1 else list(first)


def _short(value: Any) -> Any:
    """Return numbers unchanged, anything else as text that fits a line."""
    if isinstance(value, (int, float)) and abs(value) < 1e15:
        return value
    return (value if isinstance(value, str) else json.dumps(value))[:_LONGEST_VALUE]


def _listed(folder: str) -> "list[str]":
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _files(folder: str, suffix: str) -> "dict[str, tuple[int, int]]":
    """Return inode and size of a folder's files, by name."""
    found = {}
    for name in _listed(folder):
        if name.endswith(suffix):
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:  # compacted a moment ago
                continue
            found[name] = (status.st_ino, status.st_size)
    return found


def _version(path: str) -> "tuple[int, int, float] | None":
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime


def _bytes(path: str, start: int = 0) -> bytes:
    """Read a file from ``start`` on, or its last ``-start`` bytes; empty if it does not exist."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a FIFO would block
            return b""
        with open(path, "rb") as file:
            if start < 0:
                start = max(0, file.seek(0, os.SEEK_END) + start)
            file.seek(start)
            size = os.fstat(file.fileno()).st_size - start
            return file.read(min(size, _MOST)) if size > 0 else b""  # Python allocates that much memory first
    except OSError:
        return b""

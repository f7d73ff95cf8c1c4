"""The metrics file of an attempt, and the merge of several attempts into one history.

JSON lines. The first gives the attempt's start: ``{"resumed_from": null}`` or
``{"resumed_from": {"attempt": 1, "frames": 24000}}``. Each further line is a step of training::

    {"iteration": 3, "frames": 24000, "wall_time": 41.2, "metrics": {"collection/reward/reward_mean": 0.1}}

``frames`` counts from the start of the run and grows; neighbours with the same frames and iteration are one
step in two lines, later values count; ``wall_time`` is seconds at work, evaluations and
checkpoints included, attempts added up, waiting not counted. Numbers that JSON lacks are the texts "nan",
"inf" and "-inf". A last line without its newline was cut by a kill and does not count.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Int64
from orchestrator.rundir.files.atomic import line_parser, storage_errors
from orchestrator.rundir.files.file_server import persist
from orchestrator.rundir.files.kinds import MALFORMED
from orchestrator.rundir.files.plain_files import open_plain, open_to_write, read_plain

# Bytes at the end of a metrics file that contain its last line.
_LAST_LINE = 1 << 16
# Words in the name of a metric of time or of the machine.
_OF_MACHINES = re.compile(
    r"(?:^|[/_.\- ])(?:time|timer|timestamp|elapsed|seconds?|secs?|ms|minutes|hours|duration|clock|sps|fps|"
    r"ips|throughput|speed|eta|memory|mem|ram|cpu|gpu|rss|utili[sz]ation|per[_ ]sec(?:ond)?)(?=$|[/_.\- ])",
    re.IGNORECASE,
)
_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint an attempt continued from: the attempt that wrote it, and its frames."""

    attempt: int
    frames: int


@dataclass(frozen=True)
class Row:
    """One line of metrics: names to numbers, after ``frames`` frames."""

    iteration: Int64
    frames: Int64
    wall_time: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_line(self) -> bytes:
        metrics = {name: _encode(value) for name, value in self.metrics.items()}
        return (_ENCODER.encode({**vars(self), "metrics": metrics}) + "\n").encode()


@dataclass(frozen=True)
class _Start:
    """The first line of a metrics file."""

    resumed_from: ResumePoint | None

    def to_line(self) -> bytes:
        return (json.dumps(asdict(self)) + "\n").encode()


# Texts are accepted as numbers: "nan", "inf" and "-inf".
_row_of = line_parser(Row, strict=False)
_start_of = line_parser(_Start)


class MetricsWriter:
    """Appends rows to an attempt's metrics file. :meth:`sync` makes them durable before a checkpoint.

    Keeps those in memory that are not durable yet: after an error of the file server they may be lost, even
    those that were taken before, and all are written again.
    """

    def __init__(self, path: Path, resumed_from: ResumePoint | None) -> None:
        self._path = path
        self._durable, self._written, self._pending = 0, 0, bytearray()
        self._file: IO[Any] | None = None
        self._write(_Start(resumed_from).to_line())

    def append(self, *rows: Row) -> None:
        self._write(b"".join(row.to_line() for row in rows))

    def sync(self) -> None:
        self._write(b"", durable=True)
        self._durable, self._pending = self._written, bytearray()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, lines: bytes, *, durable: bool = False) -> None:
        self._pending += lines
        with storage_errors(self._path):
            persist(lambda: self._store(durable))

    def _store(self, durable: bool) -> None:
        try:
            if self._file is None:
                # An attempt has one writer and starts once: what stands there is its own, or its torn start.
                self._file = open_to_write(self._path, "r+b" if self._durable else "wb", buffering=0)
                self._written = self._file.seek(self._durable)
                self._file.truncate()
            while rest := self._pending[self._written - self._durable :]:
                self._written += self._file.write(rest)
            if durable:
                os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self.close()
            self._file = None
            raise


def read_metrics(path: Path) -> tuple[ResumePoint | None, list[Row]]:
    """Read an attempt's metrics. A missing file counts as empty. Raises :class:`DamagedFileError`."""
    try:
        lines = read_plain(path).split(b"\n")
    except FileNotFoundError:
        return None, []
    del lines[-1]  # empty after the final newline, or a line cut by a kill
    resumed_from: ResumePoint | None = None
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        try:
            if number == 1 and line.startswith(b'{"resumed_from":'):
                resumed_from = _start_of(line).resumed_from
            else:
                add_row(rows, _row_of(line))
        except MALFORMED as error:
            raise DamagedFileError(path, f"line {number} is not a metrics row ({error!r})") from error
    return resumed_from, rows


def last_metrics(path: Path) -> Mapping[str, float]:
    """Return the metrics of the last whole line of a file that grows; empty without one."""
    try:
        with open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_LINE))
            return _row_of(file.read(_LAST_LINE).split(b"\n")[-2]).metrics
    except (DamagedFileError, OSError, *MALFORMED):
        return {}


def add_row(rows: list[Row], row: Row) -> None:
    """Append a row, or merge it into the last one if it is of the same step: later values count."""
    last = rows[-1] if rows else None
    if last is not None and (last.frames, last.iteration) == (row.frames, row.iteration):
        rows[-1] = replace(row, metrics={**last.metrics, **row.metrics})
    else:
        rows.append(row)


@dataclass(frozen=True)
class Executed:
    """The metrics of one attempt: its resume point, and its rows as executed."""

    attempt: int
    resumed_from: ResumePoint | None
    rows: list[Row]


def resume_chain(last: int, read: Callable[[int], tuple[ResumePoint | None, list[Row]]]) -> list[Executed]:
    """Return attempt ``last`` and those it builds on, found through their resume points; oldest first."""
    found: list[Executed] = []
    number = last
    while True:
        point, rows = read(number)
        found.append(Executed(number, point, rows))
        if point is None or point.attempt >= number:
            return found[::-1]
        number = point.attempt


def merge(chain: Sequence[Executed]) -> list[Row]:
    """Merge attempts, oldest first, into one history.

    Rows after the checkpoint from which a later attempt resumed are dropped.
    """
    limit = math.inf
    pieces: list[list[Row]] = []
    for piece in reversed(chain):
        pieces.append([row for row in piece.rows if row.frames <= limit])
        if piece.resumed_from is not None:
            limit = min(limit, piece.resumed_from.frames)
    merged: list[Row] = []
    for rows in reversed(pieces):
        for row in rows[:1]:  # a program may evaluate again where it goes on
            add_row(merged, row)
        merged += rows[1:]
    return merged


def standing(chain: Sequence[Executed], x_axis: str, frames: float = math.inf) -> dict[int, int | None]:
    """Return the last valid place in each attempt's log of the run's history; None: all of it.

    For logs that begin with the history before the attempt's resume point, by ``x_axis``, "frames" or
    "iteration". ``frames``: the resume point of a planned next attempt. -1: nothing is valid.
    """
    rows, limit = merge(chain), frames
    found: dict[int, int | None] = {}
    for piece in reversed(chain):
        stands = [getattr(row, x_axis) for row in rows if row.frames <= limit]
        found[piece.attempt] = None if limit == math.inf else max(stands, default=-1)
        if piece.resumed_from is not None:
            limit = min(limit, piece.resumed_from.frames)
    return found


def depends_on_time(name: str) -> bool:
    """Return whether a metric may differ between two executions of the same run."""
    return name.startswith(("timers/", "speed/", "system/")) or name == "train/steps_per_sec"


@cache
def is_of_machine(name: str) -> bool:
    """Return whether a metric is, by its name, one of time or of the machine."""
    return depends_on_time(name) or _OF_MACHINES.search(name) is not None


def _encode(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))

"""Take over metrics and checkpoints from the folder in which a program leaves them.

A program may write faster than its metrics can be recorded, and faster still than sinks log. So metrics are
taken in batches, and rows that wait for the sinks are merged when they are too many. The run's own metrics
file has every line.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.trainers.command.declared import Declared
from jobs.trainers.command.found_metrics import FoundMetrics
from jobs.trainers.command.lines import PROGRAM_KEY, Dropped, last_total, parse_line, parse_object
from jobs.training.context import RunContext
from jobs.training.records.loggers import Sink, thinned
from jobs.training.time_budget import TimeBudget
from jobs.worker.failures import ProgramFailed, is_complete
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import CheckpointFile, ResumePoint, Row, add_row
from orchestrator.rundir.files.file_server import persist

_CHECKPOINT = re.compile(r"(\d{1,12})(\.[A-Za-z0-9]+)?")
# Metrics taken over at a time: some thousands of lines, a fraction of a second.
_BATCH_BYTES = 1 << 18
_LONGEST_LINE = 1 << 22
# Rows that wait for the sinks at most: a second or two of W&B's work.
_MOST_WAITING = 2_000


class Inbox:
    """The folder in which the program leaves metrics and checkpoints.

    ``behind``: the program has written more than was taken over. ``time``: the run's minutes. ``sinks`` take
    the metrics, too. ``declared``: the program's description of itself; ``dropped``: of its metrics.
    ``found``: metrics in files in the ``folder`` of the program, which count while it writes none here.
    """

    def __init__(
        self, context: RunContext, checkpoint: CheckpointFile | None, minutes: float | None, folder: Path
    ) -> None:
        self._context = context
        self._attempt = context.attempt
        persist(lambda: self._attempt.inbox_checkpoints.mkdir(parents=True, exist_ok=True))
        self._file = open(self._attempt.inbox_metrics, "a+b", buffering=0)  # noqa: SIM115 (as long as the process)
        self._rest, self._overlong = b"", False
        self.dropped = Dropped()
        self._ready: list[tuple[int, Path]] = []
        self._written = 0
        self.behind = False
        self._point = ResumePoint(checkpoint.attempt, checkpoint.frames) if checkpoint else None
        history = context.begin(self._point, row_at_checkpoint=False)
        self.found = FoundMetrics(folder, context.run, history, self._rows_before)
        self._covered = checkpoint.frames if checkpoint else 0
        self._resumed_at = checkpoint.frames if checkpoint else None
        if checkpoint is not None:
            context.total = self._declared_total(checkpoint.attempt)
        self._wall_time = history[-1].wall_time if history else 0.0
        self._clock = time.monotonic()
        self._minutes, self.time = minutes, TimeBudget(minutes, history)
        self.sinks: list[Sink] = []
        self._waiting: deque[Row] = deque()
        self.declared = Declared()

    def _rows_before(self) -> list[Row]:
        """Return the metrics as of the newest earlier attempt that has any."""
        for attempt in reversed(self._context.run_dir.current_attempts()):
            if attempt.number < self._attempt.number:
                with suppress(DamagedFileError, OSError):
                    if rows := self._context.run_dir.history(attempt.number):
                        return rows
        return []

    def program_started(self) -> None:
        """Count the time of the first line from now."""
        self._clock = time.monotonic()
        self.found.program_started()

    @property
    def complete(self) -> bool:
        """Whether the program has trained the frames that it declared as its total."""
        return self._context.total is not None and is_complete(self._context.rows, self._context.total)

    def take(self, *, ended: bool = False) -> None:
        """Take over a batch of new metrics; once all up to a checkpoint are here, the checkpoint.

        ``ended``: the program ended well, so a last line without a newline is whole, too.
        """
        ready = self._ready or self._finished()  # listed first: the program wrote metrics before
        size = persist(self._attempt.inbox_metrics.stat).st_size
        if size < self._file.tell():
            raise ProgramFailed("the program wrote its metrics file anew: open it for appending")
        if not self._ready:
            self._ready, self._written = ready, size
        text = persist(lambda: self._file.read(_BATCH_BYTES))
        self.behind = self._file.tell() < size
        if text and self.found.is_used and self._context.checkpointed_frames is None:
            self._begin_anew()
        self._take_lines(text + b"\n" * (ended and not self.behind))
        if not size and (self._ready or self.found.is_due):
            self._record(self.found.look(next(reversed(self._context.rows), None), self.dropped))
            self._report()
        if self._file.tell() >= self._written:
            for frames, path in self._ready:
                self._adopt(frames, path)
            self._ready = []

    def take_all(self, *, ended: bool) -> None:
        """Take over the remaining files after the end of the program."""
        self._ready, self.behind = [], True
        while self.behind:
            self.take(ended=ended)
        if self._file.tell() == 0:
            kept = self.found.is_used and self._context.checkpointed_frames is not None
            if not kept and self.found.ended():
                self._begin_anew()
            behind = True
            while behind:
                rows, behind = self.found.look_last(next(reversed(self._context.rows), None), self.dropped)
                self._record(rows)

    def _begin_anew(self) -> None:
        """Drop the rows read from files, to be replaced. No checkpoint may depend on them."""
        self.found.begin_anew()
        history = self._context.begin(self._point, row_at_checkpoint=False)
        self.time = TimeBudget(self._minutes, history)

    def _report(self) -> None:
        if note := self.found.report():
            self._context.progress(0, None, None, note)

    def log(self, seconds: float = math.inf) -> None:
        """Log new rows to the sinks for at most ``seconds``: a program may write faster than sinks log."""
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            row = self._waiting.popleft()
            for sink in self.sinks:
                sink.log(row)

    def _finished(self) -> list[tuple[int, Path]]:
        """List finished checkpoints."""
        found = []
        for path in persist(lambda: list(self._attempt.inbox_checkpoints.iterdir())):
            if (match := _CHECKPOINT.fullmatch(path.name)) and path.is_file():
                found.append((int(match[1]), path))
        return sorted(found)

    def _declared_total(self, attempt: int) -> int | None:
        """Return the length that the program declared in the attempts that this one continues."""
        for piece in reversed(self._context.run_dir.chain(attempt)):
            if total := last_total(self._context.run_dir.attempt(piece.attempt).inbox_metrics):
                return total
        return None

    def _adopt(self, frames: int, path: Path) -> None:
        if frames < self._covered:
            raise ProgramFailed(
                f"the program wrote {path.name} after the checkpoint of frames {self._covered}"
            )
        self._context.adopt(path, frames)
        self._covered = frames

    def _take_lines(self, text: bytes) -> None:
        *lines, self._rest = (self._rest + text).split(b"\n")
        if self._overlong and lines:
            lines, self._overlong = lines[1:], False
        if len(self._rest) > _LONGEST_LINE:
            self.dropped.line(f"more than {_LONGEST_LINE} bytes", self._rest)
            self._rest, self._overlong = b"", True
        lines = [line for line in lines if line.strip()]
        now = time.monotonic()
        seconds, last, rows = now - self._clock, next(reversed(self._context.rows), None), []
        try:
            for position, line in enumerate(lines, start=1):
                # Spread the times of rows found together evenly from the row before them.
                row = self._read(line, self._wall_time + seconds * position / len(lines), last)
                if row is not None:
                    rows.append(row)
                    last = row
        finally:
            self._record(rows)
        if lines:
            self._wall_time, self._clock = self._wall_time + seconds, now

    def _read(self, text: bytes, wall_time: float, last: Row | None) -> Row | None:
        """Parse a line; return its row, ``None`` if it describes the program or cannot be used."""
        try:
            data = parse_object(text)
            if PROGRAM_KEY in data:
                self._describe(data, text)
                return None
            line = parse_line(data, self.dropped)
        except (ValueError, RecursionError) as error:
            self.dropped.line(str(error), text, read_before=last is not None)
            return None
        self._context.total = line.total or self._context.total
        reached = max(last.frames if last else 0, self._resumed_at or 0)
        if line.frames < reached:
            self._require_resumed(line.frames)
            self.dropped.line("frames that do not grow", text)
            return None
        same = last is not None and line.frames == last.frames
        number = last.iteration if last is not None and same else line.iteration
        number = number or (last.iteration + 1 if last else 1)
        self._resumed_at = None
        return self.found.with_return(Row(number, line.frames, wall_time, line.metrics))

    def _describe(self, data: Mapping[str, Any], text: bytes) -> None:
        try:
            self.declared = self.declared.with_line(data)
        except (ValueError, TypeError) as error:
            shown = text[:200].decode(errors="replace").strip()
            raise ProgramFailed(
                f"the program describes itself wrongly: {error} in the line {shown}"
            ) from error

    def _require_resumed(self, frames: int) -> None:
        """Raise unless the program went on from its checkpoint: its first frames may be evaluated again."""
        if frames > 0 and self._resumed_at is not None:
            raise ProgramFailed(
                f"the program wrote metrics for frames {frames} after the checkpoint of frames "
                f"{self._resumed_at}: it must continue from ORCHESTRATE_RESUME"
            )

    def _record(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        self._context.record(*rows)
        for row in rows:
            self.time.spend(row)
        if self.sinks:
            waiting = list(self._waiting)
            for row in rows:
                add_row(waiting, row)
            self._waiting = deque(thinned(waiting, _MOST_WAITING))
        known = [
            frames for frames in (self._context.total, self.time.total_frames(rows[-1].frames)) if frames
        ]
        last = rows[-1]
        value = next((last.metrics[name] for name in COMMAND.returns if name in last.metrics), None)
        self._context.progress(last.frames, min(known, default=None), value)

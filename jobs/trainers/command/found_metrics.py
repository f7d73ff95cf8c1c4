"""Read the metrics of a program without a metrics file from other files in its working folder."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from jobs.trainers.command.lines import Dropped
from orchestrator.core.metric_files.folder import MetricFolder
from orchestrator.core.metric_files.names import FoundRow
from orchestrator.core.types import Run
from orchestrator.rundir import Row, add_row

# Seconds until the first search, at most between searches in vain, and between readings of found files.
_FIRST_LOOK_S, _LONGEST_PAUSE_S, _PAUSE_S = 10.0, 30.0, 2.0
# Seconds after which a program without metrics is reported.
_REPORTED_AFTER_S = 300.0
_SHOWN_NAMES = 8


class FoundMetrics:
    """The metric files in ``folder`` of an attempt that continues from ``history``.

    ``earlier`` returns the rows of the attempt before it, which a program may continue unasked. ``is_used``:
    whether rows came from there.
    """

    def __init__(
        self, folder: Path, run: Run, history: Sequence[Row], earlier: Callable[[], Sequence[Row]]
    ) -> None:
        self._files = MetricFolder(folder, run.metrics, {})
        self._declared = run.metrics
        self._reached = history[-1].frames if history else -1
        self._earlier = earlier
        self._first = self._base = self._wall_time = history[-1].wall_time if history else 0.0
        self._began, self._clock = time.time(), time.monotonic()
        self._pause, self._next = _FIRST_LOOK_S, self._clock + _FIRST_LOOK_S
        self._report_at = self._clock + _REPORTED_AFTER_S
        self.is_used = False

    def program_started(self) -> None:
        """Count the time of the first row from now; ignore files older than the attempt."""
        self._files.program_started(self._began)
        self._began, self._clock = time.time(), time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._files.behind or time.monotonic() >= self._next

    def look(self, last: Row | None, dropped: Dropped) -> list[Row]:
        """Return new rows after ``last``."""
        rows = self._rows(self._files.rows(), last, dropped)
        self._pause = _PAUSE_S if self.is_used else min(_LONGEST_PAUSE_S, 1.5 * self._pause)
        self._next = time.monotonic() + self._pause
        return rows

    def ended(self) -> bool:
        """Choose the files anew after the program's end; return whether rows so far are to be replaced."""
        return self._files.ended() and self.is_used

    def look_last(self, last: Row | None, dropped: Dropped) -> tuple[list[Row], bool]:
        """Return rows that are left after the program's end, and whether there are more."""
        rows = self._rows(self._files.last_rows(), last, dropped)
        return rows, self._files.behind

    def begin_anew(self) -> None:
        """Forget the rows that were returned."""
        self._base = self._wall_time = self._first
        self.is_used = False

    def report(self) -> str:
        """Return, once, the remark that the first minutes brought no metrics; empty otherwise."""
        if self.is_used or time.monotonic() < self._report_at:
            return ""
        self._report_at = float("inf")
        return f"no metrics found so far: {self.looked_for}"

    @property
    def looked_for(self) -> str:
        """The formats searched for, and the place; a part of a sentence."""
        return self._files.looked_for()

    def lacks_return(self, rows: Sequence[Row]) -> str:
        """Return the remark that no row has the series named as the return in the grid; empty if one has."""
        name = self._declared.get("return")
        if not name or any(name in row.metrics for row in rows):
            return ""
        names = list(dict.fromkeys(name for row in rows for name in row.metrics))
        more = ", …" if len(names) > _SHOWN_NAMES else ""
        found = f"found {', '.join(names[:_SHOWN_NAMES])}{more}"
        return f"the metrics have no {name!r}, which the grid names as return; {found}"

    def with_return(self, row: Row) -> Row:
        """Return a row of the metrics file with the return that the grid names."""
        name = self._declared.get("return")
        if not name or name not in row.metrics:
            return row
        own = "eval/return" if name.startswith("eval") else "return"
        return Row(row.iteration, row.frames, row.wall_time, {**row.metrics, own: row.metrics[name]})

    @cached_property
    def _before(self) -> Sequence[Row]:
        return self._earlier()

    def _time_before(self, frames: int) -> float:
        """Return the seconds of training that earlier attempts took for so many frames."""
        reached = bisect_right(self._before, frames, key=lambda row: row.frames)
        return self._before[reached - 1].wall_time if reached else 0.0

    def _rows(self, found: Sequence[FoundRow], last: Row | None, dropped: Dropped) -> list[Row]:
        rows: list[Row] = []
        now = time.monotonic()
        old = [one for one in found if one.earlier]
        if old:
            self._base = max(self._base, self._time_before(old[-1].frames))
        seconds, start, new = now - self._clock, max(self._wall_time, self._base), len(found) - len(old)
        for position, one in enumerate(found, start=1 - len(old)):
            if one.frames <= self._reached:
                continue  # of the history that the attempt continues
            if last is not None and one.frames < last.frames:
                dropped.line("frames that do not grow", f"{one.frames} after {last.frames}".encode())
                continue
            if one.earlier:
                at = self._time_before(one.frames)
            elif one.time is None:
                at = start + seconds * position / new
            else:
                at = one.time - self._began + self._base
            self._wall_time = max(self._wall_time, at)
            number = 1 if last is None else last.iteration + (one.frames != last.frames)
            last = Row(number, one.frames, self._wall_time, one.values)
            add_row(rows, last)
        if found:
            self._clock = now
        self.is_used = self.is_used or bool(rows)
        return rows

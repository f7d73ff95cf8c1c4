"""Read the runs of a results tree repeatedly, for the probe: states as `status` shows them, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.labels import labeller
from orchestrator.core.types import URGENT_FIRST, RunState
from orchestrator.planning.ordering import sweep_eta
from orchestrator.rundir import AttemptDir, Holder, IndexRow, SweepDir, lease_seconds, sweeps
from orchestrator.rundir.attempts.metrics import last_metrics
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import RunStatus, Survey, survey
from orchestrator.status.synced_copy import look_at_copy
from orchestrator.ui.monitor.snapshot import MonitoredRun, MonitoredSweep

# Failed runs that are always among the rows.
_FAILURES = 3
# Attempts searched for TensorBoard's event files at each look, until one is found.
_SEARCHED = 200
# A run's checkpoint is searched in so many of its newest attempts.
_NEWEST = 3
_MEMORY = "system/peak_memory_mb"


class Row(NamedTuple):
    """A run that has begun."""

    sweep: WatchedSweep
    run: IndexRow

    @property
    def urgency(self) -> tuple[int, float]:
        """Sorts the most urgent state first, and then the latest event."""
        status = self.sweep.seen.statuses[self.run.run_id]
        return URGENT_FIRST.index(status.state), -(status.since or 0.0)


class WatchedTree:
    """A results folder with all its sweeps. ``has_events``: whether TensorBoard has data here."""

    def __init__(self, path: Path) -> None:
        self._path, self._sweeps = path, dict[str, WatchedSweep]()
        self._searching: Iterator[AttemptDir] = iter(())
        self.has_events = False

    def look(self, now: float, limit: int) -> tuple[tuple[MonitoredSweep, ...], tuple[MonitoredRun, ...]]:
        """Return all sweeps, the ``limit`` most urgent runs, and a few failures more."""
        watched = [self._sweeps.setdefault(one.name, WatchedSweep(one)) for one in sweeps(self._path)]
        for sweep in watched:
            sweep.read(now)
        self.has_events = self.has_events or self._finds_events(watched)
        rows = sorted(chain.from_iterable(sweep.rows() for sweep in watched), key=lambda row: row.urgency)
        failed = [row for row in rows[limit:] if row.urgency[0] == URGENT_FIRST.index(RunState.FAILED)]
        shown = (*rows[:limit], *failed[:_FAILURES])
        return tuple(sweep.summary() for sweep in watched), tuple(row.sweep.details(row.run) for row in shown)

    def _finds_events(self, watched: Sequence[WatchedSweep]) -> bool:
        """Continue the search, or begin it again."""
        searched = list(islice(self._searching, _SEARCHED))
        if not searched:
            self._searching = chain.from_iterable(sweep.attempts() for sweep in watched)
            searched = list(islice(self._searching, _SEARCHED))
        return any(map(_has_events, searched))


class WatchedSweep:
    """One sweep. ``seen``: its state at the last look; ``problem``: why it could not be read."""

    def __init__(self, sweep_dir: SweepDir) -> None:
        self._dir = sweep_dir
        self._rows: Sequence[IndexRow] = ()
        self._label: Callable[[Mapping[str, Any]], str] = labeller([])
        self._hosts: Mapping[str, str] = {}
        self.seen = Survey((), {}, frozenset())
        self.problem = ""

    def read(self, now: float) -> None:
        """Read what is new."""
        try:
            rows, logs = self._dir.read_index(), self._dir.read_journals()
            if (copy := read_copy(self._dir.path)) is not None:
                self.seen = look_at_copy(self._dir, copy, rows)
            else:
                ledger, lease = self._dir.read_ledger(), lease_seconds()
                self.seen = survey(rows, ledger, logs, Moment(_may_live, now, lease))
            self.problem = ""
        except (OrchestrateError, OSError) as error:
            self.problem = str(error)
            return
        if rows != self._rows:
            self._rows, self._label = rows, labeller([row.point for row in rows if row.in_grid])
        self._hosts = {log.token: log.holder.host for log in logs if log.holder is not None}

    def rows(self) -> Iterator[Row]:
        """Yield the runs that have begun."""
        return (Row(self, row) for row in self.seen.rows if self.seen.statuses[row.run_id].since)

    def attempts(self) -> Iterator[AttemptDir]:
        """Yield all attempts, those of the index's last runs first."""
        for row in reversed(self.seen.rows):
            for number in range(1, self.seen.statuses[row.run_id].attempt + 1):
                yield self._dir.run_to_read(row.run_id).attempt(number)

    def summary(self) -> MonitoredSweep:
        """Return the latest grid's runs by state, their speed together, and the time to go."""
        in_grid = [self.seen.statuses[row.run_id] for row in self.seen.rows if row.in_grid]
        running = [status.end_to_end_fps or 0.0 for status in in_grid if status.state is RunState.RUNNING]
        return MonitoredSweep(
            name=self._dir.name,
            counts=self.seen.counts(),
            end_to_end_fps=sum(running),
            eta=sweep_eta(self.seen),
            since=max((status.since or 0.0 for status in in_grid), default=0.0),
            notes=(*filter(None, [self.problem]), *self.seen.remarks),
        )

    def details(self, row: IndexRow) -> MonitoredRun:
        """Return a run's state, and what its folder shows."""
        status = self.seen.statuses[row.run_id]
        checkpoint, memory = self._in_folder(status)
        return MonitoredRun(
            sweep=self._dir.name,
            run_id=row.run_id,
            label=self._label(row.point),
            state=status.state,
            frames=status.frames,
            total=status.total,
            end_to_end_fps=status.end_to_end_fps,
            value=status.value,
            since=status.since or 0.0,
            why=status.why,
            host=self._hosts.get(status.token or "", ""),
            checkpoint_frames=checkpoint.get("frames"),
            checkpoint_time=checkpoint.get("time"),
            memory_mb=memory,
            eta=status.eta,
        )

    def _in_folder(self, status: RunStatus) -> tuple[Mapping[str, float], float | None]:
        """Return the run's newest checkpoint and its memory; nothing of a folder that cannot be read."""
        checkpoint = memory = None
        try:
            run = self._dir.run_to_read(status.run_id)
            newest = range(status.attempt, max(status.attempt - _NEWEST, 0), -1)
            checkpoints = (run.attempt(number).newest_checkpoint() for number in newest)
            checkpoint = next(filter(None, checkpoints), None)
            if status.state is RunState.RUNNING:
                memory = last_metrics(run.attempt(status.attempt).metrics).get(_MEMORY)
        except (OrchestrateError, OSError):
            pass
        return checkpoint or {}, memory


def _has_events(attempt: AttemptDir) -> bool:
    try:
        return bool(attempt.event_files())
    except OSError:  # not to be read
        return False


def _may_live(holder: Holder) -> bool:
    """Judge a worker without its scheduler: on another machine it can only be silent."""
    return holder.alive() is not False

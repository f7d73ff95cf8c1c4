"""What a worker may work on next: the runs given to its job, and what people decided about them meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jobs.failures import End, deaths_in_vain
from orchestrator.errors import OrchestrateError
from orchestrator.rundir import DAMAGED, LedgerEntry, RunDir, SweepDir, attempt_ended, tidy_finished
from orchestrator.types import Job, Reason, RunState

# Runs held by others are looked at this often, and given up when nothing changed for so long. A worker killed
# a moment ago seems to hold its runs until the kernel has ended them all.
_HELD_INTERVAL_S = 0.5
_HELD_PATIENCE_S = 3.0


class Verdict(Enum):
    READY = "ready"
    HELD = "held by someone alive"
    OVER = "done, failed for good or cancelled"


@dataclass(frozen=True)
class CrashLoop:
    """A run found dead too often before it reached a new checkpoint; ``end`` is now its last attempt's."""

    attempt: int
    end: End


class Decisions:
    """The ledger's cancellations and retries, read entry by entry as they come."""

    def __init__(self, sweep: SweepDir) -> None:
        self._sweep, self._last = sweep, 0
        self.cancelled: set[str] = set()
        self.retried: dict[str, int] = {}

    def refresh(self) -> None:
        """Read what was added since the last time. A damaged entry decides nothing."""
        for entry in self._sweep.read_ledger(after=self._last):
            self._last = max(self._last, entry.number)
            self._apply(entry)

    def _apply(self, entry: LedgerEntry) -> None:
        if entry.kind == "cancel":
            self.cancelled.update(entry.data["runs"])
        elif entry.kind == "retry":
            self.cancelled.difference_update(entry.data["runs"])
            self.retried.update(entry.data["runs"])


class Assignment:
    """The job's runs in the order of work: ``waiting`` to be looked at, ``held`` by others at work."""

    def __init__(self, sweep: SweepDir, run_ids: Iterable[str], decisions: Decisions) -> None:
        self._sweep, self._decisions = sweep, decisions
        self.waiting = deque(run_ids)
        self.held: deque[str] = deque()
        self._looked_at_held = 0.0
        self._last_change = time.monotonic()

    def pop(self) -> str | None:
        """The next run to look at; held ones again once in a while."""
        if not self.waiting and self.held and self._held_due():
            self.waiting, self.held = self.held, deque()
        return self.waiting.popleft() if self.waiting else None

    def hold(self, run_id: str) -> None:
        self.held.append(run_id)

    def again(self, run_id: str) -> None:
        """The run is to be continued before all others."""
        self.waiting.appendleft(run_id)
        self.changed()

    def changed(self) -> None:
        self._last_change = time.monotonic()

    @property
    def over(self) -> bool:
        """Nothing is left but runs that others hold, and hold for a while."""
        if self.waiting:
            return False
        return not self.held or time.monotonic() - self._last_change > _HELD_PATIENCE_S

    def look(self, run_id: str) -> Verdict | CrashLoop:
        """Whether the run can be taken now. Raises :class:`DamagedFileError`, and ``StorageError``."""
        run_dir = self._sweep.run(run_id)
        result = run_dir.result()
        if result is not None:
            if run_dir.blocked_by() is None:  # else its own process is still at it
                tidy_finished(run_dir, result)
            return Verdict.OVER
        if run_id in self._decisions.cancelled:
            return Verdict.OVER
        run_dir.description()
        return self._look_at_attempts(run_dir)

    def deaths_in_vain(self, run_id: str, witnessed: int) -> int:
        """As :func:`deaths_in_vain`: of a run whose attempt ``witnessed`` just died under this worker."""
        since = self._decisions.retried.get(run_id, 0)
        return deaths_in_vain(self._sweep.run(run_id).attempts(), since, witnessed)

    def _look_at_attempts(self, run_dir: RunDir) -> Verdict | CrashLoop:
        attempts = run_dir.attempts()
        if not attempts:
            return Verdict.READY
        newest, since = attempts[-1], self._decisions.retried.get(run_dir.run_id, 0)
        if not attempt_ended(newest):
            return Verdict.HELD
        end = newest.end()
        if end is not None and end.get("outcome") == RunState.FAILED.value and newest.number > since:
            return Verdict.OVER
        if end is None and (deaths := deaths_in_vain(attempts, since)):
            crash = CrashLoop(newest.number, crash_loop_end(deaths, "its worker died with it"))
            return crash if newest.write_end(crash.end.to_json()) else Verdict.HELD
        return Verdict.READY

    def _held_due(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at_held < _HELD_INTERVAL_S:
            return False
        self._looked_at_held = now
        return True


def crash_loop_end(deaths: int, last: str, frames: int | None = None) -> End:
    message = f"killed {deaths} times in a row before it reached a new checkpoint (last: {last})"
    return End(RunState.FAILED, Reason.CRASH_LOOP, message, frames)


def find_job(sweep: SweepDir, token: str) -> Job:
    """The job of that token, as it was submitted."""
    ledger = sweep.read_ledger()
    for entry in reversed(ledger):
        if entry.kind == "submission":
            for job in entry.data["jobs"]:
                if job["token"] == token:
                    return _job(job)
    damaged = "".join(f"; {entry.data['problem']}" for entry in ledger if entry.kind == DAMAGED)
    raise OrchestrateError(
        f"no submission of sweep {sweep.name!r} in {sweep.results} has a job {token!r}{damaged}",
        hint="workers are started by `orchestrate sweep`, which writes the submission first",
    )


def _job(data: Mapping[str, Any]) -> Job:
    try:
        return Job.from_json(data)
    except (KeyError, TypeError) as error:
        raise OrchestrateError(
            f"job {data['token']} cannot be used as it was submitted ({error!r})",
            hint="run `orchestrate sweep` with the grid again",
        ) from error

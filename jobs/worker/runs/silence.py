"""Find out that a run hangs: it neither records anything nor computes.

A run that computes is alive, however long an iteration, an evaluation or a compilation takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import Process, processor_time, waits_for_storage

# Share of a core that a process takes if it computes; one that polls takes less.
_COMPUTES = 0.05
# Looks within the limit, and the shortest seconds between two.
_LOOKS, _SHORTEST_S = 20, 0.25
# A look that comes so many seconds late: this process was stopped too, as by a scheduler that suspends a job.
_LATE_S = 5.0


class Silence:
    """How long the run with this process has given no sign of life."""

    def __init__(self, pid: int, life: Life) -> None:
        self._pid, self._life = pid, life
        self._since, self._look_at = time.monotonic(), 0.0
        self._times: dict[Process, float] = {}

    def too_long(self, below: Callable[[], Iterable[Process]]) -> bool:
        """Whether the run is to be ended; ``below``: lists its processes."""
        limit, now = self._life.limit, time.monotonic()
        if not limit or now < self._look_at:
            return False
        late, first = now > self._look_at + _LATE_S, not self._look_at
        self._look_at = now + max(_SHORTEST_S, limit / _LOOKS)
        times = {process: processor_time(process.pid) for process in below()}
        if first or late or self._life.marked > self._since or self._computes(times, now - self._since):
            self._since, self._times = now, times
            return False
        return now - self._since > limit

    def _computes(self, times: dict[Process, float], seconds: float) -> bool:
        """Whether a process has computed since the last sign of life; one that waits for a disk may have."""
        enough = _COMPUTES * seconds
        return waits_for_storage(self._pid) or any(
            time - self._times.get(process, 0.0) > enough for process, time in times.items()
        )

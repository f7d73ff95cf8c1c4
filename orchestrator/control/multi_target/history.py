"""Memory of one command that follows a shared sweep: failures of its targets, attempts without progress.

Which target has which run stands in the results tree, so the command can be killed at any time and repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.status.survey import RunStatus

# How often a target is assigned a run that makes no progress there.
_TRIES = 3
# Pauses after failed submissions to a target: after the first, the second, …
_REST_S = (2.0, 8.0, 30.0, 120.0, 300.0)
# ... and after a submission that made no job.
_NOTHING_S = 10.0
# Interval of resubmissions to a tree behind ssh of runs without a job there.
_REMINDER_S = 30.0


@dataclass
class TargetHealth:
    """Failures of a target. Times are seconds of the monotonic clock.

    ``failures``: consecutive failed submissions. ``unsettled``: the last one may have made jobs all the same.
    ``rests_until``: time of the next submission. ``left``: a person stopped its worker; no more submissions.
    """

    failures: int = 0
    unsettled: bool = False
    rests_until: float = 0.0
    reminded: float = -_REMINDER_S
    left: bool = False

    @property
    def open(self) -> bool:
        return not self.left and time.monotonic() >= self.rests_until

    @property
    def hopeless(self) -> bool:
        """Whether the target alone is no reason to go on following."""
        return self.left or self.failures >= _TRIES

    def failed(self) -> None:
        rest = _REST_S[min(self.failures, len(_REST_S) - 1)]
        self.failures, self.rests_until = self.failures + 1, time.monotonic() + rest
        self.unsettled = True

    def went_well(self, *, submitted: bool) -> None:
        """Reset the failures. Nothing is ``submitted`` where the queue was full or nothing was to do."""
        self.failures = 0
        self.rests_until = 0.0 if submitted else time.monotonic() + _NOTHING_S

    def to_be_reminded(self) -> bool:
        """Whether runs are to be submitted again now; notes the time if so."""
        now = time.monotonic()
        due = self.open and now - self.reminded >= _REMINDER_S
        self.reminded = now if due else self.reminded
        return due


@dataclass
class TargetHistory:
    """Assignments so far. ``stands``: a run's progress on a target, which must grow between assignments."""

    health: dict[str, TargetHealth]
    stands: Callable[[str, RunStatus], tuple[int, int]]
    # By run and target: progress at the last assignment, and the number of assignments at that progress.
    _tried: dict[tuple[str, str], tuple[tuple[int, int], int]] = field(default_factory=dict)
    # By run: the targets that it was taken from, in order.
    moved: dict[str, list[str]] = field(default_factory=dict)

    def assigned(self, run_ids: Iterable[str], target: str, statuses: Mapping[str, RunStatus]) -> None:
        for run_id in run_ids:
            stands = self.stands(target, statuses[run_id])
            before, times = self._tried.get((run_id, target), (stands, 0))
            self._tried[run_id, target] = (stands, times + 1 if before == stands else 1)

    def without_progress(self, target: str, statuses: Mapping[str, RunStatus]) -> set[str]:
        """Runs that were assigned to the target repeatedly and have not advanced."""
        return {
            run_id
            for (run_id, name), (stands, times) in self._tried.items()
            if name == target and times >= _TRIES and stands == self.stands(target, statuses[run_id])
        }

    def reassigned(self, run_ids: Iterable[str], target: str) -> None:
        """Note that runs were taken from a target before they began there."""
        for run_id in run_ids:
            self.moved.setdefault(run_id, []).append(target)
            self._tried.pop((run_id, target), None)

    def patience_factor(self, run_ids: Iterable[str]) -> int:
        """Factor on the patience for runs that were moved before: several queues may be equally full."""
        moves: int = max((len(self.moved.get(run_id, ())) for run_id in run_ids), default=0)
        return 1 << moves

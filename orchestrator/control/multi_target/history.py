"""What one following of a shared sweep remembers: how its targets behaved, and what was tried in vain.

Only that: who has which run is in the tree, so that it can be killed at any time, and the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.status.survey import RunStatus

# So often a target is dealt a run without anything coming of it.
_TRIES = 3
# How long a target that could not be submitted to is left alone: the first time, the second, …
_REST_S = (2.0, 8.0, 30.0, 120.0, 300.0)
# ... and one that was, with no job coming of it.
_NOTHING_S = 10.0
# So often a tree behind ssh is reminded of runs that nothing works on there.
_REMINDER_S = 30.0


@dataclass
class TargetHealth:
    """How a target behaved. Times are of the monotonic clock, in seconds.

    ``failures``: submissions that failed, one after the other, and ``unsettled`` while nobody has found out
    whether the last one was lost. Until ``rests_until`` it is left alone, and if it ``left``, for good.
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
        """Whether nobody is to wait for it, unless there is something else to wait for."""
        return self.left or self.failures >= _TRIES

    def failed(self) -> None:
        rest = _REST_S[min(self.failures, len(_REST_S) - 1)]
        self.failures, self.rests_until = self.failures + 1, time.monotonic() + rest
        self.unsettled = True

    def went_well(self, *, submitted: bool) -> None:
        """Where nothing was ``submitted`` its queue was full, or there was nothing to do after all."""
        self.failures = 0
        self.rests_until = 0.0 if submitted else time.monotonic() + _NOTHING_S

    def to_be_reminded(self) -> bool:
        """Whether it is time for that; then it counts as done."""
        now = time.monotonic()
        due = self.open and now - self.reminded >= _REMINDER_S
        self.reminded = now if due else self.reminded
        return due


@dataclass
class TargetHistory:
    """``stands`` says how far a run is, for a target: what has to grow if it is to be dealt that again."""

    manners: dict[str, TargetHealth]
    stands: Callable[[str, RunStatus], tuple[int, int]]
    # By run and target: where the run stood when it was dealt last, and how often just there.
    _tried: dict[tuple[str, str], tuple[tuple[int, int], int]] = field(default_factory=dict)
    # The targets that each run was taken from, in turn.
    moved: dict[str, list[str]] = field(default_factory=dict)

    def dealt(self, run_ids: Iterable[str], target: str, statuses: Mapping[str, RunStatus]) -> None:
        for run_id in run_ids:
            stands = self.stands(target, statuses[run_id])
            before, times = self._tried.get((run_id, target), (stands, 0))
            self._tried[run_id, target] = (stands, times + 1 if before == stands else 1)

    def in_vain(self, target: str, statuses: Mapping[str, RunStatus]) -> set[str]:
        """Runs that the target was dealt again and again, and that are where they were."""
        return {
            run_id
            for (run_id, name), (stands, times) in self._tried.items()
            if name == target and times >= _TRIES and stands == self.stands(target, statuses[run_id])
        }

    def taken(self, run_ids: Iterable[str], target: str) -> None:
        """They came back without a try."""
        for run_id in run_ids:
            self.moved.setdefault(run_id, []).append(target)
            self._tried.pop((run_id, target), None)

    def unrest(self, run_ids: Iterable[str]) -> int:
        """By how much more patience is due to runs that were moved before: two queues may be as full."""
        moves: int = max((len(self.moved.get(run_id, ())) for run_id in run_ids), default=0)
        return 1 << moves

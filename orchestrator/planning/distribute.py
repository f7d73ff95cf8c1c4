"""Distribute the runs of a sweep over several targets, each to where it is predicted to end first. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# Assumed time of a run without a prediction: far longer than a job usually waits.
_UNKNOWN_S = 3600.0


@dataclass(frozen=True)
class TargetLoad:
    """What a target can train, and its unfinished runs.

    ``places``: runs that it can train at once. ``can``: ids of the runs that it can train. ``busy``: its runs
    that no other target may take; ``queued``: those that another may take. ``seconds``: the predicted time of
    a run, if it is known. ``wait``: seconds until a new job of it is expected to begin. ``open``: whether it
    accepts new runs.
    """

    name: str
    places: int
    can: frozenset[str]
    busy: int = 0
    queued: tuple[str, ...] = ()
    seconds: float | None = None
    wait: float = 0.0
    open: bool = True

    @property
    def free(self) -> int:
        """Places without a run."""
        return max(0, self.places - self.busy - len(self.queued))


def deal(todo: Sequence[str], loads: Sequence[TargetLoad]) -> dict[str, str]:
    """Return the name of the target for each run of ``todo`` and each queued one that some target can take.

    Runs with the fewest targets come first, then the most urgent, as ``todo`` is ordered. A queued run stays
    with its target unless another one is predicted to finish it earlier.
    """
    known = all(load.seconds is not None for load in loads)
    lanes = {load.name: _Lanes(load, load.seconds if known else None) for load in loads}
    owners = {run: load.name for load in sorted(loads, key=lambda load: load.wait) for run in load.queued}
    choices = Counter(run for load in loads if load.open for run in load.can)
    dealt: dict[str, str] = {}
    for run in sorted(dict.fromkeys((*todo, *owners)), key=lambda run: choices[run]):
        own = owners.get(run)
        takers = [load for load in loads if load.name == own or (load.open and run in load.can)]
        if takers:
            best = min(takers, key=lambda load: (lanes[load.name].finish, load.name != own, load.wait))
            lanes[best.name].add()
            dealt[run] = best.name
    return dealt


class _Lanes:
    """The places of a target, by the time at which each becomes free."""

    def __init__(self, load: TargetLoad, seconds: float | None) -> None:
        self._seconds = _UNKNOWN_S if seconds is None else seconds
        self._free = [load.wait] * max(1, load.places)
        for _ in range(load.busy):
            self.add()

    @property
    def finish(self) -> float:
        """When the next run added would end."""
        return self._free[0] + self._seconds

    def add(self) -> None:
        """Add a run to the place that becomes free first."""
        heapq.heapreplace(self._free, self.finish)

"""Distribute the runs of a sweep over several targets, each to where it is predicted to end first. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.types import Capacity, Sweep
from orchestrator.planning.plan import at_once, cannot_place

# Jobs assumed to run at once in a queue without a known limit: at first, then twice those that run.
_JOBS_AT_FIRST = 16
# Assumed time of a run without a prediction: far longer than a job usually waits.
_UNKNOWN_S = 3600.0


def abilities(
    sweep: Sweep, capacities: Sequence[Capacity]
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Return the runs that each target can train, by its name; and why none can train a run, by run id."""
    able: dict[str, frozenset[str]] = {}
    whys: dict[str, list[str]] = {}
    for capacity in capacities:
        cannot = {run.run_id: cannot_place(run, sweep, capacity) for run in sweep.runs}
        able[capacity.target] = frozenset(run_id for run_id, why in cannot.items() if why is None)
        for run in sweep.runs:
            # With `compare: true` a run belongs to one target: the others give no reason of their own.
            if (why := cannot[run.run_id]) is not None and run.target in (None, capacity.target):
                whys.setdefault(run.run_id, []).append(f"{capacity.target}: {why}")
    doable = frozenset().union(*able.values())
    names = ", ".join(able)
    return able, {
        run.run_id: "; ".join(whys.get(run.run_id, [f"belongs to target {run.target}, and not to {names}"]))
        for run in sweep.runs
        if run.run_id not in doable
    }


def places_of(sweep: Sweep, capacity: Capacity, slots: int | None, busy: int) -> int:
    """Return how many runs a target can train at once that trains ``busy`` now, with ``slots`` in a job."""
    in_a_job = slots or at_once(sweep, capacity)
    if capacity.array_size is None:
        return in_a_job
    limits = [limit for limit in (capacity.at_once, capacity.most) if limit is not None]
    return in_a_job * min(limits) if limits else max(in_a_job * _JOBS_AT_FIRST, 2 * busy)


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

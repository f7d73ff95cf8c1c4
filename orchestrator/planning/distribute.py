"""Distribute the runs of a sweep over several targets. Pure.

A target gets as many runs as it has free slots, a few more in advance, and the next ones when slots become
free. Queued runs of one target are reassigned when another target that can train them is free. Runs of a job
that has begun stay with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Runs assigned per free slot: with fewer a target often waits, with more it still has some when the others
# have none.
_BATCH = 2


@dataclass(frozen=True)
class ActiveJob:
    """Jobs of a target, by their tokens, that share the same unfinished runs.

    ``slots``: runs trained at once. ``waited``: seconds in the queue; ``None`` if the job has begun, or
    begins at once.
    """

    tokens: tuple[str, ...]
    run_ids: tuple[str, ...]
    slots: int = 1
    waited: float | None = None


@dataclass(frozen=True)
class TargetLoad:
    """What a target can train, and its active jobs.

    ``places``: runs that it can train at once. ``can``: ids of the runs that it can train. ``patience``:
    seconds that one of its jobs may wait. ``open``: whether it accepts jobs now.
    """

    name: str
    places: int
    can: frozenset[str]
    jobs: tuple[ActiveJob, ...] = ()
    patience: float = 0.0
    open: bool = True

    @property
    def free(self) -> int:
        """Slots without a running or queued run."""
        taken = sum(min(one.slots, len(one.run_ids)) for one in self.jobs)
        return max(0, self.places - taken) if self.open else 0

    @property
    def unfinished(self) -> int:
        """Unfinished runs of its active jobs."""
        return sum(len(one.run_ids) for one in self.jobs)

    @property
    def waits(self) -> bool:
        """Whether one of its jobs is still in the queue."""
        return any(one.waited is not None for one in self.jobs)


Assignments = dict[str, list[str]]


def assign_runs(todo: Sequence[str], loads: Sequence[TargetLoad]) -> Assignments:
    """Assign unassigned runs (``todo``, the most urgent first) to targets; the run ids by target name.

    First every free slot gets a run: targets that can train few runs choose first, and take the runs with the
    fewest targets. Then each target gets a few more in advance.
    """
    assigned: Assignments = {load.name: [] for load in loads}
    able = {load.name: {run for run in todo if run in load.can} for load in loads if load.free}
    choices = Counter(run for runs in able.values() for run in runs)
    left = dict.fromkeys(sorted(todo, key=lambda run: choices[run]))
    takers = [load for load in loads if load.free]
    for load in sorted(takers, key=lambda load: len(able[load.name])):
        for run in [run for run in left if run in able[load.name]][: load.free]:
            assigned[load.name].append(run)
            del left[run]
    for run in (run for run in todo if run in left):
        with_room = [load for load in takers if len(assigned[load.name]) < _BATCH * load.free]
        if able_ones := [load for load in with_room if run in able[load.name]]:
            least = min(
                able_ones, key=lambda load: (load.unfinished + len(assigned[load.name])) / load.places
            )
            assigned[least.name].append(run)
    return {name: runs for name, runs in assigned.items() if runs}


@dataclass(frozen=True)
class Reassignment:
    """A queued ``job`` of the target ``owner``, and those of its runs that ``taker`` gets instead."""

    job: ActiveJob
    owner: str
    taker: str
    run_ids: tuple[str, ...]


def reassign(
    loads: Sequence[TargetLoad],
    assigned: Mapping[str, Collection[str]],
    before: Mapping[str, Collection[str]] | None = None,
) -> list[Reassignment]:
    """Choose queued jobs to reassign to idle targets that got too few unassigned runs.

    A target with a queued job of its own is not idle. The job with the shortest wait goes first: it would
    begin last. ``before``: targets, by run, that already lost it; other targets come first, so that two stuck
    queues never keep runs from a third target that works.
    """
    dealt = {load.name: len(assigned.get(load.name, ())) for load in loads}
    free = [load for load in loads if not load.waits and dealt[load.name] < load.free]
    room = {load.name: _BATCH * load.free - dealt[load.name] for load in free}
    moves: dict[tuple[str, ...], Reassignment] = {}
    for had in (False, True):
        for load in free:
            waiting = [
                (other.name, one) for other in loads if other is not load for one in _waiting_jobs(other)
            ]
            for owner, one in sorted(waiting, key=lambda item: item[1].waited or 0.0):
                wanted = tuple(run for run in one.run_ids if run in load.can)[: room[load.name]]
                again = any(load.name in (before or {}).get(run, ()) for run in wanted)
                if wanted and again is had and one.tokens not in moves:
                    moves[one.tokens] = Reassignment(one, owner, load.name, wanted)
                    room[load.name] -= len(wanted)
    return list(moves.values())


def _waiting_jobs(load: TargetLoad) -> list[ActiveJob]:
    return [one for one in load.jobs if one.waited is not None and one.waited >= load.patience]


def split(
    todo: Sequence[str], loads: Sequence[TargetLoad], speeds: Mapping[str, float] | None = None
) -> Assignments:
    """Assign all runs at once, where targets are not followed: each share by the target's slots and speed.

    ``speeds``: by target, relative to each other, in any unit; without them all are equal.
    """
    assigned: Assignments = {load.name: [] for load in loads}
    pace = {load.name: load.places * (speeds or {}).get(load.name, 1.0) for load in loads}
    for run in todo:
        takers = [load for load in loads if run in load.can and load.open]
        if takers:
            soonest = min(
                takers, key=lambda load: (load.unfinished + len(assigned[load.name]) + 1) / pace[load.name]
            )
            assigned[soonest.name].append(run)
    return {name: runs for name, runs in assigned.items() if runs}

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
    held: tuple[ActiveJob, ...] = ()
    patience: float = 0.0
    open: bool = True

    @property
    def free(self) -> int:
        """Slots without a running or queued run."""
        taken = sum(min(one.slots, len(one.run_ids)) for one in self.held)
        return max(0, self.places - taken) if self.open else 0

    @property
    def load(self) -> int:
        """Unfinished runs of its active jobs."""
        return sum(len(one.run_ids) for one in self.held)

    @property
    def waits(self) -> bool:
        """Whether one of its jobs is still in the queue."""
        return any(one.waited is not None for one in self.held)


Hands = dict[str, list[str]]


def assign_runs(todo: Sequence[str], seats: Sequence[TargetLoad]) -> Hands:
    """Assign unassigned runs (``todo``, the most urgent first) to targets; the run ids by target name.

    First every free slot gets a run: targets that can train few runs choose first, and take the runs with the
    fewest targets. Then each target gets a few more in advance.
    """
    hands: Hands = {seat.name: [] for seat in seats}
    able = {seat.name: {run for run in todo if run in seat.can} for seat in seats if seat.free}
    choices = Counter(run for runs in able.values() for run in runs)
    left = dict.fromkeys(sorted(todo, key=lambda run: choices[run]))
    takers = [seat for seat in seats if seat.free]
    for seat in sorted(takers, key=lambda seat: len(able[seat.name])):
        for run in [run for run in left if run in able[seat.name]][: seat.free]:
            hands[seat.name].append(run)
            del left[run]
    for run in (run for run in todo if run in left):
        with_room = [seat for seat in takers if len(hands[seat.name]) < _BATCH * seat.free]
        if able_ones := [seat for seat in with_room if run in able[seat.name]]:
            least = min(able_ones, key=lambda seat: (seat.load + len(hands[seat.name])) / seat.places)
            hands[least.name].append(run)
    return {name: runs for name, runs in hands.items() if runs}


@dataclass(frozen=True)
class Reassignment:
    """Queued work (``held``) to take from the target ``owner``, and the runs of it for ``taker``."""

    held: ActiveJob
    owner: str
    taker: str
    run_ids: tuple[str, ...]


def take(
    seats: Sequence[TargetLoad],
    hands: Mapping[str, Collection[str]],
    before: Mapping[str, Collection[str]] | None = None,
) -> list[Reassignment]:
    """Choose queued jobs to reassign to idle targets that got too few unassigned runs.

    A target with a queued job of its own is not idle. The job with the shortest wait goes first: it would
    begin last. ``before``: targets, by run, that already lost it; other targets come first, so that two stuck
    queues never keep runs from a third target that works.
    """
    dealt = {seat.name: len(hands.get(seat.name, ())) for seat in seats}
    free = [seat for seat in seats if not seat.waits and dealt[seat.name] < seat.free]
    room = {seat.name: _BATCH * seat.free - dealt[seat.name] for seat in free}
    takings: dict[tuple[str, ...], Reassignment] = {}
    for had in (False, True):
        for seat in free:
            waiting = [
                (other.name, one) for other in seats if other is not seat for one in _waiting_jobs(other)
            ]
            for owner, one in sorted(waiting, key=lambda item: item[1].waited or 0.0):
                wanted = tuple(run for run in one.run_ids if run in seat.can)[: room[seat.name]]
                again = any(seat.name in (before or {}).get(run, ()) for run in wanted)
                if wanted and again is had and one.tokens not in takings:
                    takings[one.tokens] = Reassignment(one, owner, seat.name, wanted)
                    room[seat.name] -= len(wanted)
    return list(takings.values())


def _waiting_jobs(seat: TargetLoad) -> list[ActiveJob]:
    return [one for one in seat.held if one.waited is not None and one.waited >= seat.patience]


def split(
    todo: Sequence[str], seats: Sequence[TargetLoad], speeds: Mapping[str, float] | None = None
) -> Hands:
    """Assign all runs at once, where targets are not followed: each share by the target's slots and speed.

    ``speeds``: by target, relative to each other, in any unit; without them all are equal.
    """
    hands: Hands = {seat.name: [] for seat in seats}
    pace = {seat.name: seat.places * (speeds or {}).get(seat.name, 1.0) for seat in seats}
    for run in todo:
        takers = [seat for seat in seats if run in seat.can and seat.open]
        if takers:
            soonest = min(takers, key=lambda seat: (seat.load + len(hands[seat.name]) + 1) / pace[seat.name])
            hands[soonest.name].append(run)
    return {name: runs for name, runs in hands.items() if runs}

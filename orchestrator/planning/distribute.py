"""Which target is to do which runs, where a sweep has several. Pure.

Home deals: a target gets as many runs as it has free places, and a few more, and the next ones when it frees
up. Runs that only wait in the queue of one target are taken away when another one that can do them is free.
Runs of a job that has begun are nobody else's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Runs in a hand for every place that is free: with fewer a target often waits, with more it has some left
# when the others have none.
_BATCH = 2


@dataclass(frozen=True)
class ActiveJob:
    """Work of a target that is not over: jobs, by their tokens, that have the same runs.

    ``run_ids`` are those that are not done. It works on ``slots`` of them at once. ``waited``: for how many
    seconds it has had nothing but a place in a queue; ``None`` if it has begun, or begins at once.
    """

    tokens: tuple[str, ...]
    run_ids: tuple[str, ...]
    slots: int = 1
    waited: float | None = None


@dataclass(frozen=True)
class TargetLoad:
    """A target at the table: what it can do, and what it has.

    ``places``: runs that it can work on at once. ``can``: runs that it is able to do. ``patience``: how many
    seconds a job of it may wait. ``open``: whether it takes jobs now.
    """

    name: str
    places: int
    can: frozenset[str]
    held: tuple[ActiveJob, ...] = ()
    patience: float = 0.0
    open: bool = True

    @property
    def free(self) -> int:
        """Places on which nothing works and for which nothing waits."""
        taken = sum(min(one.slots, len(one.run_ids)) for one in self.held)
        return max(0, self.places - taken) if self.open else 0

    @property
    def load(self) -> int:
        return sum(len(one.run_ids) for one in self.held)

    @property
    def waits(self) -> bool:
        """Whether it has a job that does not begin."""
        return any(one.waited is not None for one in self.held)


Hands = dict[str, list[str]]


def assign_runs(todo: Sequence[str], seats: Sequence[TargetLoad]) -> Hands:
    """Runs for each target, by name: nobody's so far (``todo``, the most urgent first), and each one's once.

    First every free place gets a run, those of targets that can do little before the others', and there
    those that few can do. Then a few more, so that nobody waits for the next deal.
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
    """Work (``held``) that is to be taken from one target, and what another one gets of it."""

    held: ActiveJob
    owner: str
    taker: str
    run_ids: tuple[str, ...]


def take(
    seats: Sequence[TargetLoad],
    hands: Mapping[str, Collection[str]],
    before: Mapping[str, Collection[str]] | None = None,
) -> list[Reassignment]:
    """Work that only waits, for targets that have places free and found too little that was nobody's.

    A target with a job that does not begin itself is not free. What waits since the shortest time goes first:
    it would begin last. ``before``: targets, by run, that it was taken from already; those who are not among
    them come first, so that two queues that do not move keep nothing from a third one that does.
    """
    dealt = {seat.name: len(hands.get(seat.name, ())) for seat in seats}
    free = [seat for seat in seats if not seat.waits and dealt[seat.name] < seat.free]
    room = {seat.name: _BATCH * seat.free - dealt[seat.name] for seat in free}
    takings: dict[tuple[str, ...], Reassignment] = {}
    for had in (False, True):
        for seat in free:
            waiting = [(other.name, one) for other in seats if other is not seat for one in _idle(other)]
            for owner, one in sorted(waiting, key=lambda item: item[1].waited or 0.0):
                wanted = tuple(run for run in one.run_ids if run in seat.can)[: room[seat.name]]
                again = any(seat.name in (before or {}).get(run, ()) for run in wanted)
                if wanted and again is had and one.tokens not in takings:
                    takings[one.tokens] = Reassignment(one, owner, seat.name, wanted)
                    room[seat.name] -= len(wanted)
    return list(takings.values())


def _idle(seat: TargetLoad) -> list[ActiveJob]:
    return [one for one in seat.held if one.waited is not None and one.waited >= seat.patience]


def split(
    todo: Sequence[str], seats: Sequence[TargetLoad], speeds: Mapping[str, float] | None = None
) -> Hands:
    """All runs at once, for nobody will stay to deal: each target's share is as its places, and their speed.

    ``speeds`` are by target and relative to each other, in whatever unit; without them all are as fast.
    """
    hands: Hands = {seat.name: [] for seat in seats}
    pace = {seat.name: seat.places * (speeds or {}).get(seat.name, 1.0) for seat in seats}
    for run in todo:
        takers = [seat for seat in seats if run in seat.can and seat.open]
        if takers:
            soonest = min(takers, key=lambda seat: (seat.load + len(hands[seat.name]) + 1) / pace[seat.name])
            hands[soonest.name].append(run)
    return {name: runs for name, runs in hands.items() if runs}

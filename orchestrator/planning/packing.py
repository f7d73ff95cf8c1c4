"""How many runs fit into a job, and which share one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

from orchestrator.config.grid.resources import largest
from orchestrator.core.types import Capacity, Resources, Size
from orchestrator.core.units import ALL_MEMORY, megabytes, memory


@dataclass(frozen=True)
class Shape:
    """A job's largest ``needs``, its runs at once, and the room that these share.

    ``room`` is ``None`` if the number of slots alone limits the runs at once: all have the same size, or a
    person chose the number.
    """

    needs: Resources
    slots: int
    room: Size | None = None

    def holding(self, jobs: Sequence[Sequence[tuple[int, Size]]]) -> Shape:
        """Return the shape of the smallest job that holds the runs of any of these, as of :func:`packed`."""
        assert self.room is not None
        mem = max(_total(size for _, size in job).mem for job in jobs)
        return replace(
            self,
            slots=min(self.slots, max(map(len, jobs))),
            room=Size(self.room.cores, self.room.mem or mem),
        )


def size_of(needs: Resources) -> Size:
    """Return what a run takes of a job's room."""
    return Size(needs.cpus_per_task, megabytes(needs.mem) if needs.mem is not None else 0)


def shape_of(
    needs: Iterable[Resources],
    capacity: Capacity,
    asked: int | None = None,
    running: Sequence[Resources] = (),
) -> Shape:
    """Return the shape of a job for runs with these needs.

    ``asked``: the runs at once that a person chose. ``running``: runs that are on the machine already.
    """
    distinct = set(needs)
    most, sizes = largest(distinct), [size_of(one) for one in distinct]
    if asked is not None and most.nodes == 1:
        return Shape(most, asked)
    least = Size(min(size.cores for size in sizes), min(size.mem for size in sizes))
    slots = slots_of(_with_size(most, least), capacity, running)
    if capacity.cores is None or capacity.pack is not None or len(set(sizes)) == 1:
        return Shape(most, slots)
    busy = _total(map(size_of, running))
    whole = megabytes(capacity.mem) if capacity.mem is not None else ALL_MEMORY
    known = capacity.mem is not None or any(size.mem >= ALL_MEMORY for size in sizes)
    mem = max(1, whole - busy.mem) if known else 0
    return Shape(most, slots, Size(max(1, capacity.cores - busy.cores), mem))


def packed(sizes: Iterable[Size], shape: Shape) -> list[list[tuple[int, Size]]]:
    """Divide runs among jobs that can train all of theirs at once: each into the first with room.

    ``sizes``: of the runs, the largest first. Returns the runs of each job by their number in ``sizes``.
    """
    assert shape.room is not None
    jobs: list[list[tuple[int, Size]]] = []
    free: list[Size] = []
    for size, alike in groupby(enumerate(sizes), key=lambda numbered: numbered[1]):
        todo = list(alike)
        at = 0
        while todo:
            if at == len(jobs):
                jobs.append([])
                free.append(shape.room)
            count = min(len(todo), shape.slots - len(jobs[at]), free[at].cores // size.cores)
            if size.mem and shape.room.mem:
                count = min(count, free[at].mem // size.mem)
            # One that is larger than a job has one of its own.
            count = max(0 if jobs[at] else 1, count)
            jobs[at] += todo[:count]
            free[at] = free[at].plus(size, -count)
            del todo[:count]
            at += 1
    return jobs


def slots_of(needs: Resources, capacity: Capacity, running: Sequence[Resources] = ()) -> int:
    """Return the runs at once in a job: ``pack``, or what cores, GPUs and memory allow; at least one.

    On several nodes it is one. ``running``: those that are on the machine already.
    """
    if needs.nodes > 1:
        return 1
    if capacity.pack is not None:
        return max(1, capacity.pack - len(running))
    fits, own, busy = [], size_of(needs), _total(map(size_of, running))
    if capacity.cores is not None:
        fits.append((capacity.cores - busy.cores) // own.cores)
    if capacity.gpus is not None and needs.gpus:
        fits.append(capacity.gpus // needs.gpus - len(running))
    if own.mem and (capacity.mem is not None or own.mem >= ALL_MEMORY):
        fits.append((megabytes(capacity.mem or "0") - busy.mem) // own.mem)
    return max(1, min(fits, default=1))


def allocation(shape: Shape, capacity: Capacity) -> Resources:
    """Return what a job requests: the size of the target's jobs, else the sum of what its runs need."""
    needs, slots = shape.needs, shape.slots
    mem = capacity.mem
    if mem is None and needs.mem is not None:
        shared = shape.room.mem if shape.room is not None else 0
        mem = memory(shared or slots * megabytes(needs.mem))
    return Resources(
        cpus_per_task=slots * needs.cpus_per_task if capacity.cores is None else capacity.cores,
        gpus=slots * needs.gpus if capacity.gpus is None else capacity.gpus,
        mem=mem,
        time=capacity.time or needs.time,
        nodes=needs.nodes,
    )


def mean(needs: Sequence[Resources]) -> Resources:
    """Return the needs of the mean run, rounded up; of GPUs the most."""
    total = _total(map(size_of, needs))
    size = Size(math.ceil(total.cores / len(needs)), math.ceil(total.mem / len(needs)))
    return _with_size(largest(needs), size)


def _with_size(needs: Resources, size: Size) -> Resources:
    return replace(needs, cpus_per_task=size.cores, mem=memory(size.mem) if size.mem else None)


def _total(sizes: Iterable[Size]) -> Size:
    return reduce(Size.plus, sizes, Size(0))

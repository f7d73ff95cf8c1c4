"""Plan jobs for the runs still to do. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Protocol

from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import (
    Array,
    Capacity,
    Job,
    Plan,
    Reason,
    Resources,
    Run,
    RunState,
    Size,
    Sweep,
    TargetAssignment,
)
from orchestrator.core.units import ALL_MEMORY, megabytes, memory
from orchestrator.planning.ordering import canaries, in_turns
from orchestrator.planning.packing import Shape, allocation, mean, packed, shape_of, size_of, slots_of
from orchestrator.status.survey import RunStatus, Survey

# Runs for a new job. All others are finished, wait for a decision, or belong to an active job.
_TO_DO = (RunState.PENDING, RunState.INTERRUPTED, RunState.SKIPPED)


class ReuseOption(enum.StrEnum):
    """Which finished runs of libraries count: those that would be trained alike here, by any code, or none.

    With none, shorter runs of the tree itself do not count either.
    """

    EXACT = "exact"
    ANY = "any"
    NONE = "none"


@dataclass(frozen=True)
class SubmitOptions:
    """How a person wants a sweep submitted.

    ``slots``: runs at once in a job; by default as many as fit, on one machine less those already running.
    ``canary``: one run of each configuration first. ``budget``: US dollars that all of the sweep may cost,
    infinite for no limit; ``None`` keeps the one that holds.
    """

    slots: int | None = None
    canary: bool = False
    budget: float | None = None
    reuse: ReuseOption = ReuseOption.EXACT

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget >= 0:  # nor is what is not a number
            raise OrchestrateError(f"budget: found {self.budget}, expected US dollars, 0 or more")


AS_USUAL = SubmitOptions()


def make_plan(
    sweep: Sweep,
    survey: Survey,
    capacity: Capacity,
    *,
    submission: int,
    options: SubmitOptions = AS_USUAL,
    assignment: TargetAssignment | None = None,
) -> Plan:
    """Assign every unfinished run that the target can train to a job, with interleaved configurations.

    With ``canary`` one run of each configuration is planned until one has trained; the others wait.
    ``submission``: the number of the future ledger entry, which begins the job tokens. With an ``assignment``
    only its runs are planned.
    """
    slots = options.slots
    todo = to_do(sweep, survey)
    skipped: dict[str, str] = {}
    if assignment is not None:
        skipped = {
            run.run_id: assignment.skipped[run.run_id] for run in todo if run.run_id in assignment.skipped
        }
        todo = [run for run in todo if run.run_id in assignment.run_ids]
    cannot = {run.run_id: why for run in todo if (why := cannot_place(run, sweep, capacity)) is not None}
    cannot |= {run.run_id: why for run in todo if (why := survey.statuses[run.run_id].cannot)}
    skipped |= cannot
    todo = [run for run in todo if run.run_id not in cannot]
    avoid = tuple(survey.bad_machines) if capacity.can_avoid else ()
    order = partial(in_turns, known=sweep.runs, survey=survey)
    builder = _Builder(sweep, capacity, _room(capacity, survey), submission, avoid, order)
    if options.canary:
        todo, held_back = canaries(todo, sweep.runs, survey)
        builder.waiting += [run.run_id for run in held_back]
    builder.waiting += [run.run_id for run in todo if survey.statuses[run.run_id].waits]
    todo = [run for run in todo if not survey.statuses[run.run_id].waits]
    if todo and capacity.array_size is None:
        places = assignment.places if assignment is not None else None
        builder.one_job(todo, slots, places, _running_here(sweep, capacity, survey))
    elif todo and capacity.apart:
        builder.machines(todo, slots)
    elif todo:
        roomy = can_have_more_memory(sweep, capacity)
        starved = {run.run_id for run in todo if roomy and survey.statuses[run.run_id].more_memory}
        crowded = {run.run_id for run in todo if _was_crowded_out(survey.statuses[run.run_id])}
        for want, runs in _by_needs(todo, sweep, capacity, starved, crowded, packs=slots is None):
            if want is _Want.MORE:
                builder.roomier(runs)
            else:
                builder.arrays(runs, slots, alone=want is _Want.ALONE)
    statuses = [survey.statuses[run.run_id] for run in sweep.runs]
    return Plan(
        sweep,
        capacity.target,
        tuple(builder.made),
        skipped,
        problems={one.run_id: one.message or "" for one in statuses if one.reason is Reason.DAMAGED},
        states={one.run_id: one.state for one in statuses},
        waiting=tuple(builder.waiting),
        no_feed=capacity.no_feed,
    )


def to_do(sweep: Sweep, survey: Survey) -> list[Run]:
    """Return the sweep's runs that a new job can train."""
    return [run for run in sweep.runs if survey.statuses[run.run_id].state in _TO_DO]


class _Order(Protocol):
    """A function that orders runs for assignment to this many lanes in turn."""

    def __call__(self, runs: Sequence[Run], *, lanes: int) -> list[Run]: ...


class _Builder:
    """Builds the arrays of one submission."""

    def __init__(
        self,
        sweep: Sweep,
        capacity: Capacity,
        room: float,
        submission: int,
        avoid: tuple[str, ...],
        order: _Order,
    ) -> None:
        self._order = order
        self._sweep, self._capacity, self._submission = sweep, capacity, submission
        self._avoid = avoid
        self._room = room
        self.made: list[Array] = []
        self.waiting: list[str] = []

    def one_job(
        self, runs: Sequence[Run], asked: int | None, places: int | None, running: Sequence[Run]
    ) -> None:
        """Add one job for all runs, beside those already ``running``; at most ``places`` at once."""
        needs_of = self._sweep.needs_of
        shape = shape_of(map(needs_of, runs), self._capacity, asked, list(map(needs_of, running)))
        slots = min(len(runs), shape.slots, places or len(runs))
        runs = self._order(runs, lanes=slots)
        self._one_job(self._by_size(runs) if shape.room else runs, replace(shape, slots=slots))

    def _one_job(self, runs: Sequence[Run], shape: Shape) -> None:
        token = self._next_token()
        job = self._job(token, runs, replace(shape, slots=min(len(runs), shape.slots)))
        self.made.append(Array(token, (job,), shape.needs))

    def machines(self, runs: Sequence[Run], asked: int | None) -> None:
        """Add one job per machine; all runs share the machines, with any needs."""
        shape = shape_of((_needs(run, self._sweep) for run in runs), self._capacity, asked)
        shape = replace(shape, needs=replace(shape.needs, gpus=self._sweep.resources.gpus))
        shares, shape = self._shares(runs, shape, self._room)
        for share in shares:
            self._one_job(share, shape)

    def arrays(self, runs: Sequence[Run], asked: int | None, *, alone: bool = False) -> None:
        """Add jobs for runs that may share one, in as many arrays as required; ``alone``: one run each."""
        shape = shape_of((_needs(run, self._sweep) for run in runs), self._capacity, asked)
        shape = replace(shape, slots=min(len(runs), shape.slots))
        if alone or (self._capacity.pack == 1 and asked is None):
            self._single(runs, shape.needs, allocation(shape, self._capacity))
        else:
            shares, shape = self._shares(runs, shape, self._room // self._capacity.chain)
            self._submissions(shares, shape, allocation(shape, self._capacity), steals=len(shares) > 1)

    def roomier(self, runs: Sequence[Run]) -> None:
        """Add jobs for runs that were out of memory: one run each, with twice the usual memory of a job."""
        needs = _needs(runs[0], self._sweep)
        usual = allocation(shape_of([needs], self._capacity), self._capacity)
        most = self._capacity.max_mem
        assert usual.mem is not None, "can_have_more_memory() said so"
        assert most is not None, "can_have_more_memory() said so"
        mem = memory(min(2 * megabytes(usual.mem), megabytes(most)))
        self._single(runs, replace(needs, mem=mem), replace(usual, mem=mem))

    def _single(self, runs: Sequence[Run], needs: Resources, asked: Resources) -> None:
        """Add a job for each run that there is room for."""
        runs = self._order(runs, lanes=1)
        count = int(min(len(runs), self._room // self._capacity.chain))
        self.waiting += [run.run_id for run in runs[count:]]
        self._submissions([[run] for run in runs[:count]], Shape(needs, 1), asked, steals=False)

    def _shares(self, runs: Sequence[Run], shape: Shape, room: float) -> tuple[list[Sequence[Run]], Shape]:
        """Divide runs among as many jobs as can train all at once, up to ``room``; without any they wait.

        Returns them with the shape of these jobs.
        """
        shares: list[Sequence[Run]]
        if shape.room is None:
            count = int(min(math.ceil(len(runs) / shape.slots), room))
            runs = self._order(runs, lanes=max(1, count))
            shares = [runs[start::count] for start in range(count)]
        else:
            runs = self._by_size(self._order(runs, lanes=1))
            jobs = packed([self._size_of(run) for run in runs], shape)
            shape = shape.holding(jobs)
            numbers = [[number for number, _ in job] for job in jobs]
            count = int(min(len(jobs), room))
            shares = [
                [runs[number] for number in sorted(chain.from_iterable(numbers[start::count]))]
                for start in range(count)
            ]
        if not shares:
            self.waiting += [run.run_id for run in runs]
        return shares, shape

    def _submissions(
        self, shares: Sequence[Sequence[Run]], shape: Shape, asked: Resources, *, steals: bool
    ) -> None:
        """Add a job for each share, and the jobs of its chain."""
        self._room -= len(shares) * self._capacity.chain
        size = self._capacity.array_size or len(shares)
        for start in range(0, len(shares), size):
            self._chain(shares[start : start + size], shape, asked, steals=steals)

    def _chain(
        self, shares: Sequence[Sequence[Run]], shape: Shape, asked: Resources, *, steals: bool
    ) -> None:
        after = None
        for _ in range(self._capacity.chain):
            token = self._next_token()
            jobs = tuple(
                replace(self._job(f"{token}.{index}", runs, shape), steals=steals)
                for index, runs in enumerate(shares)
            )
            self.made.append(Array(token, jobs, asked, after, self._avoid))
            after = token

    def _job(self, token: str, runs: Sequence[Run], shape: Shape) -> Job:
        run_ids = tuple(run.run_id for run in runs)
        job = Job(token, self._sweep.name, self._capacity.target, run_ids, shape.slots, shape.needs)
        sizes = {run.run_id: self._size_of(run) for run in runs}
        alike = set(sizes.values()) == {size_of(shape.needs)}
        return replace(job, plugins=self._sweep.plugins, sizes={} if alike else sizes, room=shape.room)

    def _size_of(self, run: Run) -> Size:
        return size_of(self._sweep.needs_of(run))

    def _by_size(self, runs: Iterable[Run]) -> list[Run]:
        """Order runs by size, the largest first: smaller ones then fill what is left."""
        return sorted(runs, key=self._size_of, reverse=True)

    def _next_token(self) -> str:
        return f"{self._submission:04d}-{len(self.made) + 1:04d}"


def _room(capacity: Capacity, survey: Survey) -> float:
    """Return how many jobs may be added to the queue."""
    room = math.inf if capacity.room is None else capacity.room
    there = sum(survey.targets.get(token, capacity.target) == capacity.target for token in survey.live)
    return room if capacity.most is None else max(0, min(room, capacity.most - there))


def _running_here(sweep: Sweep, capacity: Capacity, survey: Survey) -> list[Run]:
    """Return the runs that occupy the target now."""
    running = (run for run in sweep.runs if survey.statuses[run.run_id].state is RunState.RUNNING)
    return [run for run in running if survey.target(run.run_id) in (None, capacity.target)]


def can_have_more_memory(sweep: Sweep, capacity: Capacity) -> bool:
    """Return whether the target has jobs with more memory than usual, for a run that was out of memory."""
    usual = allocation(shape_of([sweep.resources], capacity), capacity).mem
    if usual is None or capacity.max_mem is None:
        return False
    return megabytes(capacity.max_mem) > megabytes(usual)


class _Want(enum.Enum):
    """What a run needs besides its resources."""

    NOTHING = enum.auto()
    ALONE = enum.auto()
    MORE = enum.auto()


def _was_crowded_out(status: RunStatus) -> bool:
    """Return whether its job was out of memory while several runs were active in it."""
    return status.state is RunState.INTERRUPTED and status.reason is Reason.OUT_OF_MEMORY


def _by_needs(
    runs: Iterable[Run],
    sweep: Sweep,
    capacity: Capacity,
    starved: Container[str],
    crowded: Container[str],
    *,
    packs: bool,
) -> Iterator[tuple[_Want, list[Run]]]:
    """Group runs by resources and by what they lacked before; each group in the given order.

    Where jobs have a fixed number of cores, runs of different sizes share them. ``packs``: their number in a
    job is not given.
    """
    groups: dict[tuple[Resources, _Want], list[Run]] = {}
    packs = packs and capacity.pack is None
    for run in runs:
        want, needs = _Want.MORE if run.run_id in starved else _Want.NOTHING, _needs(run, sweep)
        want = _Want.ALONE if run.run_id in crowded else want
        if want is not _Want.MORE and capacity.cores is not None:
            any_mem = capacity.mem is not None or (packs and want is _Want.NOTHING)
            needs = replace(needs, cpus_per_task=0, mem=None if any_mem else needs.mem)
        groups.setdefault((needs, want), []).append(run)
    return ((want, alike) for (_, want), alike in groups.items())


def _needs(run: Run, sweep: Sweep) -> Resources:
    needs = sweep.needs_of(run)
    return replace(needs, gpus=needs.gpus or int(get_trainer(run.trainer).needs_gpu(run)))


def at_once(sweep: Sweep, capacity: Capacity) -> int:
    """Return how many runs of the sweep a job of the target can train at once, by their mean size."""
    needs = [_needs(run, sweep) for run in sweep.runs if cannot_place(run, sweep, capacity) is None]
    return slots_of(mean(needs), capacity) if needs else 1


def cannot_place(run: Run, sweep: Sweep, capacity: Capacity) -> str | None:
    """Return why the target cannot train the run; ``None`` if it can."""
    if run.target is not None and run.target != capacity.target:
        return f"belongs to target {run.target}"
    needs = _needs(run, sweep)
    here = capacity.array_size is None
    if needs.nodes > 1 and not capacity.several_nodes:
        one = "this machine is one" if here else f"a job of {capacity.target} has one"
        return f"needs {needs.nodes} nodes, {one}: choose a cluster (--on)"
    if capacity.gpus is not None and needs.gpus > capacity.gpus:
        return capacity.no_gpu if not capacity.gpus else f"needs {needs.gpus} GPUs, found {capacity.gpus}"
    has = "this machine has" if here else f"a job of {capacity.target} has"
    if capacity.cores is not None and needs.cpus_per_task > capacity.cores:
        more = "choose a larger target (--on)" if here else f"raise cpus_per_task of {capacity.target}"
        return f"needs {needs.cpus_per_task} cores, {has} {capacity.cores}: ask for fewer, or {more}"
    if capacity.mem and needs.mem and ALL_MEMORY > megabytes(needs.mem) > megabytes(capacity.mem):
        return f"needs {needs.mem} of memory, {has} {_memory(capacity.mem) if here else capacity.mem}"
    return None


def _memory(mem: str) -> str:
    """Format a machine's memory in whole gigabytes where possible."""
    whole, rest = divmod(megabytes(mem), 1 << 10)
    return mem if rest or not whole else f"{whole}G"

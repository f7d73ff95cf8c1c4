"""Plan jobs for the runs still to do. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import (
    Array,
    Capacity,
    Job,
    Plan,
    Reason,
    Resources,
    Run,
    RunState,
    Sweep,
    TargetAssignment,
)
from orchestrator.core.units import megabytes
from orchestrator.planning.ordering import canaries, in_turns
from orchestrator.status.survey import DAMAGED_RESULT, RunStatus, Survey

# Runs for a new job. All others are finished, wait for a decision, or belong to an active job.
_TO_DO = (RunState.PENDING, RunState.INTERRUPTED, RunState.SKIPPED)


def make_plan(
    sweep: Sweep,
    survey: Survey,
    capacity: Capacity,
    *,
    submission: int,
    slots: int | None = None,
    canary: bool = False,
    deal: TargetAssignment | None = None,
) -> Plan:
    """Assign every unfinished run that the target can train to a job, with interleaved configurations.

    ``slots``: runs at once in a job; by default as many as fit, on one machine less those already running.
    With ``canary`` one run of each configuration is planned until one has trained; the others wait.
    ``submission``: the number of the future ledger entry, which begins the job tokens. With a ``deal`` only
    its runs are planned, and jobs do not share runs: queued runs may be assigned to another target.
    """
    todo = to_do(sweep, survey)
    skipped: dict[str, str] = {}
    if deal is not None:
        skipped = {run.run_id: deal.skipped[run.run_id] for run in todo if run.run_id in deal.skipped}
        todo = [run for run in todo if run.run_id in deal.run_ids]
    cannot = {run.run_id: why for run in todo if (why := cannot_place(run, sweep, capacity)) is not None}
    skipped |= cannot
    todo = [run for run in todo if run.run_id not in cannot]
    avoid = tuple(survey.bad_machines) if capacity.can_avoid else ()
    order = partial(in_turns, known=sweep.runs, survey=survey)
    builder = _Builder(sweep, capacity, _room(capacity, survey), submission, avoid, order, share=deal is None)
    if canary:
        todo, held_back = canaries(todo, sweep.runs, survey)
        builder.waiting += [run.run_id for run in held_back]
    if todo and capacity.array_size is None:
        builder.one_job(todo, min(len(todo), slots or _free_slots(sweep, capacity, survey)))
    elif capacity.apart:
        builder.machines(todo, slots)
    elif todo:
        roomy = can_have_more_memory(sweep, capacity)
        starved = {run.run_id for run in todo if roomy and survey.statuses[run.run_id].more_memory}
        crowded = {run.run_id for run in todo if _was_crowded_out(survey.statuses[run.run_id])}
        for (needs, want), runs in _by_needs(todo, sweep, starved, crowded).items():
            if want is _Want.MORE:
                builder.roomier(runs, needs)
            else:
                builder.arrays(runs, needs, slots, alone=want is _Want.ALONE)
    statuses = [survey.statuses[run.run_id] for run in sweep.runs]
    return Plan(
        sweep,
        capacity.target,
        tuple(builder.made),
        skipped,
        problems={one.run_id: one.message or "" for one in statuses if one.reason == DAMAGED_RESULT},
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
        *,
        share: bool,
    ) -> None:
        self._order = order
        self._sweep, self._capacity, self._submission = sweep, capacity, submission
        self._avoid, self._share = avoid, share
        self._room = room
        self.made: list[Array] = []
        self.waiting: list[str] = []

    def one_job(self, runs: Sequence[Run], slots: int) -> None:
        """Add one job for all runs."""
        self._one_job(self._order(runs, lanes=slots), slots)

    def _one_job(self, runs: Sequence[Run], slots: int) -> None:
        token, needs = self._next_token(), self._sweep.resources
        job = self._job(token, runs, slots, needs)
        self.made.append(Array(token, (job,), needs))

    def machines(self, runs: Sequence[Run], asked: int | None) -> None:
        """Add one job per machine; all runs share the machines, with any needs."""
        needs = {_needs(run, self._sweep) for run in runs}
        slots = asked or min((_slots(one, self._capacity) for one in needs), default=1)
        count = int(min(math.ceil(len(runs) / slots), self._room))
        runs = self._order(runs, lanes=max(1, count))
        for start in range(count):
            share = runs[start::count]
            self._one_job(share, min(slots, len(share)))
        if not count:
            self.waiting += [run.run_id for run in runs]

    def arrays(
        self, runs: Sequence[Run], needs: Resources, asked: int | None, *, alone: bool = False
    ) -> None:
        """Add jobs for runs with equal needs, in as many arrays as required; ``alone``: one run per job."""
        usual = min(len(runs), asked or _slots(needs, self._capacity))
        allocation = _allocation(needs, self._capacity, usual)
        alone = alone or (self._capacity.pack == 1 and asked is None)
        self._arrays(runs, needs, 1 if alone else usual, allocation, alone=alone)

    def roomier(self, runs: Sequence[Run], needs: Resources) -> None:
        """Add jobs for runs that were out of memory: one run each, with twice the usual memory of a job."""
        usual = _allocation(needs, self._capacity, _slots(needs, self._capacity))
        most = self._capacity.max_mem
        assert usual.mem is not None, "can_have_more_memory() said so"
        assert most is not None, "can_have_more_memory() said so"
        mem = f"{min(2 * megabytes(usual.mem), megabytes(most))}M"
        self._arrays(runs, replace(needs, mem=mem), 1, replace(usual, mem=mem), alone=True)

    def _arrays(
        self, runs: Sequence[Run], needs: Resources, slots: int, allocation: Resources, *, alone: bool
    ) -> None:
        capacity = self._capacity
        count = min(math.ceil(len(runs) / slots), self._room // capacity.chain)
        runs = self._order(runs, lanes=1 if alone else max(1, int(count)))
        if alone:
            runs, left = runs[: int(count)], runs[int(count) :]
            self.waiting += [run.run_id for run in left]
        if count < 1:
            self.waiting += [run.run_id for run in runs]
            return
        self._room -= count * capacity.chain
        steals = self._share and not alone and count > 1
        shares = [runs[start :: int(count)] for start in range(int(count))]
        size = capacity.array_size or len(shares)
        for start in range(0, len(shares), size):
            self._chain(shares[start : start + size], slots, needs, allocation, steals=steals)

    def _chain(
        self,
        shares: Sequence[Sequence[Run]],
        slots: int,
        needs: Resources,
        allocation: Resources,
        *,
        steals: bool,
    ) -> None:
        after = None
        for _ in range(self._capacity.chain):
            token = self._next_token()
            jobs = tuple(
                replace(self._job(f"{token}.{index}", runs, slots, needs), steals=steals)
                for index, runs in enumerate(shares)
            )
            self.made.append(Array(token, jobs, allocation, after, self._avoid))
            after = token

    def _job(self, token: str, runs: Iterable[Run], slots: int, needs: Resources) -> Job:
        run_ids = tuple(run.run_id for run in runs)
        job = Job(token, self._sweep.name, self._capacity.target, run_ids, slots, needs)
        return replace(job, plugins=self._sweep.plugins)

    def _next_token(self) -> str:
        return f"{self._submission:04d}-{len(self.made) + 1:04d}"


def _room(capacity: Capacity, survey: Survey) -> float:
    """Return how many jobs may be added to the queue."""
    room = math.inf if capacity.room is None else capacity.room
    there = sum(survey.targets.get(token, capacity.target) == capacity.target for token in survey.live)
    return room if capacity.most is None else max(0, min(room, capacity.most - there))


def _free_slots(sweep: Sweep, capacity: Capacity, survey: Survey) -> int:
    """Return the runs at once on a machine: as many as fit, less those already running; at least one."""
    running = (one.run_id for one in survey.statuses.values() if one.state is RunState.RUNNING)
    busy = sum(survey.target(run_id) in (None, capacity.target) for run_id in running)
    return max(1, _slots(sweep.resources, capacity) - busy)


def _slots(needs: Resources, capacity: Capacity) -> int:
    """Return the runs at once in a job: ``pack``, or what cores, GPUs and memory allow; at least one."""
    if capacity.pack is not None:
        return capacity.pack
    fits = []
    if capacity.cores is not None:
        fits.append(capacity.cores // needs.cpus_per_task)
    if capacity.gpus is not None and needs.gpus:
        fits.append(capacity.gpus // needs.gpus)
    if capacity.mem is not None and needs.mem is not None:
        fits.append(megabytes(capacity.mem) // megabytes(needs.mem))
    return max(1, min(fits, default=1))


def _allocation(needs: Resources, capacity: Capacity, slots: int) -> Resources:
    """Return what a job requests: the size of the target's jobs, else the sum of what its runs need."""
    mem = capacity.mem
    if mem is None and needs.mem is not None:
        mem = f"{slots * megabytes(needs.mem)}M"
    return Resources(
        cpus_per_task=slots * needs.cpus_per_task if capacity.cores is None else capacity.cores,
        gpus=slots * needs.gpus if capacity.gpus is None else capacity.gpus,
        mem=mem,
        time=capacity.time or needs.time,
    )


def can_have_more_memory(sweep: Sweep, capacity: Capacity) -> bool:
    """Return whether the target has jobs with more memory than usual, for a run that was out of memory."""
    usual = _allocation(sweep.resources, capacity, _slots(sweep.resources, capacity)).mem
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
    return status.state is RunState.INTERRUPTED and status.reason == Reason.OUT_OF_MEMORY.value


def _by_needs(
    runs: Iterable[Run], sweep: Sweep, starved: Container[str], crowded: Container[str]
) -> dict[tuple[Resources, _Want], list[Run]]:
    """Group runs by resources and by what they lacked before; each group in the given order."""
    groups: dict[tuple[Resources, _Want], list[Run]] = {}
    for run in runs:
        want = _Want.MORE if run.run_id in starved else _Want.NOTHING
        want = _Want.ALONE if run.run_id in crowded else want
        groups.setdefault((_needs(run, sweep), want), []).append(run)
    return groups


def _needs(run: Run, sweep: Sweep) -> Resources:
    needs = sweep.resources
    return replace(needs, gpus=needs.gpus or int(get_trainer(run.trainer).needs_gpu(run)))


def at_once(sweep: Sweep, capacity: Capacity) -> int:
    """Return how many runs of the sweep a job of the target can always train at once."""
    return min((_slots(needs, capacity) for needs in {_needs(run, sweep) for run in sweep.runs}), default=1)


def cannot_place(run: Run, sweep: Sweep, capacity: Capacity) -> str | None:
    """Return why the target cannot train the run; ``None`` if it can."""
    if run.target is not None and run.target != capacity.target:
        return f"belongs to target {run.target}"
    needs = _needs(run, sweep)
    if capacity.gpus is not None and needs.gpus > capacity.gpus:
        return capacity.no_gpu if not capacity.gpus else f"needs {needs.gpus} GPUs, found {capacity.gpus}"
    here = capacity.array_size is None
    has = "this machine has" if here else f"a job of {capacity.target} has"
    # A grid without cores requests its largest `threads` for every run: runs with fewer threads need fewer.
    for_threads = here and needs.cpus_per_task == sweep.most_threads
    cores = min(needs.cpus_per_task, run.threads) if for_threads else needs.cpus_per_task
    if capacity.cores is not None and cores > capacity.cores:
        return f"needs {cores} cores, {has} {capacity.cores}"
    if capacity.mem and needs.mem and megabytes(needs.mem) > megabytes(capacity.mem):
        return f"needs {needs.mem} of memory, {has} {_memory(capacity.mem) if here else capacity.mem}"
    return None


def _memory(mem: str) -> str:
    """Format a machine's memory in whole gigabytes where possible."""
    whole, rest = divmod(megabytes(mem), 1 << 10)
    return mem if rest or not whole else f"{whole}G"

"""Which cores and GPUs each slot of a job gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.worker.capacity.slots import CoreReservations, Slot, Slots, own_cores
from orchestrator.core.machine import hardware
from orchestrator.core.types import Job, Resources, Size


def job(slots: int, cpus: int = 1, gpus: int = 0) -> Job:
    return Job("0001-0001", "one", "local", (), slots, Resources(cpus_per_task=cpus, gpus=gpus))


def taken(of: Job, cores: Sequence[int]) -> list[Slot]:
    slots = Slots(of, cores)
    return [slots.take(Size(of.resources.cpus_per_task)) for _ in range(of.slots)]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 64))
def test_slots_are_disjoint_where_cores_suffice_and_share_evenly_else(
    slots: int, cpus: int, count: int
) -> None:
    cores = list(range(count))
    used = [slot.cores for slot in taken(job(slots, cpus), cores)]
    assert all(len(own) == min(cpus, count) and set(own) <= set(cores) for own in used)
    loads = [sum(core in own for own in used) for core in cores]
    if slots * cpus <= count:
        assert max(loads) == 1
    elif cpus <= count:
        assert max(loads) - min(loads) <= 1


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_runs_of_different_sizes_share_the_room_of_a_job(
    sizes: list[tuple[int, int]], count: int, mem: int, slots: int, chance: Random
) -> None:
    runs = {f"r{number}": Size(*size) for number, size in enumerate(sorted(sizes, reverse=True))}
    room = Size(count, mem)
    mixed = replace(job(slots, max(sizes)[0]), run_ids=tuple(runs), sizes=runs, room=room)
    free, waiting, at_work = Slots(mixed, range(count)), dict(runs), list[Slot]()
    while waiting or at_work:
        while (first := next((run for run in waiting if free.fits(waiting[run])), None)) is not None:
            at_work.append(free.take(waiting.pop(first)))
        assert at_work, "a run that is larger than the machine begins alone"
        assert len({slot.index for slot in at_work}) == len(at_work) <= slots
        used = [core for slot in at_work for core in slot.cores]
        assert len(used) == len(set(used)) == sum(min(slot.size.cores, count) for slot in at_work)
        total = reduce(Size.plus, (slot.size for slot in at_work))
        assert len(at_work) == 1 or total.fits(room)
        full = len(at_work) == slots or not any(total.plus(size).fits(room) for size in waiting.values())
        assert full, "nothing idles in vain"
        free.release(at_work.pop(chance.randrange(len(at_work))))


def test_gpus_are_dealt_out_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-abc,5,7")
    assert [slot.gpus for slot in taken(job(2, gpus=2), [0])] == ["2,GPU-abc", "5,7"]
    assert [slot.gpus for slot in taken(job(6, gpus=1), [0])] == ["2", "GPU-abc", "5", "7", "2", "GPU-abc"]


def test_without_gpus_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert [slot.gpus for slot in taken(job(2), [0])] == [None, None]


def test_a_run_has_whole_physical_cores_while_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where 9000 and 9001 are threads of one core, 9002 and 9003 of the next, and so on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9000, 9008)))
    monkeypatch.setattr(hardware, "_physical", lambda core, _: str(core // 2))
    reservations = CoreReservations()
    slots = Slots(job(2, 3), own_cores(job(2, 3), reservations))
    assert slots.take(Size(3)).cores == (9000, 9002, 9004)
    assert slots.take(Size(3)).cores == (9001, 9003, 9006)
    for mark in reservations.held:
        mark.close()


def test_two_workers_take_different_cores_while_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9001, 9002, 9003})  # cores nobody else reserves
    first, second, third = CoreReservations(), CoreReservations(), CoreReservations()
    assert own_cores(job(2), first) == [9001, 9002]
    assert own_cores(job(1), second) == [9003]
    assert own_cores(job(1), third) == [9001], "none is free: they share"
    for mark in first.held:
        mark.close()
    assert own_cores(job(2), third) == [9001, 9002]
    for mark in [*second.held, *third.held]:
        mark.close()

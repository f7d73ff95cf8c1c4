"""Slots: the cores and GPUs of each run at work in a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.core.machine import hardware
from orchestrator.core.types import Job, Size

_ONE_CORE = Size(1)


@dataclass(frozen=True)
class Slot:
    """Room for one run. ``gpus`` is a ``CUDA_VISIBLE_DEVICES``; ``None`` leaves the present one.

    ``size``: what the run asks for; it has fewer cores if the job has.
    """

    index: int
    cores: tuple[int, ...]
    gpus: str | None = None
    size: Size = _ONE_CORE


@dataclass
class CoreReservations:
    """Cores reserved among the workers of this machine, so that two jobs do not share cores without need.

    A reservation is a bound abstract socket: it needs no file, all users see it, and the kernel ends it with
    the process. It only helps speed.
    """

    held: list[socket.socket] = field(default_factory=list)

    def take(self, cores: list[int], count: int) -> list[int]:
        """Return ``count`` of ``cores``, free ones first."""
        free: list[int] = []
        for core in cores:
            if len(free) == count:
                break
            mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                mark.bind(f"\0orchestrate-core-{core}")
            except OSError:
                mark.close()
            else:
                self.held.append(mark)
                free.append(core)
        taken = [core for core in cores if core not in free]
        return free + taken[: count - len(free)]


class Slots:
    """The slots of a job, and the cores of its runs at work: disjoint where there are enough, else shared.

    Of cores with as few runs those come first that stand first in ``cores``.
    """

    def __init__(self, job: Job, cores: Sequence[int]) -> None:
        self._job, self._devices = job, _devices(job)
        self._free = list(range(job.slots))
        self._runs_on = dict.fromkeys(cores, 0)
        self._taken = Size(0)

    @property
    def open(self) -> bool:
        """Whether some run can begin now."""
        room = self._job.room
        return bool(self._free) and (room is None or self._taken.cores < room.cores)

    def fits(self, size: Size) -> bool:
        """Return whether a run of that size can begin now; one that is too large begins alone."""
        room, alone = self._job.room, not self._taken.cores
        return self.open and (room is None or alone or self._taken.plus(size).fits(room))

    def take(self, size: Size) -> Slot:
        """Take a free slot, with the cores that have the fewest runs."""
        index = min(self._free)
        self._free.remove(index)
        self._taken = self._taken.plus(size)
        cores = tuple(sorted(sorted(self._runs_on, key=lambda core: self._runs_on[core])[: size.cores]))
        for core in cores:
            self._runs_on[core] += 1
        return Slot(index, cores, _gpus_of(index, self._job.resources.gpus, self._devices), size)

    def release(self, slot: Slot) -> None:
        """Make a slot and its cores free again."""
        self._free.append(slot.index)
        self._taken = self._taken.plus(slot.size, -1)
        for core in slot.cores:
            self._runs_on[core] -= 1


def own_cores(job: Job, reservations: CoreReservations) -> list[int]:
    """Reserve and return the cores for this job, one thread of each physical core first."""
    allowed = hardware.physical_first(os.sched_getaffinity(0))
    return reservations.take(allowed, min(len(allowed), job.most_cores))


def _devices(job: Job) -> list[str]:
    if job.resources.gpus == 0:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    return [str(index) for index in range(len(hardware.gpus()))]


def _gpus_of(index: int, count: int, devices: list[str]) -> str | None:
    if count == 0:
        return None
    if not devices:
        return ""
    return ",".join(dict.fromkeys(devices[(index * count + n) % len(devices)] for n in range(count)))

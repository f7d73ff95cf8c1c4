"""Slots: the cores and GPUs of each run at work in a job."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from orchestrator.core import hardware
from orchestrator.core.types import Job


@dataclass(frozen=True)
class Slot:
    """Room for one run. ``gpus`` is a ``CUDA_VISIBLE_DEVICES``; ``None`` leaves the present one."""

    index: int
    cores: tuple[int, ...]
    gpus: str | None = None


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


def lay_out(job: Job, cores: list[int]) -> tuple[Slot, ...]:
    """Return the job's slots over these cores: disjoint where there are enough, else shared evenly."""
    wanted = job.resources.cpus_per_task
    devices = _devices(job)
    return tuple(
        Slot(
            index,
            tuple(sorted({cores[(index * wanted + offset) % len(cores)] for offset in range(wanted)})),
            _gpus_of(index, job.resources.gpus, devices),
        )
        for index in range(job.slots)
    )


def own_cores(job: Job, reservations: CoreReservations) -> list[int]:
    """Reserve and return the cores for this job."""
    allowed = sorted(os.sched_getaffinity(0))
    return reservations.take(allowed, min(len(allowed), job.slots * job.resources.cpus_per_task))


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

"""The memory of a run's processes, and whether the kernel killed one of them for want of it."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable
from pathlib import Path

from jobs.training.processes.life import shared_numbers
from jobs.training.processes.process_tree import memory_mb

_PEAK, _KILLED = range(2)
# An error so many seconds after a process was killed is no longer taken for the consequence.
_CONSEQUENCE_S = 300.0
# Seconds in which the keeper looks at least twice.
_VERDICT_S = 2.5
# This process's control groups, and where they are mounted.
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


class RunMemory:
    """A run's memory: the sum over its processes of their proportional set size (PSS).

    Kept in memory shared with processes forked later: the run's keeper writes, its own process reads.
    """

    def __init__(self) -> None:
        self._shared = shared_numbers(2)
        self._oom_kills = oom_kills()

    def measure(self, pids: Iterable[int]) -> None:
        """Take the memory of these processes now into the peak."""
        self._shared[_PEAK] = max(self._shared[_PEAK], sum(map(memory_mb, pids)))

    def peak_mb(self) -> float:
        """Return the run's peak so far in MiB; called by the run's own process.

        The kernel's records of this process and of its largest child that ended cover short peaks of one
        process.
        """
        records = (
            resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return round(max(self._shared[_PEAK], *(record / 1024 for record in records)), 1)

    @property
    def measured_mb(self) -> float:
        """The peak that the keeper measured, in MiB; for processes that are not the run's own."""
        return round(self._shared[_PEAK], 1)

    def note_kill(self) -> None:
        """Note that a process of the run was killed for want of memory."""
        self._shared[_KILLED] = time.monotonic()

    @property
    def killed(self) -> bool:
        """Whether the keeper saw, a short while ago, a process of the run killed for want of memory."""
        return 0.0 < self._shared[_KILLED] > time.monotonic() - _CONSEQUENCE_S

    def await_verdict(self) -> bool:
        """Return :attr:`killed`; if the kernel has counted a kill, give the keeper time to look."""
        deadline = time.monotonic() + _VERDICT_S
        while not self.killed and oom_kills() != self._oom_kills and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.killed


def oom_kills() -> int | None:
    """Return how many processes of our control group were killed for want of memory; None if unknown."""
    for file in _memory_files():
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _memory_files() -> list[Path]:
    """Return the files in which control groups of either version count such kills."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files.append(_GROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(_GROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return files

"""The embedded backend: jobs are processes on this machine that outlive the command line."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import machine
from orchestrator.backends.base import JobState, JobStatus
from orchestrator.errors import BackendUnavailableError
from orchestrator.plan import Capacity
from orchestrator.rundir import Holder
from orchestrator.rundir.atomic import storage_errors
from orchestrator.types import Job

# Boot, pid namespace, pid, start time in ticks: no other process ever has the same four.
_ID = re.compile(r"local:(?P<boot>[0-9a-f]{8}):(?P<namespace>\d+):(?P<pid>\d+):(?P<started>\d+)")


class LocalBackend:
    """Starts workers as detached processes of their own session."""

    def __init__(self) -> None:
        # Ours to reap, as long as this command line lives.
        self._children: list[int] = []

    def capacity(self) -> Capacity:
        return Capacity("local", machine.cores(), len(machine.gpus()))

    def submit(self, job: Job, argv: Sequence[str], output: Path) -> str:
        with storage_errors(output), open(output, "ab") as stream:
            try:
                pid = _spawn_detached(argv, stream.fileno())
            except OSError as error:
                raise BackendUnavailableError(f"cannot start job {job.token}: {argv[0]}: {error}") from error
        self._children.append(pid)
        return _id_of(Holder.of(pid))  # not reaped yet, so the number is still its own

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        self._reap()
        return {job_id: _status(job_id) for job_id in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        self._reap()
        for job_id in ids:
            holder = _process(job_id)
            if holder is not None:
                holder.signal(signal.SIGTERM)

    def _reap(self) -> None:
        self._children = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == 0]


def _spawn_detached(argv: Sequence[str], output: int) -> int:
    """A process in a session of its own, with an empty standard input; its pid."""
    return os.posix_spawnp(
        argv[0],
        list(argv),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # which Python ignores
    )


def _id_of(holder: Holder) -> str:
    return f"local:{holder.boot_id[:8]}:{_digits(holder.pid_namespace)}:{holder.pid}:{holder.started}"


def _process(job_id: str) -> Holder | None:
    """The process that this id names, if it lives; ``None`` for any other that has its number now."""
    match = _ID.fullmatch(job_id)
    if match is None:
        return None
    try:
        holder = Holder.of(int(match["pid"]))
    except ProcessLookupError:
        return None
    return holder if _id_of(holder) == job_id and holder.alive() else None


def _status(job_id: str) -> JobStatus:
    match = _ID.fullmatch(job_id)
    if match is None:
        return JobStatus(JobState.UNKNOWN, "not an id of this backend")
    here = Holder.current()
    if not here.boot_id.startswith(match["boot"]) or match["namespace"] != _digits(here.pid_namespace):
        return JobStatus(
            JobState.UNKNOWN, "started on another machine, in another container or before a reboot"
        )
    return JobStatus(JobState.RUNNING if _process(job_id) else JobState.ENDED)


def _digits(namespace: str) -> str:
    """``pid:[4026531836]`` → ``4026531836``."""
    return re.sub(r"\D", "", namespace)

"""Who holds a claim, and what can be proved about it from here."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

# A killed process is gone in milliseconds unless the kernel holds it in an unfinished write.
_KILL_PATIENCE_S = 10.0

# The machine's own, not a container's: the kernel gives it this number at every boot.
_INITIAL_NAMESPACE = f"pid:[{0xEFFFFFFC}]"


# The scheduler's name for the job that this process is part of, and how often it was given back to the queue:
# `123_4:0`. Set by the worker for all that it starts.
JOB_VARIABLE = "ORCHESTRATE_JOB"


@dataclass(frozen=True)
class Holder:
    """One process, told apart from every other that ever had its number.

    ``started`` is the kernel's start time in clock ticks since boot; ``pid_namespace`` keeps a container's
    numbers apart from the host's. ``machine`` is the installation's id, the same after a reboot, empty where
    there is none. ``job_id`` is the backend's name for the allocation with its restart count.
    """

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    machine: str = ""
    job_id: str | None = None

    @classmethod
    def current(cls, job_id: str | None = None) -> Self:
        return cls.of(os.getpid(), job_id)

    @classmethod
    def of(cls, pid: int, job_id: str | None = None) -> Self:
        """The process that has this number now. Raises ``ProcessLookupError`` if none has."""
        try:
            started = _stat(pid)[1]
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        job_id = job_id or os.environ.get(JOB_VARIABLE)
        return cls(socket.gethostname(), _boot_id(), _pid_namespace(), pid, started, _machine_id(), job_id)

    @property
    def here(self) -> bool:
        """Whether this machine, since this boot, can say anything about the holder."""
        return self.boot_id == _boot_id() and self.pid_namespace == _pid_namespace()

    def alive(self) -> bool | None:
        """``True`` or ``False`` with proof; ``None`` where none can be had from here."""
        if self.here:
            return self._running()
        return False if self._before_reboot or self._requeued else None

    @property
    def _requeued(self) -> bool:
        """Whether this process is part of the same job, begun again: the scheduler ended what was before."""
        return _restarts(os.environ.get(JOB_VARIABLE), self.job_id) > 0

    def continues(self, before: Holder) -> bool:
        """Whether this holder's job is the other's, begun again."""
        return _restarts(self.job_id, before.job_id) > 0

    @property
    def _before_reboot(self) -> bool:
        """Whether the holder ran on this machine before its last boot, which ended every process.

        Only outside of containers: two that are made of one image can share a hostname and a machine id.
        """
        same = self.machine != "" and (self.machine, self.host) == (_machine_id(), socket.gethostname())
        bare = self.pid_namespace == _pid_namespace() == _INITIAL_NAMESPACE
        return same and bare and self.boot_id != _boot_id()

    def _running(self) -> bool:
        try:
            state, started, _ = _stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return started == self.started and state not in "ZX"

    def signal(self, number: int) -> bool:
        """Send a signal to the holder and nobody else; ``False`` if it is gone or cannot be reached."""
        if not self.here:
            return False
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:  # gone; or a kernel before 5.3, where looking and sending are two steps
            return self._running() and _send(self.pid, number)
        try:
            # Whoever has the number now keeps it while the descriptor is open.
            if not self._running():
                return False
            signal.pidfd_send_signal(descriptor, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)

    def survivors(self) -> list[int]:
        """Processes of the session the holder led that outlived it: programs a killed run had started.

        The kernel gives a session's number to no new process while the session has members.
        """
        try:
            if _stat(self.pid)[1] != self.started:
                return []
        except (FileNotFoundError, ProcessLookupError):
            pass
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.pid:
                try:
                    state, started, session = _stat(int(entry))
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if session == self.pid and started >= self.started and state not in "ZX":
                    found.append(int(entry))
        return sorted(found)

    def end_survivors(self) -> bool:
        """Kill what a dead holder left behind, and wait until it is gone; ``False`` if something stays.

        Nothing happens while the holder lives, or if it is elsewhere.
        """
        if not self.here or self._running():
            return True
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while survivors := self.survivors():
            for pid in survivors:
                _send(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises ``TypeError`` for anything else than what :meth:`to_json` gives."""
        holder = cls(**data)
        texts = (holder.host, holder.boot_id, holder.pid_namespace, holder.machine, holder.job_id or "")
        if set(map(type, texts)) != {str} or {type(holder.pid), type(holder.started)} != {int}:
            raise TypeError("a holder is told by texts and two numbers")
        return holder


def _restarts(now: str | None, before: str | None) -> int:
    """How often a job began again between two of its names; 0 if they are not of the same job."""
    job, _, count = (now or "").partition(":")
    earlier_job, _, earlier = (before or "").partition(":")
    return int(count) - int(earlier) if job == earlier_job and count and earlier else 0


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _stat(pid: int) -> tuple[str, int, int]:
    """State letter, start time in ticks, session id."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # survivors() reads it of all there are
        text = file.read()
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)  # its name before that holds anything
    return fields[0].decode(), int(fields[19]), int(fields[3])

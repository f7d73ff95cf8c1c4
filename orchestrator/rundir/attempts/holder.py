"""The process that holds a claim, and proofs that it lives or ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from msgspec import Meta

# Seconds; a killed process ends in milliseconds unless the kernel holds it in an unfinished write.
_KILL_PATIENCE_S = 10.0

# The machine's own namespace, not a container's: the kernel assigns this number at every boot.
_INITIAL_NAMESPACE = f"pid:[{0xEFFFFFFC}]"


# The scheduler's name of this process's job and its number of requeues: `123_4:0`. Set by the worker for its
# child processes.
JOB_VARIABLE = "ORCHESTRATE_JOB"


@dataclass(frozen=True)
class Holder:
    """One process, distinct from all others that ever had its number.

    ``started``: the kernel's start time in clock ticks since boot; ``pid_namespace`` separates a container's
    numbers from the host's. ``machine``: the installation's id, which survives reboots; empty if there is
    none. ``job_id``: the backend's name for the allocation with its restart count.
    """

    host: str
    boot_id: str
    pid_namespace: str
    pid: Annotated[int, Meta(gt=0, lt=1 << 31)]
    started: int
    machine: str = ""
    job_id: str | None = None

    @classmethod
    def current(cls) -> Self:
        """Return this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the process with this number now. Raises ``ProcessLookupError`` if there is none."""
        try:
            started = _stat(pid)[1]
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        job_id = os.environ.get(JOB_VARIABLE) or None
        return cls(socket.gethostname(), _boot_id(), _pid_namespace(), pid, started, _machine_id(), job_id)

    @property
    def here(self) -> bool:
        """Whether the holder belongs to this machine, boot and namespace."""
        return self.boot_id == _boot_id() and self.pid_namespace == _pid_namespace()

    def alive(self) -> bool | None:
        """Return True or False with proof; None without proof from here."""
        if self.here:
            return self._running()
        return False if self._before_reboot or self._requeued else None

    @property
    def _requeued(self) -> bool:
        """Whether this process belongs to a later start of the same job: the earlier one ended."""
        return _restarts(os.environ.get(JOB_VARIABLE), self.job_id) > 0

    def continues(self, before: Holder) -> bool:
        """Return whether this holder's job is a later start of the other's."""
        return _restarts(self.job_id, before.job_id) > 0

    @property
    def _before_reboot(self) -> bool:
        """Whether the holder ran on this machine before its last boot, which ended every process.

        Only outside containers: two from one image can share a hostname and a machine id.
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
        """Send a signal to exactly the holder; return False if it has ended or cannot be reached."""
        if not self.here:
            return False
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:  # ended; or a kernel before 5.3, where check and signal are two steps
            return self._running() and _send(self.pid, number)
        try:
            # The number cannot pass to another process while the descriptor is open.
            if not self._running():
                return False
            signal.pidfd_send_signal(descriptor, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)

    def survivors(self) -> list[int]:
        """List processes of the holder's session that outlived it: programs that a killed run had started.

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
                except (FileNotFoundError, ProcessLookupError, PermissionError):  # ended; or hidden from us
                    continue
                if session == self.pid and started >= self.started and state not in "ZX":
                    found.append(int(entry))
        return sorted(found)

    def end_survivors(self) -> bool:
        """Kill the survivors of a dead holder and wait for their end; return False if one remains.

        Does nothing while the holder lives or if it is elsewhere.
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


def _restarts(now: str | None, before: str | None) -> int:
    """Return the number of restarts between two names of a job; 0 for different jobs."""
    job, _, count = (now or "").partition(":")
    earlier_job, _, earlier = (before or "").partition(":")
    same = job == earlier_job and count.isdecimal() and earlier.isdecimal()
    return int(count) - int(earlier) if same else 0


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
    """Return state letter, start time in ticks and session id."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # unbuffered: survivors() reads them all
        text = file.read()
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)  # the name before that may hold any character
    return fields[0].decode(), int(fields[19]), int(fields[3])

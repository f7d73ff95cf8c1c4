"""Claims: at most one live attempt per run, on any file system with hard links.

Attempt n is the exclusive creation of ``attempts/<n>/claim``. Attempt n+1 needs proof that n ended: its end
record, a dead process on the same boot, or a final state from the backend. Without proof (another
host), the holder fences itself after half a lease without renewal and a takeover comes after two leases,
ages taken by the file server's clock.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.core import environment
from orchestrator.core.records import plain
from orchestrator.rundir.attempts.holder import Holder
from orchestrator.rundir.files.atomic import (
    dump_json,
    read_record,
    storage_errors,
    temporary_name,
    write_exclusive,
)

DEFAULT_LEASE_S = 300.0


def lease_seconds() -> float:
    """Return the lease in seconds; ``ORCHESTRATE_LEASE`` replaces the default (tests shorten it)."""
    return environment.seconds(environment.LEASE) or DEFAULT_LEASE_S


@dataclass(frozen=True)
class Claim:
    """The holder of an attempt, its target and its code id.

    ``created``: epoch seconds by the holder's clock, for display. ``lease``: the holder's lease in seconds,
    by which others judge its silence. ``up``: the same moment by :meth:`Lease.clock`, for durations, as other
    clocks jump.
    """

    nonce: str
    holder: Holder
    created: float
    worker: str
    lease: float = DEFAULT_LEASE_S
    code_id: str | None = None
    target: str | None = None
    up: float | None = None

    @classmethod
    def fresh(cls, worker: str, code_id: str | None = None, target: str | None = None) -> Self:
        """Make a new claim of this process."""
        nonce, now, lease = secrets.token_hex(8), time.time(), lease_seconds()
        return cls(nonce, Holder.current(), now, worker, lease, code_id, target, Lease.clock())


def create_claim(path: Path, claim: Claim) -> bool:
    """Claim by exclusive creation; return True also for this very claim (after a lost reply)."""
    return write_exclusive(path, dump_json(plain(claim)))


def read_claim(path: Path) -> Claim | None:
    """Read a claim; None if the file does not exist. Raises :class:`DamagedFileError`."""
    return read_record(Claim, path, "a claim")


class Lease:
    """The holder's side of a lease: renew it while alive, and stop for good once it is lost.

    Its clock also runs while the machine sleeps or the process is stopped, so a process continued after
    SIGSTOP finds its lease lost before it writes another byte. ``since``: a moment before the claim was made,
    by :meth:`clock`; a process stopped between the two has lost its lease as well.
    """

    def __init__(self, path: Path, seconds: float | None = None, since: float | None = None) -> None:
        self._path = path
        self._seconds = lease_seconds() if seconds is None else seconds
        self._renewed = self.clock() if since is None else since

    @staticmethod
    def clock() -> float:
        """Return seconds since boot, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def interval(self) -> float:
        """Seconds between renewals."""
        return self._seconds / 10

    @property
    def lost(self) -> bool:
        """Whether more than half a lease has passed without renewal."""
        return self.clock() - self._renewed > self._seconds / 2

    def renew(self) -> bool:
        """Extend the lease; return False once it is lost (for good)."""
        if self.lost:
            return False
        began = self.clock()
        try:
            os.utime(self._path)
        except OSError:
            return not self.lost
        self._renewed = began
        return True


def age_by_file_server(path: Path) -> float:
    """Return the seconds since ``path`` was renewed, by the clock of its file system.

    A network file system's client keeps attributes for some seconds; a new link to a file brings its present
    ones.
    """
    probe, link = temporary_name(path), temporary_name(path)
    with storage_errors(path):
        try:
            probe.touch()
            try:
                os.link(path, link)
            except PermissionError:  # a file of another user
                return probe.stat().st_mtime - path.stat().st_mtime
            return probe.stat().st_mtime - link.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)
            link.unlink(missing_ok=True)

"""The processes that a process of a run forks: start them, find out which one was killed, end them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from jobs.training.processes.process_tree import die_with_parent
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.core.machine.hardware import physical_first

_POLL_S = 0.02


class Children:
    """Forked processes by name, such as "actor 1". None outlives this process."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def fork(self, name: str, work: Callable[[], int], listener: socket.socket | None = None) -> None:
        """Start a process that does this work and exits with the code that it returns.

        ``listener``: a socket of this process alone.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._names[pid] = name
            return
        code = 1
        try:
            for number in STOP_SIGNALS:  # rank 0 decides
                signal.signal(number, signal.SIG_IGN)
            die_with_parent(parent)
            if listener is not None:
                listener.close()
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def ended(self) -> dict[str, int]:
        """Return the exit codes of those that have ended, by name; negative for a signal."""
        found = {}
        for pid, name in self._names.items():
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                by_itself = ended.si_code == os.CLD_EXITED
                found[name] = ended.si_status if by_itself else -ended.si_status
        return found

    def killed(self) -> dict[str, str]:
        """Return how those ended that a signal did, by name."""
        return {
            name: f"killed by {signal.Signals(-code).name}" for name, code in self.ended().items() if code < 0
        }

    def stopped(self) -> list[str]:
        """Return the names of those that a signal has stopped."""
        return [name for pid, name in self._names.items() if _state(pid) == "T"]

    def reap(self, patience: float) -> None:
        """Wait until all have ended, at most so many seconds; forget those that have."""
        deadline = time.monotonic() + patience
        while self._names and time.monotonic() < deadline:
            for pid in list(self._names):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._names[pid]
            time.sleep(_POLL_S)

    def end(self, patience: float) -> None:
        """Kill those that are left and reap them."""
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)
        self.reap(patience)


def _state(pid: int) -> str:
    """Return the letter of a child's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# The exit code of a process that only lost the others.
LOST_THE_OTHERS = 3


def bind_to_cores(first: int, number: int) -> None:
    """Keep this process on these of its cores, if there are enough; its results do not depend on it.

    The cores are in the order in which one thread of each physical core comes first.
    """
    cores = physical_first(os.sched_getaffinity(0))
    if own := cores[first : first + number]:
        os.sched_setaffinity(0, own)

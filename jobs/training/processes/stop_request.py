"""Ask a program to stop: SIGTERM for those of its processes that can save.

A program is often started by another: a shell script, a pipe into ``tee``, ``make``, ``conda run``. Most of
these die of SIGTERM, and the training below them would be killed with them. So the signal goes to the topmost
processes that handle it, in a tree that begins at the program; what they started is theirs to stop. A process
that handles it and leaves another program behind, as ``conda run`` does, makes that the topmost.

Where no process handles SIGTERM, none can save, and the program gets the signal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from jobs.training.processes.process_tree import Process, descendants, expects, ignores, topmost

_SHELLS = frozenset(("ash", "bash", "busybox", "dash", "ksh", "ksh93", "mksh", "sh", "yash", "zsh"))
# Programs draw on them until they have left.
_DISPLAYS = frozenset(("Xephyr", "Xorg", "Xvfb", "Xvnc", "Xwayland"))
# Part of the grace after which a shell's children are signalled, too: while a command runs in its foreground,
# its trap waits.
_TRAP_SHARE = 0.25
# Seconds for a program that does not handle the signal, once nothing below it is at work for it.
_REST_S = 5.0
# Seconds between two looks at the processes of this machine.
_INTERVAL_S = 0.2


class StopRequest:
    """A request to the program ``program`` and the processes that it started.

    ``root``: the keeper above it, which adopts orphans. ``seconds``: until they are killed. ``through``:
    processes between the two. Call :meth:`attend` until the program has left, then :meth:`await_others`.
    """

    def __init__(self, root: int, program: int, seconds: float, through: Collection[int] = ()) -> None:
        self._root, self._program, self._through = root, program, frozenset(through)
        self._trap_s, self._over_at = _TRAP_SHARE * seconds, time.monotonic() + seconds
        self._asked: dict[Process, float] = {}
        self._commands: set[bytes] = set()
        self._program_asked = False
        self._at_first = descendants(program)
        self._busy_at = time.monotonic()
        self._look_at = 0.0

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._over_at

    @property
    def handled(self) -> bool:
        """Whether a process got the signal that handles it."""
        return bool(self._asked)

    @property
    def of_a_wrapper(self) -> bool:
        """Whether such a process is none of the program's own, so that its exit code may be another's."""
        return any(process.pid != self._program for process in self._asked)

    def attend(self) -> None:
        """Signal processes that can save and were not asked yet; the program, too, once all have left."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _INTERVAL_S
        # What began since is the program's end, as a copy to a safe place, or its next step.
        if self._look() or descendants(self._program) - self._at_first:
            self._busy_at = now
        elif not self._program_asked and (not self._asked or now - self._busy_at > _REST_S):
            self._program_asked = True
            _terminate(self._program)

    def await_others(self, until: Callable[[], bool | None]) -> None:
        """Wait for the training where its wrapper left before it, or until ``until`` is true."""
        while not self.over and self._look() and not until():
            time.sleep(_INTERVAL_S)

    def _look(self) -> bool:
        """Signal processes that can save and were not asked yet; return whether any has not left."""
        now = time.monotonic()
        able = self._able(now)
        for process in able:
            if process not in self._asked:
                self._asked[process] = now
                self._commands.add(_command(process.pid))
                self._program_asked |= process.pid == self._program
                _terminate(process.pid)
        return bool(able)

    def _able(self, now: float) -> list[Process]:
        """Return the topmost processes that handle the signal; background jobs of a shell after the rest."""
        waited = {process.pid for process, at in self._asked.items() if now - at > self._trap_s}
        passed = self._through | {pid for pid in waited if _program_name(pid) in _SHELLS}

        def handles(process: Process) -> bool:
            if (
                process.pid in passed or process in self._asked
            ):  # which may handle the next one in another way
                return process.pid not in passed
            return expects(process.pid, signal.SIGTERM) and not self._is_worker(process)

        able = topmost(self._root, handles)
        return [process for process in able if not _in_background(process.pid)] or able

    def _is_worker(self, process: Process) -> bool:
        """Whether it is a fork of a process that was asked, which has its handlers and saves nothing."""
        return process in self._at_first and _command(process.pid) in self._commands


def _terminate(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # ended; of another user
        os.kill(pid, signal.SIGTERM)


def _in_background(pid: int) -> bool:
    """Whether others may need the process to the end: a shell without job control has it ignore SIGQUIT."""
    return ignores(pid, signal.SIGQUIT) or _program_name(pid) in _DISPLAYS


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _program_name(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""

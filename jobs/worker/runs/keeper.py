"""The parent of a run's process: pass signals on, measure the run's memory, end what the run leaves behind.

It also ends a run that gives no sign of life (:mod:`jobs.worker.runs.silence`).

Each run has a keeper between its process and the worker. Every process that a run starts stays below its
keeper, in a session of its own and as a daemon too, because the keeper adopts orphans. It ends them all when
the run's process ends, and when the worker dies. Where the keeper itself is killed, the run's process dies
with it, and the worker adopts and ends the rest.
"""

from __future__ import annotations

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import (
    Process,
    adopt_orphans,
    descendants,
    die_with_parent,
    end_descendants,
)
from jobs.training.processes.run_memory import RunMemory, oom_kills
from jobs.training.processes.stop_request import StopRequest
from jobs.worker.runs.silence import Silence
from jobs.worker.signals import STOP_SIGNALS

# Sent by the kernel when the worker dies.
_ORPHANED = signal.SIGHUP
_TICK = signal.SIGALRM
_ATTENDED = {*STOP_SIGNALS, _ORPHANED, _TICK, signal.SIGCHLD}

# Seconds between looks: a part of the run's age at first, so that short runs are measured, too.
_SHORTEST_S, _LONGEST_S, _PART_OF_AGE = 0.1, 1.0, 0.1
# Share of one core that measuring may take; the more processes there are, the rarer it is.
_COST_SHARE = 0.01
# A process that ended within so many seconds after the kernel counted a kill may be the one killed: a large
# one takes that long to end.
_KILL_TAKES_S = 10.0
_MOMENT_S = 0.2


def keep(
    worker: int, memory: RunMemory, life: Life, run: Callable[[int], NoReturn], *, grace: float | None = None
) -> NoReturn:
    """Fork ``run``, given its parent's pid; end as it does, after all that it started.

    ``grace``: ``run`` becomes a program, which is given so many seconds when it is stopped.
    """
    try:
        os.setsid()  # a signal to the worker's group reaches the run once: through the worker
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ATTENDED)
        adopt_orphans()
        die_with_parent(worker, _ORPHANED)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            run(parent)
        status = _Keeper(pid, memory, life, grace).attend()
        if _left_behind():
            end_descendants()
        _exit_as(os.waitstatus_to_exitcode(status))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # the run's process dies with this one


class _Keeper:
    """The keeper's view of its run: the processes below it that were there at the last look."""

    def __init__(self, pid: int, memory: RunMemory, life: Life, grace: float | None = None) -> None:
        self._pid, self._memory, self._life = pid, memory, life
        self._grace = grace
        self._stop: StopRequest | None = None
        self._silence = Silence(pid, life)
        self._began, self._measure_at = time.monotonic(), 0.0
        self._known: set[Process] = set()
        self._oom_kills, self._killed_until = oom_kills(), 0.0

    def attend(self) -> int:
        """Wait for the end of the run's process; return its status, that of a kill if the worker died."""
        self._set_timer()
        while (number := signal.sigwait(_ATTENDED)) != _ORPHANED:
            if number == _TICK:
                self._look()
                if self._silence.too_long(lambda: descendants(os.getpid())):
                    self._life.end()
                    os.kill(self._pid, signal.SIGKILL)
                if self._stop is not None:
                    self._stop.attend()
                self._set_timer()
            elif number != signal.SIGCHLD:
                self._pass_on(number)
            elif (status := self._reap()) is not None:
                if self._stop is not None:
                    self._stop.await_others(lambda: _ORPHANED in signal.sigpending())
                if os.WIFSIGNALED(status):
                    self._look(killed=True)
                return status
        os.kill(self._pid, signal.SIGKILL)
        return signal.SIGKILL

    def _pass_on(self, number: int) -> None:
        if number != signal.SIGTERM or self._grace is None:
            os.kill(self._pid, number)  # not reaped yet, so the number is still its own
        elif self._stop is None:
            self._stop = StopRequest(os.getpid(), self._pid, self._grace)
            self._stop.attend()

    def _set_timer(self) -> None:
        age = time.monotonic() - self._began
        signal.setitimer(signal.ITIMER_REAL, min(_LONGEST_S, max(_SHORTEST_S, age * _PART_OF_AGE)))

    def _reap(self) -> int | None:
        """Reap all children that ended; return the status of the run's process if it is among them."""
        found = None
        with suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                if child[0] == self._pid:
                    found = child[1]
        return found

    def _look(self, *, killed: bool = False) -> None:
        """Measure the run if it is time; note a process that ended as the kernel counted a kill.

        ``killed``: the run's own process ended by a signal.
        """
        now, count = time.monotonic(), oom_kills()
        if count != self._oom_kills:
            self._oom_kills, self._killed_until = count, now + _KILL_TAKES_S
        due, counted = now >= self._measure_at, now < self._killed_until
        if not due and not counted:
            return
        began = time.process_time()
        there = descendants(os.getpid())
        if counted and (killed or self._known - there):
            self._memory.note_kill()
        self._known = there
        if due:
            self._memory.measure(process.pid for process in there)
            self._measure_at = now + (time.process_time() - began) / _COST_SHARE


def _left_behind() -> bool:
    """Whether the run left processes; some, as Python's resource tracker, end by themselves in a moment."""
    deadline = time.monotonic() + _MOMENT_S
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < deadline:
            time.sleep(0.002)
        return True
    return False


def _exit_as(code: int) -> NoReturn:
    """Exit with this code; if it is negative, die of that signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the run's process has left its core
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code)

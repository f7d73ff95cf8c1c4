"""The processes below a process: list them, measure their memory, end them, bind a child to its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)

# Seconds; a killed process ends in milliseconds unless the kernel holds it in an unfinished write.
_KILL_PATIENCE_S = 10.0
# Processor time among the fields of /proc/PID/stat after the name: its own and that of its ended children.
_TIMES, _TICKS_PER_S = slice(11, 15), os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Process(NamedTuple):
    """One process, distinct from all others that ever had its number. ``started``: in clock ticks."""

    pid: int
    started: int


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when ``parent`` dies; exit if it is dead already."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, those in other sessions too."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> set[Process]:
    """Return the living processes below ``pid``."""
    return {process for process, state in _below(pid) if state not in "ZX"}


def topmost(pid: int, chosen: Callable[[Process], bool]) -> list[Process]:
    """Return the living processes below ``pid`` that are chosen, less those below another one."""
    children = _children()
    found, parents = [], [pid]
    while parents:
        for process, state in children.get(parents.pop(), ()):
            if state not in "ZX" and chosen(process):
                found.append(process)
            else:
                parents.append(process.pid)
    return found


def expects(pid: int, number: int) -> bool:
    """Whether the process handles the signal: by a handler, or blocked for a thread that waits for it."""
    return _in_masks(pid, number, ("SigCgt", "SigBlk"))


def ignores(pid: int, number: int) -> bool:
    """Whether the process ignores the signal."""
    return _in_masks(pid, number, ("SigIgn",))


def _in_masks(pid: int, number: int, names: Collection[str]) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:  # ended; or hidden from us
        return False
    fields = (line.split(":", 1) for line in lines)
    return any(name in names and int(mask, 16) >> number - 1 & 1 for name, mask in fields)


def end_descendants(spare: Collection[int] = ()) -> None:
    """Kill the processes below this one, which adopts orphans; reap them, within some seconds.

    ``spare``: children to leave alone, with what is below them.
    """
    deadline = time.monotonic() + _KILL_PATIENCE_S
    while (left := _below(os.getpid(), spare)) and time.monotonic() < deadline:
        for process, _ in left:
            with suppress(ProcessLookupError, PermissionError):  # ended; of another user
                os.kill(process.pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # a child's child until its parent has ended
                os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.002)


def memory_mb(pid: int) -> float:
    """Return a process's memory in MiB, shared pages by halves, thirds, …; 0 if it has ended.

    Where the kernel does not tell it (another user's process), all resident pages count whole.
    """
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except (OSError, ValueError):
        pass
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MB
    except (OSError, IndexError):
        return 0.0


def processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process and its children that ended; 0 if it has ended."""
    fields = _fields(pid)
    return sum(map(int, fields[_TIMES])) / _TICKS_PER_S if fields else 0.0


def waits_for_storage(pid: int) -> bool:
    """Whether the kernel holds the process until a disk or network file system answers."""
    fields = _fields(pid)
    return fields is not None and fields[0] == b"D"


def _below(pid: int, spare: Collection[int] = ()) -> list[tuple[Process, str]]:
    """List the processes below ``pid``, zombies too, each with its state letter."""
    children = _children()
    below, parents = [], [pid]
    while parents:
        own = [child for child in children.get(parents.pop(), ()) if child[0].pid not in spare]
        below += own
        parents += [process.pid for process, _ in own]
    return below


def _children() -> dict[int, list[tuple[Process, str]]]:
    """Return this machine's processes by their parents; none where ``/proc`` has other numbers than we."""
    children: dict[int, list[tuple[Process, str]]] = {}
    with suppress(OSError):
        if os.readlink("/proc/self") == str(os.getpid()):
            for name in os.listdir("/proc"):
                if name.isdigit() and (found := _stat(int(name))):
                    process, state, parent = found
                    children.setdefault(parent, []).append((process, state))
    return children


def _stat(pid: int) -> tuple[Process, str, int] | None:
    """Return the process, its state letter and its parent."""
    fields = _fields(pid)
    return None if fields is None else (Process(pid, int(fields[19])), fields[0].decode(), int(fields[1]))


def _fields(pid: int) -> list[bytes] | None:
    """Return what the kernel says of a process, from its state letter on."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:  # ended; or hidden from us
        return None
    return text[text.rindex(b")") + 2 :].split(maxsplit=20)  # the name before that may hold any character

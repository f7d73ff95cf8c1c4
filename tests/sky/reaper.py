"""Ends what belongs to a folder and removes it, as soon as whoever holds its standard input lets go or dies.

SkyPilot's API server detaches itself from its starter, and so do ssh's shared connections. They cannot be
known by their parents; but each has the folder in its environment or its arguments, or a parent that has.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

PATIENCE = 20.0  # seconds


def main(*folders: str) -> None:
    """The first folder is what processes are known by; all are removed."""
    sys.stdin.read()
    deadline = time.monotonic() + PATIENCE
    while (pids := belonging(folders[0])) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        time.sleep(0.05)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def belonging(folder: str) -> set[int]:
    """Processes of the folder, and all that they started: those with titles of their own show nothing."""
    parents, found = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(") ")[2].split()[:2]
            known = any(folder.encode() in _bytes(f"/proc/{name}/{what}") for what in ("environ", "cmdline"))
        except OSError:
            continue  # it ended while we looked
        if state not in "ZX" and int(name) != os.getpid():
            parents[int(name)] = int(parent)
            found |= {int(name)} if known else set()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main(*sys.argv[1:])

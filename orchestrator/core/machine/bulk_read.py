"""Read very many small files: one after another on a fast file system, in threads on a slow one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.core.progress import counted

_Item = TypeVar("_Item")
_Read = TypeVar("_Read")

# The file system counts as slow if reading the first files took this many times longer than processing them.
_SLOW = 8
_THREADS = 16
_FIRST = 64


def read_all(read: Callable[[_Item], _Read], items: Sequence[_Item], step: str = "reading") -> list[_Read]:
    """Apply ``read`` to each item, in order, and report progress as ``step``.

    Threads help only where waiting dominates: they slow parsing.
    """
    first, rest = items[:_FIRST], items[_FIRST:]
    wall, busy = time.perf_counter(), time.thread_time()
    done = [read(item) for item in first]
    wall, busy = time.perf_counter() - wall, time.thread_time() - busy
    if wall < _SLOW * busy:
        return done + [read(item) for item in counted(rest, step, len(items), len(done))]
    with ThreadPoolExecutor(_THREADS) as pool:
        return done + list(counted(pool.map(read, rest), step, len(items), len(done)))

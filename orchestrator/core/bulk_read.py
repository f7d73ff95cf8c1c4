"""Reading very many small files: in turn where the file system is quick, by threads where it is not."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_Read = TypeVar("_Read")

# Files count as slow to come when the first ones took this many times longer than the work on them.
_SLOW = 8
_THREADS = 16
_FIRST = 64


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For much reading: among millions of small objects without a cycle, looking for one takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_all(read: Callable[[_Item], _Read], items: Sequence[_Item]) -> list[_Read]:
    """What ``read`` makes of each item, in order. Threads hide waiting, and slow parsing down: as needed."""
    first, rest = items[:_FIRST], items[_FIRST:]
    wall, busy = time.perf_counter(), time.thread_time()
    done = [read(item) for item in first]
    wall, busy = time.perf_counter() - wall, time.thread_time() - busy
    if wall < _SLOW * busy:
        return done + [read(item) for item in rest]
    with ThreadPoolExecutor(_THREADS) as pool:
        return done + list(pool.map(read, rest))

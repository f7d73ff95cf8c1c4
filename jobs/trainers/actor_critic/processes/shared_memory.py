"""Memory that several processes share. It has no name: the kernel frees it with the last of them."""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

# Tensors begin at multiples of so many bytes, lines of a processor's cache.
_ALIGNMENT = 64
_POLL_S = 0.001


class SharedMemory:
    """Tensors, and a lock, of this process and those forked later. The lock of a process ends with it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("tensors")

    def close(self) -> None:
        """Give the memory back as soon as no process has tensors in it."""
        os.close(self._file)

    def tensors(self, like: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors of these shapes and types, of zeros at first: the same in each process."""
        begins = [0]
        for one in like:
            size = one.numel() * one.element_size()
            begins.append(begins[-1] + math.ceil(size / _ALIGNMENT) * _ALIGNMENT)
        os.ftruncate(self._file, begins[-1])
        memory = mmap.mmap(self._file, begins[-1])
        return [
            torch.frombuffer(memory, dtype=one.dtype, count=one.numel(), offset=begin).view(one.shape)
            for one, begin in zip(like, begins, strict=False)
        ]

    @contextmanager
    def locked(self, patience: float = math.inf) -> Iterator[None]:
        """Hold the lock. Raises ``TimeoutError`` if it is not free within so many seconds."""
        deadline = time.monotonic() + patience
        while not self._lock(wait=patience == math.inf):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _lock(self, *, wait: bool) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

"""The processes that train one network together, as each of them sees the others."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from orchestrator.planning.throughput.measure import ALL_REDUCE_TIMER, WAITING_TIMER

# Added to a run's seed for each process; far from what else is added.
_BETWEEN_RANKS = 7_919_000_017
# Added for each attempt before; no number of processes reaches it.
_BETWEEN_ATTEMPTS = 1_299_709_000_000_007
_LARGEST_SEED = 2**63
FOREVER = timedelta(days=365)
# How often rank 0 looks after the others while it waits for them.
_LOOK = timedelta(seconds=0.5)
# Seconds beyond the patience after which the connections give up by themselves.
_SLACK_S = 30.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 5e-5, 2e-3


def seed_of(seed: int, number: int) -> int:
    """Return the seed of one of several processes: a run's own for the first, number 0."""
    return (seed + _BETWEEN_RANKS * number) % _LARGEST_SEED


def seed_of_attempt(seed: int, attempt: int) -> int:
    """Return the seed of what an attempt plays that does not go on from saved episodes: others each time."""
    return (seed + _BETWEEN_ATTEMPTS * (attempt - 1)) % _LARGEST_SEED


class Group:
    """One process alone: ``rank`` 0 of ``size`` 1. Others have as many rows as it in each call."""

    rank, size = 0, 1

    def own_seed(self, seed: int) -> int:
        """Return the seed of what only this process plays: a run's own on rank 0."""
        return seed_of(seed, self.rank)

    def wait(self) -> None:
        """Wait until all processes are here."""

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""

    @contextmanager
    def changing(self, tensors: Iterable[Tensor], *, step: bool = False) -> Iterator[None]:  # noqa: ARG002
        """Hold these tensors of the training while the block changes them, by a step or otherwise."""
        yield

    def moments(self, rows: Tensor) -> tuple[int, Tensor, Tensor]:
        """Return number, mean and variance of all processes' rows (R, …), column by column."""
        variance, mean = torch.var_mean(rows, 0, correction=0)
        return len(rows), mean, variance

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes in order of rank, on rank 0; nothing on the others."""
        return [value]

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds spent with the others since the last call, by timer."""
        return {}


ALONE = Group()


class DisconnectedError(Exception):
    """Another process is gone or does not answer.

    ``behind``: the numbers of those that this one waits for, if known; ``kind``: as in "actor 1".
    """

    def __init__(self, kind: str = "actor", behind: Sequence[int] = ()) -> None:
        super().__init__("another process of the run is gone")
        self.kind, self.behind = kind, list(behind)


def backend_of(gpus: Sequence[str]) -> str:
    """Return how processes are connected, by the name of each one's GPU, empty for none.

    NCCL refuses two processes on one GPU.
    """
    return "cpu:gloo,cuda:nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"


@dataclass(frozen=True)
class Member:
    """One of the processes of a group, with its ``rank``. ``kind``: of all of them, as in "actor 1".

    ``gpu``: a name of this process's, equal in another process only if that has the same one.
    """

    rank: int
    size: int
    gpu: str = ""
    kind: str = "actor"


class ConnectedGroup(Group):
    """Several processes, connected by ``torch.distributed``: Gloo, or for tensors on GPUs of their own NCCL.

    Rank 0 waits ``patience`` seconds at most for the others, which wait for its orders as long as it lives.
    ``alive`` raises when it is known that one of them is gone. All raise :class:`DisconnectedError`. The
    order of sums is fixed, so that equal values in have equal means out, bit for bit.
    """

    def __init__(
        self, own: Member, store: dist.Store, patience: float, alive: Callable[[], None] = lambda: None
    ) -> None:
        self.rank, self.size, self._kind = own.rank, own.size, own.kind
        self._store, self._patience, self._alive, self._calls = store, patience, alive, 0
        self._seconds = {ALL_REDUCE_TIMER: 0.0, WAITING_TIMER: 0.0}
        # Rank 0 is the first that gives up, so it knows for whom it waited.
        longest = patience + _SLACK_S if self.rank == 0 else 2 * (patience + _SLACK_S)
        store.set(f"gpu/{self.rank}", own.gpu)
        with self._connected():
            self._all_there()
            dist.init_process_group(
                self._backend(),
                store=dist.PrefixStore("group", store),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=longest),
            )

    def wait(self) -> None:
        with self._connected(WAITING_TIMER):
            self._finish(dist.all_reduce(torch.zeros(1), async_op=True))

    def average(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._connected(ALL_REDUCE_TIMER):
            self._finish(dist.all_reduce(flat, async_op=True))
        flat /= self.size
        for tensor, mean in zip(tensors, flat.split([one.numel() for one in tensors]), strict=True):
            tensor.copy_(mean.view(tensor.shape))

    def moments(self, rows: Tensor) -> tuple[int, Tensor, Tensor]:
        count, own_mean, variance = super().moments(rows)
        mean = own_mean.clone()
        self.average([mean])
        variance += (own_mean - mean).square()
        self.average([variance])
        return count * self.size, mean, variance

    def gather(self, value: Any) -> list[Any]:
        with self._connected(WAITING_TIMER):
            if self.rank:
                self._store.queue_push(f"from/{self.rank}", packed(value))
                return []
            return [value, *(self._unpacked(f"from/{rank}") for rank in range(1, self.size))]

    def give(self, values: Sequence[Any]) -> None:
        """Give each other process its value, in order of rank."""
        with self._connected():
            for rank, value in enumerate(values, start=1):
                self._store.queue_push(f"to/{rank}", packed(value))

    def take(self) -> Any:
        """Return the value that rank 0 gives this process; wait for it as long as it takes."""
        with self._connected():
            return self._unpacked(f"to/{self.rank}")

    def take_seconds(self) -> dict[str, float]:
        taken, self._seconds = self._seconds, dict.fromkeys(self._seconds, 0.0)
        return taken

    def _all_there(self) -> None:
        """Wait until all processes have begun: to connect, they need each other at the same time."""
        if self.rank == 0:
            for rank in range(1, self.size):
                self._await(f"calls/{rank}")

    def _backend(self) -> str:
        """Return the backend, which must be the same in all processes."""
        if self.rank == 0:
            gpus = [self._store.get(f"gpu/{rank}").decode() for rank in range(self.size)]
            self._store.set("backend", backend_of(gpus))
        return str(self._store.get("backend").decode())

    def _await(self, key: str) -> None:
        """Wait on rank 0 until another process has written the key."""
        began, pause, looks = time.monotonic(), _SHORTEST_PAUSE_S, 1
        while not self._store.check([key]):
            waited = time.monotonic() - began
            if waited > looks * _LOOK.total_seconds():
                self._alive()
                looks += 1
            if waited > self._patience:
                raise DisconnectedError(self._kind, self._behind())
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _finish(self, work: dist.Work) -> None:
        """Wait until a collective has ended."""
        if self.rank:
            work.wait()
            return
        deadline = time.monotonic() + self._patience
        while True:
            try:
                work.wait(_LOOK)
            except RuntimeError:
                if work.is_completed():
                    raise
                self._alive()
                if time.monotonic() > deadline:
                    raise DisconnectedError(self._kind, self._behind()) from None
            else:
                return

    def _behind(self) -> list[int]:
        """Return the ranks that made fewer calls than this one."""
        counts = {
            rank: int(self._store.get(key)) if self._store.check([key := f"calls/{rank}"]) else -1
            for rank in range(1, self.size)
        }
        return [rank for rank, count in counts.items() if count < self._calls]

    def _unpacked(self, queue: str) -> Any:
        if self.rank == 0:
            self._await(queue)
        return unpacked(self._store.queue_pop(queue))

    @contextmanager
    def _connected(self, timer: str | None = None) -> Iterator[None]:
        self._calls += 1
        self._store.set(f"calls/{self.rank}", str(self._calls))
        began = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise DisconnectedError from error
        if timer is not None:
            self._seconds[timer] += time.perf_counter() - began


def packed(value: Any) -> bytes:
    """Return plain values and tensors as bytes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpacked(content: bytes) -> Any:
    """Invert :func:`packed`."""
    return torch.load(io.BytesIO(content), weights_only=True)

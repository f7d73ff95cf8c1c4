"""srun or torchrun, which started one process of ``python -m jobs.train`` on each of several nodes."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.training.context import INTERRUPTED_EXIT
from jobs.worker.nodes.agent import attend_worker
from jobs.worker.nodes.agent_connections import ADDRESS_FILE_VARIABLE
from jobs.worker.scheduler_job import SchedulerJob
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.core.errors import OrchestrateError

# Seconds until the first node's process must have begun.
_PATIENCE_S = 300.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Launcher:
    """One start: the number of this ``node`` among ``nodes``, and a ``name`` that only this start has."""

    node: int
    nodes: int
    name: str

    @classmethod
    def current(cls) -> Launcher | None:
        """Return the launcher of this process; None on one node.

        Raises :class:`OrchestrateError` if it started several processes on a node.
        """
        if "TORCHELASTIC_RUN_ID" in os.environ:
            numbers = ("GROUP_RANK", "GROUP_WORLD_SIZE", "WORLD_SIZE")
            node, nodes, processes = (int(os.environ[name]) for name in numbers)
            name, hint = "", "torchrun --nproc-per-node 1"
        elif step := SchedulerJob.current().step:
            node, nodes, processes, name = step
            hint = "one task for each node"
        else:
            return None
        if processes != nodes:
            raise OrchestrateError(
                f"found {processes} processes on {nodes} nodes, expected one on each",
                hint=f"{hint}; the processes of a run are a key of its own, such as actors=4",
            )
        return cls(node, nodes, name or _agreed_name(node)) if nodes > 1 else None

    @contextmanager
    def as_first_node(self, folder: Path) -> Iterator[None]:
        """Let a worker here tell the other nodes where it listens, by a file in a folder that all see."""
        file = self._file(folder)
        file.unlink(missing_ok=True)
        os.environ[ADDRESS_FILE_VARIABLE] = str(file)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def attend(self, folder: Path) -> int:
        """Start ranks of runs on this node until the worker on the first one has left; return the exit code.

        Raises :class:`OrchestrateError` if no worker begins.
        """
        file, deadline = self._file(folder), time.monotonic() + _PATIENCE_S
        while not file.exists():
            if time.monotonic() > deadline:
                raise OrchestrateError(
                    f"node {self.node}: no worker on the first node within {_PATIENCE_S:.0f} s ({file})",
                    hint="see its output; all nodes must see the same results folder",
                )
            if signal.sigtimedwait(STOP_SIGNALS, _POLL_S) is not None:
                return INTERRUPTED_EXIT
        return attend_worker(file.read_text(encoding="ascii"))

    def _file(self, folder: Path) -> Path:
        return folder / f".agents-{self.name}"


def _agreed_name(node: int) -> str:
    """Return a name that the first node makes; torchrun's own store is open to all, so it is no secret."""
    from torch.distributed import TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), wait_for_workers=False)
    if node == 0:
        store.set("orchestrate/name", secrets.token_hex(8))
    return store.get("orchestrate/name").decode("ascii")

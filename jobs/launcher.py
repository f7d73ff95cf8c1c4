"""srun or torchrun, which started one process of ``python -m jobs.train`` on each of several nodes."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.node import attend_worker
from jobs.worker.agents import ADDRESS_FILE_VARIABLE
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
        given = os.environ
        if "TORCHELASTIC_RUN_ID" in given:
            node, nodes, processes = _numbers("GROUP_RANK", "GROUP_WORLD_SIZE", "WORLD_SIZE")
            hint = "torchrun --nproc-per-node 1"
        elif "SLURM_STEP_NUM_NODES" in given:
            node, nodes, processes = _numbers("SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS")
            hint = "srun --ntasks-per-node=1"
        else:
            return None
        if processes != nodes:
            raise OrchestrateError(
                f"found {processes} processes on {nodes} nodes, expected one on each",
                hint=f"{hint}; the processes of a run are a key of its own, such as actors=4",
            )
        if nodes == 1:
            return None
        if "TORCHELASTIC_RUN_ID" in given:
            return cls(node, nodes, _agreed_name(node))
        parts = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        return cls(node, nodes, "-".join(given.get(part, "0") for part in parts))

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
            time.sleep(_POLL_S)
        return attend_worker(file.read_text(encoding="ascii"))

    def _file(self, folder: Path) -> Path:
        return folder / f".agents-{self.name}"


def _numbers(*names: str) -> list[int]:
    return [int(os.environ[name]) for name in names]


def _agreed_name(node: int) -> str:
    """Return a name that the first node makes; torchrun's own store is open to all, so it is no secret."""
    from torch.distributed import TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), wait_for_workers=False)
    if node == 0:
        store.set("orchestrate/name", secrets.token_hex(8))
    return store.get("orchestrate/name").decode("ascii")

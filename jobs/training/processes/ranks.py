"""The processes of a run on the other nodes of its job, as the run's own process, rank 0, sees them.

An agent on each of these nodes (:mod:`jobs.worker.nodes.agent`) starts one program per attempt. When the
connection ends, the agent kills the program and all that it started, so that no process outlives rank 0.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobs.training.processes.connection import Connection
from jobs.training.processes.log_reason import FROM_OUTSIDE, UNKNOWN, FailureReason, reason_of
from orchestrator.core.types import Reason

# Seconds between heartbeats in both directions, and how many may be missing. Counted in a process's own
# waits, so that one that was stopped for a while does not take the other for lost when it continues.
BEAT_S, MOST_SILENT = 1.0, 15
# In the variables of a rank: a folder of its own, which is removed when it ends.
SCRATCH = "{scratch}"

# Lines of a rank's output in which the reason of its failure is looked for.
_LINES_KEPT = 1000
# A failure of one rank makes others fail; the cause may be known only after so many seconds.
_CAUSE_TAKES_S = 3.0
_POLL_S = 0.02


class RankError(Exception):
    """A rank ended before the run did. ``reason``: ``KILLED`` if for no fault of the program."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class Rank:
    """A rank on another node. ``code``: its exit code; ``memory_mb``: its peak of memory.

    ``last_lines``: of its output; ``why``: the reason of its failure that they give.
    """

    number: int
    host: str
    connection: Connection
    code: int | None = None
    out_of_memory: bool = False
    lost: bool = False
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    why: FailureReason = UNKNOWN
    silent: int = 0
    memory_mb: float = 0.0

    def listen(self) -> None:
        """Read the messages of the rank's agent and print the rank's output."""
        for message in self.connection.receive():
            self.silent = 0
            self.memory_mb = message.get("memory_mb", self.memory_mb)
            if output := message.get("output"):
                self.last_lines.extend(output)
                with suppress(OSError):  # a full disk costs the log, not the run
                    sys.stdout.write("".join(f"[rank {self.number}] {line}\n" for line in output))
            if "code" in message:
                self.why = reason_of(self.last_lines)
                self.code, self.out_of_memory = message["code"], message["out_of_memory"]
        if not self.ended:
            self.lost = self.connection.closed or self.silent > MOST_SILENT

    @property
    def ended(self) -> bool:
        """Whether its program has ended, or nothing can be known of it."""
        return self.lost or self.code is not None

    @property
    def is_cause(self) -> bool:
        """Whether its end follows from no other rank's, nor from a signal that the others get as well."""
        if self.lost or not self.code:
            return self.lost
        return self.out_of_memory or -signal.SIGKILL in (self.code, self.why.code)

    @property
    def error(self) -> RankError | None:
        """Why the run cannot go on without it; ``None`` while it works and once it is done."""
        where = f"rank {self.number} on {self.host}"
        if self.lost:
            return RankError(f"{where} was lost: no connection to its node", Reason.KILLED)
        if not self.code:
            return None
        if self.out_of_memory:
            return RankError(f"{where} was killed for want of memory", Reason.OUT_OF_MEMORY)
        if -self.code in FROM_OUTSIDE:
            return RankError(f"{where} was killed by {signal.Signals(-self.code).name}", Reason.KILLED)
        if self.why.killed:
            return RankError(f"{where}: {self.why.killed}", Reason.KILLED)
        said = f": {self.why.text}" if self.why.text else ""
        return RankError(f"{where} {how_it_ended(self.why.code or self.code)}{said}", Reason.CODE_ERROR)


class Ranks:
    """The ranks of one attempt on other nodes, in the run's own process; none if it has one node.

    ``size``: the number of nodes, this one included. Output of the others goes to this process's own, with
    the rank in front of each line.
    """

    def __init__(self, members: Sequence[tuple[str, Connection]] = ()) -> None:
        self._ranks = [Rank(number, *member) for number, member in enumerate(members, start=1)]
        self._master: dict[str, str] = {}
        self._over = threading.Event()
        self._attending = threading.Thread(target=self._attend, name="ranks", daemon=True)

    @property
    def size(self) -> int:
        return 1 + len(self._ranks)

    @property
    def memory_mb(self) -> list[float]:
        """The peak of memory on each other node so far, in MiB, in order of rank."""
        return [rank.memory_mb for rank in self._ranks]

    def variables(self, rank: int = 0) -> dict[str, str]:
        """Return the variables by which ranks find each other, in torchrun's names; none on one node."""
        if not self._ranks:
            return {}
        if not self._master:
            address = self._ranks[0].connection.own_address
            with socket.create_server((address, 0)) as server:
                self._master = {"MASTER_ADDR": address, "MASTER_PORT": str(server.getsockname()[1])}
        numbers = {"RANK": rank, "WORLD_SIZE": self.size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        numbers |= {"NODE_RANK": rank, "NNODES": self.size}
        return {**self._master, **{name: str(number) for name, number in numbers.items()}}

    def start(self, argv: Sequence[str], variables: Mapping[str, str], folder: Path | None = None) -> None:
        """Start this program as every other rank, in ``folder``, by default the current one.

        ``variables``: beside the agent's and the rank's own.
        """
        start = os.fspath(folder or os.getcwd())
        for rank in self._ranks:
            own = {**variables, **self.variables(rank.number)}
            rank.connection.send({"start": list(argv), "variables": own, "folder": start})
        if self._ranks:
            self._attending.start()

    def signal(self, number: int) -> None:
        """Send a signal to the programs."""
        for rank in self._ranks:
            rank.connection.send({"signal": number})

    @property
    def failed(self) -> bool:
        """Whether a rank is lost or has failed."""
        return any(rank.error for rank in self._ranks)

    @property
    def cause(self) -> RankError | None:
        """The error of a rank that is lost or was killed, of which those of others follow."""
        return next((rank.error for rank in self._ranks if rank.is_cause), None)

    def error(self, *, patience_s: float = _CAUSE_TAKES_S) -> RankError | None:
        """Return the cause of the ranks' failure, if they fail; await it for a moment.

        A rank that is lost or was killed is the cause of errors in the others.
        """
        deadline = time.monotonic() + patience_s
        while self._ranks and time.monotonic() < deadline:
            if cause := self.cause:
                return cause
            time.sleep(_POLL_S)
        return next((error for rank in self._ranks if (error := rank.error)), None)

    def wait(self, seconds: float) -> None:
        """Wait until all have ended, at most so long."""
        deadline = time.monotonic() + seconds
        while not all(rank.ended for rank in self._ranks) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End what is left of the ranks, with all that they started."""
        self._over.set()
        if self._attending.is_alive():
            self._attending.join()
        for rank in self._ranks:
            rank.connection.hang_up()

    def _attend(self) -> None:
        """Read the agents' messages and send signs of life, until :meth:`close`."""
        beat_at = 0.0
        try:
            while not self._over.is_set():
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + BEAT_S
                    for rank in self._ranks:
                        rank.connection.send({})
                        rank.silent += 1
                there = [rank for rank in self._ranks if not rank.connection.closed]
                select.select([rank.connection for rank in there], [], [], BEAT_S / 4)
                for rank in there:
                    rank.listen()
        finally:  # what is not attended is lost
            for rank in self._ranks:
                rank.lost |= not rank.ended


def how_it_ended(code: int) -> str:
    """Describe the exit code of a program that failed: negative for a signal."""
    return f"crashed with {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"

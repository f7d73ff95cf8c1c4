"""``python -P -m jobs.worker.nodes.agent``: on another node of a job, start the ranks of its runs there.

The worker, on the first node, is found by ``ORCHESTRATE_WORKER`` (``HOST:PORT:SECRET``). For each attempt of
a run the worker's side sends the program; it is ended with all that it started when the connection ends. The
agent leaves when the worker has left.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from jobs.training.processes.connection import Connection, greet
from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import adopt_orphans, die_with_parent, end_descendants
from jobs.training.processes.ranks import BEAT_S, MOST_SILENT, SCRATCH
from jobs.training.processes.run_memory import RunMemory
from jobs.worker.runs.keeper import keep
from jobs.worker.scheduler_job import SchedulerJob
from jobs.worker.signals import STOP_SIGNALS, grace_seconds

_VARIABLE = "ORCHESTRATE_WORKER"
_POLL_S = 0.05
# Seconds: to connect, to be greeted, to try again, and for a killed rank's keeper to leave.
# The worker answers no greeting while it loads a trainer.
_CONNECT_S, _GREET_S, _PATIENCE_S, _KEEPER_S = 5.0, 180.0, 300.0, 15.0
_CANNOT_EXECUTE = 127
# Bytes of output at a time; more than a pipe holds.
_MOST_OUTPUT = 1 << 20


class _Worker:
    """The worker's address, as several names of its node until one was the right one."""

    def __init__(self, address: str) -> None:
        host, port, self._secret = address.rsplit(":", 2)
        self._port, self._met = int(port), False
        known = SchedulerJob.current().first_node, os.environ.get("MASTER_ADDR")
        self._hosts = [*filter(None, known), host]

    def connect(self) -> Connection | None:
        """Return a connection to the worker; ``None`` if it has left, or does not answer."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for host in self._hosts:
                try:
                    peer = socket.create_connection((host, self._port), timeout=_CONNECT_S)
                except ConnectionRefusedError:
                    if self._met:
                        return None
                except OSError:
                    continue
                else:
                    found = greet(peer, self._secret, socket.gethostname(), _GREET_S)
                    if found is not None:
                        self._met, self._hosts = True, [host]
                        return found
            time.sleep(_POLL_S)
        return None


class _Rank:
    """The program of one attempt on this node, below a keeper of its own."""

    def __init__(self, order: Mapping[str, Any], scratch: str) -> None:
        self._memory, self._rest = RunMemory(), b""
        self._output, writing = os.pipe2(os.O_CLOEXEC)
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_NONBLOCK)
        variables = {name: text.replace(SCRATCH, scratch) for name, text in order["variables"].items()}
        agent = os.getpid()
        self.keeper = os.fork()
        if self.keeper == 0:
            become = partial(_become, order, variables, writing)
            keep(agent, self._memory, Life(), become, grace=grace_seconds(signal.SIGTERM))
        os.close(writing)
        self.code: int | None = None

    def fileno(self) -> int:
        """Return the descriptor of the output, for ``select``."""
        return self._output

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.keeper, number)  # not reaped yet, so the number is still its own

    def reap(self) -> bool:
        """Whether the program and all that it started have just ended."""
        if self.code is not None:
            return False
        pid, status = os.waitpid(self.keeper, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    @property
    def out_of_memory(self) -> bool:
        return self._memory.killed

    @property
    def memory_mb(self) -> float:
        return self._memory.measured_mb

    def lines(self) -> list[str]:
        """Return new lines of output; the last one, whole or not, once the program has ended."""
        with suppress(BlockingIOError):
            self._rest += os.read(self._output, _MOST_OUTPUT)
        *lines, self._rest = self._rest.split(b"\n")
        if (self.code is not None and self._rest) or len(self._rest) > _MOST_OUTPUT:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> None:
        """Kill the program and all that it started."""
        self.signal(signal.SIGHUP)  # to a keeper: its parent died
        deadline = time.monotonic() + _KEEPER_S
        while self.code is None and not self.reap() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        end_descendants()
        os.close(self._output)


def _become(order: Mapping[str, Any], variables: Mapping[str, str], output: int, parent: int) -> NoReturn:
    """Be the program from now on."""
    argv = order["start"]
    try:
        os.setsid()
        die_with_parent(parent)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        # The first two are ignored by Python; the last, ignored, marks what a shell of the program's started.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(order["folder"])
        os.execvpe(argv[0], argv, {**os.environ, **variables})  # noqa: S606 (no shell)
    except OSError as error:
        os.write(2, f"cannot start {argv[0]!r} here: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_EXECUTE)


def _attend(connection: Connection) -> None:
    """Wait for an attempt and take part in it until the connection ends."""
    order = connection.wait_for_message()
    if order is None or "start" not in order:
        return
    with tempfile.TemporaryDirectory(prefix="orchestrate-rank-") as scratch:
        rank = _Rank(order, scratch)
        try:
            _work(rank, connection)
        finally:
            rank.end()


def _work(rank: _Rank, connection: Connection) -> None:
    beat_at, silent = 0.0, 0
    while not connection.closed and silent <= MOST_SILENT:
        if time.monotonic() >= beat_at:
            beat_at, silent = time.monotonic() + BEAT_S, silent + 1
            connection.send({"memory_mb": rank.memory_mb})
        select.select([connection], [], [], _POLL_S)
        for message in connection.receive():
            silent = 0
            if "signal" in message:
                rank.signal(message["signal"])
        ended = rank.reap()
        if lines := rank.lines():
            connection.send({"output": lines})
        if ended:
            ended_as = {"code": rank.code, "out_of_memory": rank.out_of_memory}
            connection.send({**ended_as, "memory_mb": rank.memory_mb})


def attend_worker(address: str) -> int:
    """Take part in the worker's attempts until it has left; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP_SIGNALS, signal.SIGHUP})  # the worker decides
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    adopt_orphans()
    worker = _Worker(address)
    connection = worker.connect()
    if connection is None:
        sys.stderr.write(f"{socket.gethostname()}: found no worker on the job's first node\n")
        return 1
    while connection is not None:
        _attend(connection)
        connection.close()
        connection = worker.connect()
    return 0


if __name__ == "__main__":
    sys.exit(attend_worker(os.environ.pop(_VARIABLE)))

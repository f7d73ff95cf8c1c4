"""The agents on the other nodes of a job, as its worker sees them.

The worker listens; each agent (:mod:`jobs.worker.nodes.agent`) connects, waits for an attempt, starts its
rank there, and connects anew when the attempt is over. The run's own process takes the connections with it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from pathlib import Path

from jobs.training.processes.connection import Connection, Greeting
from orchestrator.core.errors import OrchestrateError

# Set by the job's script: the file into which the worker writes where it listens, as HOST:PORT:SECRET; or,
# where agents cannot see such a file, PORT:SECRET to take.
ADDRESS_FILE_VARIABLE, GIVEN_VARIABLE = "ORCHESTRATE_AGENTS", "ORCHESTRATE_AGENTS_AT"

# Connections at a time, beside one for each agent, of which nothing is known yet.
_SPARE = 16
# Seconds until all agents are there: at first, and after an attempt.
_START_PATIENCE_S, _PATIENCE_S = 300.0, 20.0


class Agents:
    """The agents of so many ``others``. ``complete``: all wait for an attempt."""

    def __init__(self, others: int) -> None:
        self._others, self._most_strangers = others, others + _SPARE
        port, _, given = os.environ.get(GIVEN_VARIABLE, "0:").partition(":")
        self._secret = given or secrets.token_hex(32)
        self._greetings: list[Greeting] = []
        self._there: list[tuple[str, Connection]] = []
        self._since, self._patience = time.monotonic(), _START_PATIENCE_S
        self.began = False
        self._listener: socket.socket | None = None
        self._failures: Path | None = None
        if others:
            file = None if given else _address_file()
            self._listener = socket.create_server(("", int(port)), backlog=self._most_strangers)
            self._listener.setblocking(False)
            if file is not None:
                self._failures = file.with_name(f"{file.name}.failed")
                _publish(file, f"{socket.gethostname()}:{self._listener.getsockname()[1]}:{self._secret}")

    def attend(self) -> None:
        """Take new connections, and drop those that ended."""
        if self._listener is None:
            return
        for _ in range(self._most_strangers):
            try:
                self._greetings.append(Greeting(Connection(self._listener.accept()[0]), self._secret))
            except OSError:  # none is left, gone already, or no descriptor is free
                break
        greetings, self._greetings = self._greetings, []
        for greeting in greetings:
            if greeting.accepted():
                self._there.append((greeting.host, greeting.connection))
            elif greeting.connection.closed:
                greeting.connection.close()
            else:
                self._greetings.append(greeting)
        # An agent proves itself at once, and tries again: who is silent for longest is none.
        while len(self._greetings) > self._most_strangers:
            self._greetings.pop(0).connection.hang_up()
        there, self._there = self._there, []
        for host, connection in there:
            if connection.ended():
                connection.close()
            else:
                self._there.append((host, connection))

    @property
    def complete(self) -> bool:
        return len(self._there) >= self._others

    @property
    def missing(self) -> str | None:
        """Which agents did not come in time; ``None`` while there is hope."""
        if self.complete:
            return None
        if failed := self._failed():
            return f"no agent could start on {failed}; the job's output says more"
        if time.monotonic() - self._since < self._patience:
            return None
        there = ", ".join(sorted(host for host, _ in self._there)) or "none"
        return f"no agent answers on {self._others - len(self._there)} of the job's nodes (there: {there})"

    def _failed(self) -> str:
        """Return nodes on which the agent left with a failure, each with its exit code."""
        if self._failures is None:
            return ""
        try:
            return ", ".join(self._failures.read_text(errors="replace").split("\n")[:-1])
        except OSError:
            return ""

    def take(self) -> tuple[tuple[str, Connection], ...]:
        """Return the connections for an attempt, with their nodes' names and in the order of these."""
        taken = tuple(sorted(self._there, key=lambda member: member[0])[: self._others])
        self._there = [member for member in self._there if member not in taken]
        self.began = True
        return taken

    def wait_again(self) -> None:
        """Expect the agents anew: the attempt is over."""
        self._since, self._patience = time.monotonic(), _PATIENCE_S

    def close(self) -> None:
        """Let the agents leave."""
        for connection in (*(end for _, end in self._there), *(one.connection for one in self._greetings)):
            connection.close()
        if self._listener is not None:
            self._listener.close()


def _address_file() -> Path:
    where = os.environ.get(ADDRESS_FILE_VARIABLE)
    if where is None:
        raise OrchestrateError(
            "a job on several nodes needs an agent on each of them, and nothing here starts one",
            hint="submit it to a scheduler: orchestrate sweep --on PROFILE",
        )
    return Path(where)


def _publish(file: Path, address: str) -> None:
    """Write the file whole, for this user alone."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as text:
        text.write(address)
    draft.rename(file)

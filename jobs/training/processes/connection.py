"""A connection between the processes of a run on several nodes: JSON messages, one a line, over TCP.

Both ends prove that they know a secret, in short lines of text, before any message is parsed: no other user's
process takes part.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

# Longer lines are not ours.
_LONGEST_LINE = 16 << 20
_LONGEST_GREETING = 1024
# Seconds in which the other end must have proved that it knows the secret.
_GREETING_S = 10.0
_POLL_S = 0.02
# A send that takes longer has no reader.
_SEND_S = 10
# Probes for a peer whose machine is gone, in seconds: of silence, between probes; and their number.
_KEEPALIVE = (socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)


class Connection:
    """One end. Reading never blocks; ``closed`` once the other end is gone. Threads may send at a time."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket, self._buffer, self._sending = peer, b"", threading.Lock()
        self._waiting: deque[dict[str, Any]] = deque()
        self.closed = False
        peer.setblocking(True)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            peer.setsockopt(socket.IPPROTO_TCP, option, value)

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._socket.fileno()

    @property
    def own_address(self) -> str:
        """The address of this end, which the other end reached."""
        return str(self._socket.getsockname()[0])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; nothing happens if the other end is gone, which the next reading notices."""
        self._send(json.dumps(message).encode())

    def _send(self, line: bytes) -> None:
        with self._sending, suppress(OSError):
            try:
                self._socket.sendall(line + b"\n")
            except OSError:
                self._socket.shutdown(socket.SHUT_WR)  # nothing may follow a part of a message

    def greet(self, *words: str) -> None:
        """Send a line of a greeting."""
        self._send(" ".join(words).encode())

    def greeting(self, words: int) -> list[str] | None:
        """Return a line of the other end's greeting, of so many words; ``None`` before it is whole.

        Reads no byte beyond it. Anything else closes the connection.
        """
        try:
            begun = self._socket.recv(_LONGEST_GREETING, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            begun = b""
        line, end, _ = begun.partition(b"\n")
        found = line.decode(errors="replace").split(" ")
        if end and len(found) == words:
            self._socket.recv(len(line) + 1)
            return found
        self.closed = bool(end) or not begun or len(begun) == _LONGEST_GREETING
        return None

    def wait_for_greeting(self, words: int, seconds: float) -> list[str]:
        """Return a line as :meth:`greeting`; words without text if it does not come in time."""
        deadline = time.monotonic() + seconds
        while not self.closed and time.monotonic() < deadline:
            if (found := self.greeting(words)) is not None:
                return found
            time.sleep(_POLL_S)
        return [""] * words

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that have come."""
        self._read()
        while self._waiting:
            yield self._waiting.popleft()

    def wait_for_message(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` if the connection ends first."""
        while not self._waiting and not self.closed:
            select.select([self], [], [])
            self._read()
        return self._waiting.popleft() if self._waiting else None

    def _read(self) -> None:
        while not self.closed:
            try:
                chunk = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            self.closed = not chunk or len(self._buffer) > _LONGEST_LINE
            try:
                self._waiting += [dict(json.loads(line)) for line in lines]
            except (ValueError, TypeError, RecursionError):
                self.closed = True

    def ended(self) -> bool:
        """Whether the other end is gone; messages stay to be received."""
        self._read()
        return self.closed

    def close(self) -> None:
        """Close this copy of the end; those of other processes stay open."""
        self.closed = True
        self._socket.close()

    def hang_up(self) -> None:
        """End the connection for both ends, also where other processes hold a copy."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()


class Greeting:
    """The listening end of a new connection, until the other end has proved that it knows the secret."""

    def __init__(self, connection: Connection, secret: str) -> None:
        self.connection, self._secret, self._nonce = connection, secret, secrets.token_hex(16)
        self._until = time.monotonic() + _GREETING_S
        self.host = ""
        connection.greet(self._nonce)

    def accepted(self) -> bool:
        """Whether the proof has come and is right. A wrong or late one closes the connection."""
        if (words := self.connection.greeting(3)) is not None:
            proof, nonce, host = words
            if _equal(proof, _proof(self._secret, "agent", self._nonce, nonce, host)):
                self.host = host
                self.connection.greet(_proof(self._secret, "worker", nonce, self._nonce))
                return not self.connection.closed
            self.connection.hang_up()
        elif time.monotonic() > self._until:
            self.connection.hang_up()
        return False


def greet(peer: socket.socket, secret: str, host: str, patience_s: float) -> Connection | None:
    """Prove to the listening end that this one knows the secret; return ``None`` if that end does not."""
    connection, nonce = Connection(peer), secrets.token_hex(16)
    (theirs,) = connection.wait_for_greeting(1, patience_s)
    connection.greet(_proof(secret, "agent", theirs, nonce, host), nonce, host)
    (answer,) = connection.wait_for_greeting(1, patience_s)
    if _equal(answer, _proof(secret, "worker", nonce, theirs)):
        return connection
    connection.hang_up()
    return None


def _proof(secret: str, *said: str) -> str:
    return hmac.new(secret.encode(), "\n".join(said).encode(), "sha256").hexdigest()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())

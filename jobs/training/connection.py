"""A connection between the processes of a run on several nodes: JSON messages, one a line, over TCP.

Both ends prove that they know a secret before anything else, so that no other user's process takes part.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

# Longer lines are not ours.
_LONGEST_LINE = 16 << 20
_LONGEST_GREETING = 4096
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
        with self._sending, suppress(OSError):
            try:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._socket.shutdown(socket.SHUT_WR)  # nothing may follow a part of a message

    def receive(self, longest: int = _LONGEST_LINE) -> Iterator[dict[str, Any]]:
        """Yield the messages that have come."""
        self._read(longest)
        while self._waiting:
            yield self._waiting.popleft()

    def wait_for_message(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next message; ``None`` if the connection ends first, or if none comes in time."""
        while not self._waiting and not self.closed:
            if not select.select([self], [], [], seconds)[0]:
                break
            self._read(_LONGEST_LINE)
        return self._waiting.popleft() if self._waiting else None

    def _read(self, longest: int) -> None:
        while not self.closed:
            try:
                chunk = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            self.closed = not chunk or len(self._buffer) > longest
            try:
                self._waiting += [dict(json.loads(line)) for line in lines]
            except (ValueError, TypeError):
                self.closed = True

    def ended(self) -> bool:
        """Whether the other end is gone; messages stay to be received."""
        self._read(_LONGEST_LINE)
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
        self.host = ""
        connection.send({"nonce": self._nonce})

    def accepted(self) -> bool:
        """Whether the proof has come and is right. A wrong one closes the connection."""
        for message in self.connection.receive(_LONGEST_GREETING):
            nonce, host, proof = (str(message.get(name)) for name in ("nonce", "host", "proof"))
            if not _equal(proof, _proof(self._secret, "agent", self._nonce, nonce, host)):
                self.connection.hang_up()
                return False
            self.host = host
            self.connection.send({"proof": _proof(self._secret, "worker", nonce, self._nonce)})
            return not self.connection.closed
        return False


def greet(peer: socket.socket, secret: str, host: str, patience_s: float) -> Connection | None:
    """Prove to the listening end that this one knows the secret; return ``None`` if that end does not."""
    connection, nonce = Connection(peer), secrets.token_hex(16)
    theirs = str((connection.wait_for_message(patience_s) or {}).get("nonce"))
    proof = _proof(secret, "agent", theirs, nonce, host)
    connection.send({"nonce": nonce, "host": host, "proof": proof})
    answer = str((connection.wait_for_message(patience_s) or {}).get("proof"))
    if _equal(answer, _proof(secret, "worker", nonce, theirs)):
        return connection
    connection.hang_up()
    return None


def _proof(secret: str, *said: str) -> str:
    return hmac.new(secret.encode(), "\n".join(said).encode(), "sha256").hexdigest()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())

"""Forward a local port to a machine behind ssh, for as long as this process lives.

ssh's own forwards belong to the shared connection and outlive this process. Here this process listens, and
each connection gets an ssh of its own over the shared connection, as its stdin and stdout.
"""

from __future__ import annotations

import socket
import subprocess
import threading

from orchestrator.core.machine.ssh import Host

# TensorBoard's usual port; another one if it is taken.
_USUAL_PORT = 6006
# Most connections at once; a browser opens six.
_MOST_CONNECTIONS = 64


class PortForward:
    """A local port that leads to a port there; while none is set, connections are closed at once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._remote_port: int | None = None
        self._ways: list[subprocess.Popen[bytes]] = []
        self._listener = _listener()
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        self._thread.start()

    def lead_to(self, remote_port: int | None) -> None:
        """Set the port there, ``None`` for none."""
        self._remote_port = remote_port

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the next connection
        self._listener.close()
        self._thread.join()
        for way in self._ways:
            way.terminate()
        for way in self._ways:
            way.wait()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._ways = [way for way in self._ways if way.poll() is None]
                if self._remote_port is not None and len(self._ways) < _MOST_CONNECTIONS:
                    self._ways.append(self._way(connection, self._remote_port))

    def _way(self, connection: socket.socket, remote_port: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._host.to_port(remote_port),
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            stderr=subprocess.DEVNULL,
        )


def _listener() -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", _USUAL_PORT))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))

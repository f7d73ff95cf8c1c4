"""Check whether a server is there, before a library tries for minutes and then fails."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE_S = 20.0


def unreachable(url: str) -> str:
    """Say why the server does not answer; empty if it does, or if a proxy decides."""
    if getproxies():
        return ""  # the proxy decides
    parts = urlsplit(url)
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), _PATIENCE_S).close()
    except OSError as error:
        return f"{parts.hostname} cannot be reached ({error.strerror or error})"
    return ""

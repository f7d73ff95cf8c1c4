"""Whether a server is there at all: asked before a library that would try for minutes, and then fail."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE_S = 20.0


def unreachable(url: str) -> str:
    """Why nobody answers there; empty if somebody does."""
    if getproxies():
        return ""  # who knows what it reaches
    parts = urlsplit(url)
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), _PATIENCE_S).close()
    except OSError as error:
        return f"{parts.hostname} cannot be reached ({error.strerror or error})"
    return ""

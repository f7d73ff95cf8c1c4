"""Errors by which a network file system reports that its server failed, or did not answer, for a moment."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# NFS, Lustre, SMB and file systems in user space. Programs also get some of them from other machines.
_OF_FILES = (errno.EIO, errno.ESTALE, errno.EREMOTEIO)
_OF_MACHINES = (
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.ESHUTDOWN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOLINK,
)
SERVER_ERRNOS = _OF_FILES + _OF_MACHINES
_WORDS = tuple(map(os.strerror, _OF_FILES))
# Seconds; the client of the file system has waited for the server before each error.
_PAUSES_S = (0.1, 1.0, 5.0)


def is_server_error(error: BaseException) -> bool:
    """Return whether any error, such as one of a library, is surely of a file's server."""
    if not isinstance(error, OSError):
        return False
    return error.errno in _OF_FILES or (error.errno in _OF_MACHINES and error.filename is not None)


def mentions_server_error(text: str) -> bool:
    """Return whether a library's or a program's message repeats such an error."""
    return any(words in text for words in _WORDS)


def persist(operation: Callable[[], T]) -> T:
    """Call an operation on files; after an error of their server again, with pauses. It has to bear that."""
    for pause in _PAUSES_S:
        try:
            return operation()
        except OSError as error:
            if error.errno not in SERVER_ERRNOS:
                raise
        time.sleep(pause)
    return operation()

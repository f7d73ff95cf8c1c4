"""Lock files against other commands, where the file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os
import warnings
from functools import cache
from pathlib import Path
from typing import IO, Any

# Answers of file systems without locks: NFS without its daemon, Lustre without `flock`, some in user space.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock(file: IO[Any], *, wait: bool = True) -> bool:
    """Lock an open file until it is closed; without ``wait`` return False if another process has the lock.

    On a file system without locks, warn and return True: not for what only a lock keeps safe.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        path = Path(file.name).resolve()
        _warn(next(one for one in (path, *path.parents) if os.path.ismount(one)), error.strerror)
    return True


@cache
def _warn(mount: Path, reason: str) -> None:
    """Warn, once for each file system."""
    said = f"the file system at {mount} has no locks ({reason}): run one command on it at a time"
    warnings.warn(said, RuntimeWarning, stacklevel=3)

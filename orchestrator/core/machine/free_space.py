"""Compare what is to be fetched with the free disk space."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.core.errors import StorageError
from orchestrator.core.formatting import amount

# Kept free: for the records of a sync, and for others.
_SPARE_BYTES, _SPARE_FILES = 16 << 20, 100
# Options that reduce what is fetched.
_LESS = "--sweep, --run, --only metrics,logs, --latest-checkpoint"


def no_space_error(folder: Path, size: int, files: int, what: str) -> StorageError | None:
    """Return an error with the figures if this does not fit; ``None`` if it does.

    ``folder`` need not exist yet. ``files``: new files and folders.
    """
    found = os.statvfs(_nearest(folder))
    free = found.f_bavail * found.f_frsize
    if size and size + min(_SPARE_BYTES, free // 100) > free:
        has = f"{amount(free)} free"
    elif found.f_files and files and files + _SPARE_FILES > found.f_favail:
        has = f"{found.f_favail} inodes free, of which {_SPARE_FILES} are kept free"
    else:
        return None
    need = f"{amount(size)} in {files} files and folders"
    return StorageError(
        f"{what} needs {need}, but {folder} has {has}: nothing of it was fetched",
        hint=f"free space, name another folder (orchestrate sync SOURCE DEST), or fetch less: {_LESS}",
    )


def on_one_disk(one: Path, other: Path) -> bool:
    """Return whether two folders, which need not exist yet, are on the same file system."""
    return _nearest(one).stat().st_dev == _nearest(other).stat().st_dev


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())

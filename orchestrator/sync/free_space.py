"""Check for free disk space before fetching."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import StorageError
from orchestrator.core.formatting import amount

# Kept free: for the records of a sync, and for others.
_SPARE_BYTES, _SPARE_FILES = 16 << 20, 100
# Options that reduce what is fetched.
_LESS = "--sweep, --run, --only metrics,logs, --latest-checkpoint"


@dataclass(frozen=True)
class FreeSpace:
    """Free space of a file system for this user. ``files``: inodes; ``None`` where they are not limited."""

    size: int
    files: int | None

    def holds_bytes(self, size: int) -> bool:
        """Return whether so many bytes fit."""
        return size == 0 or size + min(_SPARE_BYTES, self.size // 100) <= self.size

    def holds_files(self, files: int) -> bool:
        """Return whether so many files and folders fit."""
        return self.files is None or not files or files + _SPARE_FILES <= self.files


def free_space_in(folder: Path) -> FreeSpace:
    """Return the free space of the file system of a folder, which need not exist yet."""
    found = os.statvfs(_nearest(folder))
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def device_of(folder: Path) -> int:
    """Return the file system of a folder, which need not exist yet."""
    return _nearest(folder).stat().st_dev


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def no_space_error(folder: Path, size: int, files: int, what: str) -> StorageError | None:
    """Return an error with the figures if this does not fit; ``None`` if it does.

    ``files``: new files and folders.
    """
    room = free_space_in(folder)
    if not room.holds_bytes(size):
        free = f"{amount(room.size)} free"
    elif not room.holds_files(files):
        free = f"{room.files} inodes free, of which {_SPARE_FILES} are kept free"
    else:
        return None
    need = f"{amount(size)} in {files} files and folders"
    return StorageError(
        f"{what} needs {need}, but {folder} has {free}: nothing was fetched",
        hint=f"free space, name another folder (orchestrate sync SOURCE DEST), or fetch less: {_LESS}",
    )

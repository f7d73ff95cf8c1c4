"""Room for what is to come, seen to before it comes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import StorageError
from orchestrator.core.formatting import amount

# Left free beside what comes: for the records of a sync, and for others.
_SPARE_BYTES, _SPARE_FILES = 16 << 20, 100
# Options that make less come.
_LESS = "--sweep, --run, --only metrics,logs, --latest-checkpoint"


@dataclass(frozen=True)
class FreeSpace:
    """What a file system has left for this user. ``files``, and folders: ``None`` where it counts none."""

    size: int
    files: int | None

    def holds_bytes(self, size: int) -> bool:
        return size == 0 or size + min(_SPARE_BYTES, self.size // 100) <= self.size

    def holds_files(self, files: int) -> bool:
        return self.files is None or not files or files + _SPARE_FILES <= self.files


def room_in(folder: Path) -> FreeSpace:
    """Of the file system that the folder is on, or will be."""
    found = os.statvfs(_nearest(folder))
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def device_of(folder: Path) -> int:
    """The file system that the folder is on, or will be."""
    return _nearest(folder).stat().st_dev


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def lack_of_room(folder: Path, size: int, files: int, what: str) -> StorageError | None:
    """The error that says so with figures where so much does not fit; ``None`` where it does.

    ``files``: those and the folders that are new.
    """
    room = room_in(folder)
    if not room.holds_bytes(size):
        free = f"{amount(room.size)} free"
    elif not room.holds_files(files):
        free = f"{room.files} inodes free, of which {_SPARE_FILES} are to stay"
    else:
        return None
    need = f"{amount(size)} in {files} files and folders"
    return StorageError(
        f"{what} needs {need}, and {folder} has {free}: nothing of it was begun",
        hint=f"free space, name another folder (orchestrate sync SOURCE DEST), or bring less: {_LESS}",
    )

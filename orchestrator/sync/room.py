"""Room for what is to come, seen to before it comes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StorageError
from orchestrator.shown import amount

# Left free beside what comes: for the records of a sync, and for others.
_SPARE_BYTES, _SPARE_FILES = 16 << 20, 100
# Options that make less come.
_LESS = "--sweep, --run, --only metrics,logs, --latest-checkpoint"


@dataclass(frozen=True)
class Room:
    """What a file system has left for this user. ``files`` is ``None`` where it counts none."""

    size: int
    files: int | None

    def holds(self, size: int, files: int) -> bool:
        enough = size == 0 or size + min(_SPARE_BYTES, self.size // 100) <= self.size
        return enough and (self.files is None or not files or files + _SPARE_FILES <= self.files)


def room_in(folder: Path) -> Room:
    """Of the file system that the folder is on, or will be."""
    near = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    found = os.statvfs(near)
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def lack_of_room(folder: Path, size: int, files: int, what: str, less: str = _LESS) -> StorageError | None:
    """The error that says so with figures where so much does not fit; ``None`` where it does.

    ``less``: the options that make less come.
    """
    room = room_in(folder)
    if room.holds(size, files):
        return None
    need, free = f"{amount(size)} in {files} files", f"{amount(room.size)} free"
    if room.files is not None and room.size >= size:
        free = f"room for {room.files} files"
    return StorageError(
        f"{what} needs {need}, and {folder} has {free}: nothing of it was begun",
        hint=f"free space, name another folder (orchestrate sync SOURCE DEST), or bring less: {less}",
    )

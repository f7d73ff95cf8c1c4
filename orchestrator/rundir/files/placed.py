"""Tell files that were placed in a run's working folder from those that its program wrote there.

A placed link is absolute and ends with its own path in the folder. A placed copy has a time in 1981 that
holds a checksum of that path. So no record is needed, on any file system and at any source of a sync.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_1981 = 4018 * 86400  # a zip file holds no time before 1980
_STEPS = 1 << 12
# Name of a copy that is not whole yet, in the working folder.
UNFINISHED = ".placing"


def placed_time(name: str, changed: float) -> int:
    """Return the time of a copy placed under ``name``; ``changed``: that of its original."""
    return _1981 + zlib.crc32(os.fsencode(name)) % _STEPS * _STEPS + int(changed) % _STEPS


def is_placed_copy(name: str, changed: float) -> bool:
    """Return whether a file of this path in a working folder, and of this time, was placed there."""
    return name == UNFINISHED or 0 <= int(changed) - placed_time(name, 0) < _STEPS


def remove_placed(folder: Path) -> None:
    """Remove what was placed in a working folder, and folders that are empty then, itself among them."""
    for path in _entries(folder, "", placed=True):
        with suppress(OSError):
            os.unlink(path)
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(path)


def written_files(folder: Path) -> list[Path]:
    """List plain files that a program wrote into its working folder."""
    return [Path(path) for path in _entries(folder, "", placed=False)]


def _entries(folder: Path | str, above: str, *, placed: bool) -> Iterator[str]:
    """Yield paths of placed files and links below a folder, or else of plain files that were not placed."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        name = above + entry.name
        with suppress(OSError):  # removed meanwhile
            if entry.is_symlink():
                target = os.readlink(entry.path) if placed else ""
                if os.path.isabs(target) and target.endswith(f"/{name}"):
                    yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path, f"{name}/", placed=placed)
            else:
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and is_placed_copy(name, found.st_mtime) == placed:
                    yield entry.path

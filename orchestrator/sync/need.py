"""What a sync needs room for, and whether there is that much."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import StorageError
from orchestrator.rundir.synced import PARTIAL
from orchestrator.sync.choose import Chosen
from orchestrator.sync.room import lack_of_room
from orchestrator.sync.source import Source
from orchestrator.sync.task import Task

# Files below it are not asked for their holes.
_LARGE = 1 << 20
# Asking a busy file system about many files takes a while.
_PATIENCE_S = 600.0
_ALLOCATED = 'cd -- "$1" && exec xargs -0 du -k --'


def lack_for(task: Task, chosen: Sequence[Chosen]) -> StorageError | None:
    """The error where what was chosen does not fit; looks for holes, and at what it replaces, only then.

    Files of a bucket lie here already.
    """
    if task.rsync.source.mirror is not None:
        return None
    folders: dict[Path, list[Chosen]] = {}
    for one in chosen:
        folders.setdefault(one.here, []).append(one)
    for here, group in folders.items():
        what, files = f"what is new of {task.there.name}", sum(one.files for one in group)
        size = sum(one.size for one in group)
        if lack_of_room(here, size, files, what) is None:
            continue
        sizes = {name: size for one in group for name, size in one.sizes.items()}
        size -= _holes(task.rsync.source, f"{task.rsync.source.root}/{task.there.name}", sizes)
        size -= _replaced(here, sizes)
        if (lack := lack_of_room(here, max(0, size), files, what)) is not None:
            return lack
    return None


def _holes(source: Source, folder: str, sizes: dict[str, int]) -> int:
    """Bytes of these files that take no room at the source, and none here; 0 where it does not say."""
    large = [name for name, size in sizes.items() if size >= _LARGE]
    if not large:  # without a name `du` walks through all that there is
        return 0
    argv, given = (
        ["sh", "-c", _ALLOCATED, "sh", folder],
        b"".join(os.fsencode(name) + b"\0" for name in large),
    )
    if source.host is not None:
        said = source.host.run(argv, given, patience=_PATIENCE_S).output
    else:
        done = subprocess.run(argv, input=given, capture_output=True, check=False)
        said = done.stdout.decode(errors="surrogateescape")
    holes = 0
    for line in said.split("\n"):
        taken, _, name = line.partition("\t")
        if name in sizes and taken.isdecimal():
            holes += max(0, sizes[name] - 1024 * int(taken))
    return holes


def _replaced(here: Path, sizes: dict[str, int]) -> int:
    """Bytes that these files have here already: what came of them before a cut, and what they replace.

    Of those that are replaced the largest lies beside its new version for a while.
    """
    begun, old = 0, [0]
    for name, size in sizes.items():
        path = here / name
        begun += min(size, _taken(path.parent / PARTIAL / path.name))
        old.append(min(size, _taken(path)))
    return begun + sum(old) - max(old)


def _taken(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0

"""What a sync needs room for, and whether there is that much."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import StorageError
from orchestrator.rundir.synced import PARTIAL
from orchestrator.sync import holes
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.free_space import device_of, lack_of_room
from orchestrator.sync.job import SweepSync
from orchestrator.sync.source import Source

# Files below it are not asked for their holes.
_LARGE = 1 << 20
# Asking a busy file system about many files takes a while.
_PATIENCE_S = 600.0


def lack_for(task: SweepSync, chosen: Sequence[ChosenFiles]) -> StorageError | None:
    """The error where what was chosen does not fit, of all that comes to one file system.

    Files of a bucket lie here already, and are linked where that is the same file system.
    """
    groups: dict[int, list[ChosenFiles]] = {}
    for one in chosen:
        groups.setdefault(device_of(one.here), []).append(one)
    if task.rsync.source.mirror is not None:
        groups.pop(device_of(task.sweep.results), None)
    lacks = (_lack(task, group) for group in groups.values())
    return next((lack for lack in lacks if lack is not None), None)


def _lack(task: SweepSync, group: Sequence[ChosenFiles]) -> StorageError | None:
    """The same of one file system; looks for holes, and at what is replaced, only where it seems full."""
    here, what = group[0].here, f"what is new of {task.there.name}"
    files, size = sum(one.files for one in group), sum(one.size for one in group)
    folders = {one.here / folder for one in group for folder in _folders(one)}
    if lack_of_room(here, size, files + len(folders), what) is None:
        return None
    sizes = {name: length for one in group for name, length in one.sizes.items()}
    paths = {one.here / name: length for one in group for name, length in one.sizes.items()}
    if task.rsync.source.mirror is None:
        size -= _holes(task.rsync.source, f"{task.rsync.source.root}/{task.there.name}", sizes)
    size -= _replaced(paths)
    count = files + len(folders) - sum(map(os.path.lexists, [*paths, *folders]))
    return lack_of_room(here, max(0, size), count, what)


def _folders(one: ChosenFiles) -> set[str]:
    """Folders that come, or that a file comes to."""
    parents = {str(parent) for name in one.names for parent in PurePosixPath(name).parents}
    return parents | (set(one.names) - one.sizes.keys())


def _holes(source: Source, folder: str, sizes: Mapping[str, int]) -> int:
    """Bytes of these files that take no room at the source, and none here; 0 where it does not say."""
    large = [name for name, size in sizes.items() if size >= _LARGE]
    if not large:
        return 0
    python = "python3" if source.host is not None else sys.executable
    argv = [python, "-c", Path(holes.__file__).read_text(encoding="utf-8"), folder]
    given = b"".join(os.fsencode(name) + b"\0" for name in large)
    if source.host is not None:
        said = source.host.run(argv, given, patience=_PATIENCE_S).output
    else:
        said = subprocess.run(argv, input=given, capture_output=True, check=False).stdout.decode()
    return int(said) if said.strip().isdecimal() else 0


def _replaced(sizes: Mapping[Path, int]) -> int:
    """Bytes that these files have here already: what came of them before a cut, and what they replace.

    Of those that are replaced the largest lies beside its new version for a while.
    """
    begun, old = 0, [0]
    for path, size in sizes.items():
        begun += min(size, _taken(path.parent / PARTIAL / path.name))
        old.append(min(size, _taken(path)))
    return begun + sum(old) - max(old)


def _taken(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0

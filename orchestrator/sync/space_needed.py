"""Compute the disk space that a sync needs, and check for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import StorageError
from orchestrator.rundir.synced import PARTIAL
from orchestrator.sync import holes
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.free_space import device_of, no_space_error
from orchestrator.sync.source import Source
from orchestrator.sync.sweep_sync import SweepSync

# Bytes from which a file's holes are looked up.
_LARGE = 1 << 20


def space_error(sync: SweepSync, chosen: Sequence[ChosenFiles]) -> StorageError | None:
    """Return the error if the chosen files do not fit, by file system.

    Files of a bucket's mirror on the same file system are linked and take no space.
    """
    groups: dict[int, list[ChosenFiles]] = {}
    for one in chosen:
        groups.setdefault(device_of(one.here), []).append(one)
    if sync.rsync.source.mirror is not None:
        groups.pop(device_of(sync.sweep.results), None)
    lacks = (_lack(sync, group) for group in groups.values())
    return next((lack for lack in lacks if lack is not None), None)


def _lack(sync: SweepSync, group: Sequence[ChosenFiles]) -> StorageError | None:
    """Check one file system; holes and replaced files are only looked up if it seems full."""
    here, what = group[0].here, f"what is new of {sync.listed.name}"
    files, size = sum(one.files for one in group), sum(one.size for one in group)
    folders = {one.here / folder for one in group for folder in _folders(one)}
    if no_space_error(here, size, files + len(folders), what) is None:
        return None
    sizes = {name: length for one in group for name, length in one.sizes.items()}
    paths = {one.here / name: length for one in group for name, length in one.sizes.items()}
    if sync.rsync.source.mirror is None:
        size -= _holes(sync.rsync.source, f"{sync.rsync.source.root}/{sync.listed.name}", sizes)
    size -= _replaced(paths)
    count = files + len(folders) - sum(map(os.path.lexists, [*paths, *folders]))
    return no_space_error(here, max(0, size), count, what)


def _folders(one: ChosenFiles) -> set[str]:
    """Return the folders to fetch, and those of files to fetch."""
    parents = {str(parent) for name in one.names for parent in PurePosixPath(name).parents}
    return parents | (set(one.names) - one.sizes.keys())


def _holes(source: Source, folder: str, sizes: Mapping[str, int]) -> int:
    """Return the bytes in holes of these files, which take no space; 0 where the source does not
    report them.
    """
    large = [name for name, size in sizes.items() if size >= _LARGE]
    if not large:
        return 0
    python = "python3" if source.host is not None else sys.executable
    argv = [python, "-c", Path(holes.__file__).read_text(encoding="utf-8"), folder]
    said = source.run(argv, large).output
    return int(said) if said.strip().isdecimal() else 0


def _replaced(sizes: Mapping[Path, int]) -> int:
    """Return the bytes that these files occupy here already: from before a cut, or to be replaced.

    The largest replaced file exists together with its new version for a while.
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

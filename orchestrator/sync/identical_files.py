"""Find files that are here already, by content, so that they are not fetched again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir
from orchestrator.rundir.synced import RESULT, RUNS
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.rsync import ListedFile
from orchestrator.sync.sweep_sync import SweepSync
from orchestrator.sync.verify import is_as_listed, staged_result


def find_unchanged(sync: SweepSync, here: Path, chosen: Iterable[ChosenFiles]) -> None:
    """Find verified files that only have another time at the source, as after a plain copy."""
    for one in chosen:
        alike = {entry.path for entry in one.kept if _size(here / entry.path) == entry.size}
        if alike:
            alike = sync.rsync.alike(sync.listed.name, here, alike)
        one.same = [entry for entry in one.kept if entry.path in alike]
        one.kept = [entry for entry in one.kept if entry.path not in alike]


def copy_times(chosen: Iterable[ChosenFiles]) -> None:
    """Give unchanged files their time at the source, so that listings show them as equal."""
    for one in chosen:
        for entry in one.same:
            _redate(one.here / entry.path, entry)


def _redate(path: Path, entry: ListedFile) -> None:
    stat = path.stat()
    if stat.st_nlink == 1:  # else it is also the file of another source, with its own time
        os.utime(path, (stat.st_atime, entry.time))


def find_duplicates(sync: SweepSync, chosen: Sequence[ChosenFiles], staged: Path) -> None:
    """Find files in the main tree with the content to fetch, for runs that another source has finished, too.

    The results of both sources list the content. ``staged``: a folder for unpublished results.
    """
    twice = [one for one in chosen if _is_done_twice(sync, one)]
    if twice:
        names = [f"{RUNS}/{one.run_id}/{RESULT}" for one in twice]
        sync.rsync.fetch(sync.listed.name, staged, names, staged)
    for one in twice:
        main = sync.sweep.run(one.run_id)
        try:
            theirs, ours = staged_result(RunDir(staged / RUNS / one.run_id)), main.result()
        except DamagedFileError:
            continue  # reported when results are checked
        known = {(item["sha256"], item["bytes"]): item for item in (ours or {"manifest": []})["manifest"]}
        for item in theirs["manifest"]:
            _find(one, main, item, known.get((item["sha256"], item["bytes"])))


def _is_done_twice(sync: SweepSync, one: ChosenFiles) -> bool:
    there = sync.listed.runs.get(one.run_id)
    if there is None or there.result is None or not one.names or one.here == sync.sweep.path:
        return False
    return sync.sweep.run(one.run_id).result_path.exists()


def _find(one: ChosenFiles, main: RunDir, item: dict[str, Any], known: dict[str, Any] | None) -> None:
    name = f"{RUNS}/{one.run_id}/{item['path']}"
    if known is not None and name in one.names and is_as_listed(main.path, known):
        one.links[name] = main.path / known["path"]
        one.leave(name, item["bytes"])


def link_duplicates(one: ChosenFiles) -> None:
    """Hard-link these files; where that fails, they are fetched."""
    for name, known in one.links.items():
        if not _link(known, one.here, name):
            one.names.append(name)


def _link(known: Path, folder: Path, name: str) -> bool:
    *parents, last = name.split("/")
    for parent in parents:
        folder = folder / parent
        if folder.is_symlink():  # rsync replaces it by a folder
            return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / last).unlink(missing_ok=True)
        os.link(known, folder / last)
    except OSError:
        return False
    return True


def _size(path: Path) -> int:
    return path.stat().st_size

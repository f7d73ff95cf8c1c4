"""Files that are here already, judged by their content: no other ones, and none to be fetched twice."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir
from orchestrator.rundir.synced import RESULT, RUNS
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.job import SweepSync
from orchestrator.sync.rsync import ListedFile
from orchestrator.sync.verify import is_as_listed, staged_result


def acquit(task: SweepSync, here: Path, chosen: Iterable[ChosenFiles]) -> None:
    """Find verified files that only have another time there, as after a plain copy: those are the same."""
    for one in chosen:
        alike = {entry.path for entry in one.kept if _size(here / entry.path) == entry.size}
        if alike:
            alike = task.rsync.alike(task.there.name, here, alike)
        one.same = [entry for entry in one.kept if entry.path in alike]
        one.kept = [entry for entry in one.kept if entry.path not in alike]


def redate(chosen: Iterable[ChosenFiles]) -> None:
    """Give files that are the same the time that they have there, so that a list shows it."""
    for one in chosen:
        for entry in one.same:
            _redate(one.here / entry.path, entry)


def _redate(path: Path, entry: ListedFile) -> None:
    stat = path.stat()
    if stat.st_nlink == 1:  # else it is the file of another source, too, with a time of its own
        os.utime(path, (stat.st_atime, entry.time))


def find_alike(task: SweepSync, chosen: Sequence[ChosenFiles], staged: Path) -> None:
    """Of runs that another source has done, too: what is in the main tree with the content that is to come.

    By the results of both. ``staged`` is a folder for results that nobody is to see yet.
    """
    twice = [one for one in chosen if _is_done_twice(task, one)]
    if twice:
        names = [f"{RUNS}/{one.run_id}/{RESULT}" for one in twice]
        task.rsync.fetch(task.there.name, staged, names, staged)
    for one in twice:
        main = task.sweep.run(one.run_id)
        try:
            theirs, ours = staged_result(RunDir(staged / RUNS / one.run_id)), main.result()
        except DamagedFileError:
            continue  # named where results are checked
        known = {(item["sha256"], item["bytes"]): item for item in (ours or {"manifest": []})["manifest"]}
        for item in theirs["manifest"]:
            _find(one, main, item, known.get((item["sha256"], item["bytes"])))


def _is_done_twice(task: SweepSync, one: ChosenFiles) -> bool:
    there = task.there.runs.get(one.run_id)
    if there is None or there.result is None or not one.names or one.here == task.sweep.path:
        return False
    return task.sweep.run(one.run_id).result_path.exists()


def _find(one: ChosenFiles, main: RunDir, item: dict[str, Any], known: dict[str, Any] | None) -> None:
    name = f"{RUNS}/{one.run_id}/{item['path']}"
    if known is not None and name in one.names and is_as_listed(main.path, known):
        one.links[name] = main.path / known["path"]
        one.leave(name, item["bytes"])


def link(one: ChosenFiles) -> None:
    """Have these files by another name of theirs; where the file system has no links, they are fetched."""
    for name, known in one.links.items():
        if not _link(known, one.here, name):
            one.names.append(name)


def _link(known: Path, folder: Path, name: str) -> bool:
    *parents, last = name.split("/")
    for parent in parents:
        folder = folder / parent
        if folder.is_symlink():  # rsync puts a folder in its place
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

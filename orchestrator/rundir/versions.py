"""Versions of a run: in the sweep's own folder and in its copies from further sources; which one counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.core.errors import DamagedFileError, StorageError
from orchestrator.rundir.copy_origin import SOURCES, read_copy, source_folders
from orchestrator.rundir.run import RunDir

_Sweep = TypeVar("_Sweep")


class SweepCopies(Generic[_Sweep]):
    """The copies of a sweep from further sources. ``sweep``: the sweep's own folder."""

    def __init__(self, sweep: Path, open_copy: Callable[[Path, str], _Sweep]) -> None:
        self._sweep, self._open = sweep, open_copy
        self._known: tuple[int, list[_Sweep], bool] = (0, [], False)

    def read(self) -> tuple[list[_Sweep], bool]:
        """Return the copies in the order of their first sync, and whether the own folder is a copy, too."""
        try:
            changed = os.lstat(f"{self._sweep}/{SOURCES}").st_mtime_ns
        except OSError:
            return [], False
        if changed != self._known[0]:  # else each of thousands of runs would list the folder
            folders = source_folders(self._sweep)
            marked = [(copy.since, folder) for folder in folders if (copy := read_copy(folder)) is not None]
            copies = [self._open(folder.parent, folder.name) for _, folder in sorted(marked)]
            whole = len(copies) == len(folders)  # the mark of a new one comes later
            self._known = changed if whole else 0, copies, read_copy(self._sweep) is not None
        return self._known[1:]


def counting_run(own: RunDir, others: Sequence[RunDir], *, is_copy: bool) -> RunDir:
    """Return the folder of the version of a run that counts.

    ``own``: in the sweep's folder, which may be a copy, too (``is_copy``); ``others``: of further sources, in
    the order of their first sync. The own result counts, or the own attempt while a worker of this tree may
    be at work. Else the first result does; without any, the version with the most progress. A retry in this
    tree makes the attempts of others up to the retried one void. A result is published only when all its
    files are verified.
    """
    if not others or own.has_result():
        return own
    retried = 0 if is_copy else own.retired
    valid = [run for run in others if not retried or run.newest_attempt() > retried]
    best = next((run for run in valid if run.has_result()), None) or max((own, *valid), key=_progress)
    return own if best is not own and not is_copy and _is_held(own) else best


def _progress(run: RunDir) -> tuple[int, int]:
    """Return the frames of the most advanced checkpoint, and the newest attempt."""
    return max((one.frames for one in run.checkpoints()), default=0), run.newest_attempt()


def _is_held(run: RunDir) -> bool:
    """Return whether a worker of this tree may be at work on the run."""
    try:
        return run.blocked_by() is not None
    except (DamagedFileError, StorageError):  # no proof
        return True

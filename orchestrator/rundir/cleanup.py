"""Remove superfluous files of finished runs, and temporary files of killed writers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.core.errors import StorageError
from orchestrator.rundir.attempts.attempt import listdir
from orchestrator.rundir.attempts.claims import age_by_file_server
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.run import RunDir
from orchestrator.rundir.sweep import SweepDir

TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")
# A writer needs its temporary file for a moment. After this many seconds its lease is lost or its write
# fails.
_ABANDONED_S = 3600.0
# Folders of a sweep with many writers, or with a clean-up of their own.
_NOT_THESE = ("runs", "code", "parcels", "sources", ".synced")


def tidy_finished(run: RunDir, result: Result, also: Iterable[str] = ()) -> None:
    """Remove all files of a finished run except its small records and the manifest's files.

    ``also``: further files to keep, by their paths in the run's folder. Safe to kill and to repeat. A file
    that cannot be removed stays and does no harm.
    """
    with suppress(OSError, StorageError):
        _tidy(run, result, also)


def superfluous(run: RunDir, result: Result, also: Iterable[str] = ()) -> list[Path]:
    """List files and folders of a finished run that :func:`tidy_finished` removes.

    What a run starts from by its grid stays: trained again, it cannot do without.
    """
    kept = {run.path / item.path for item in result.manifest} | {run.path / path for path in also}
    attempts = run.with_prefix()
    if run.prefix is not None and run.description().origin:
        attempts = attempts[1:]
    for attempt in attempts:
        kept |= attempt.records
    kept |= {parent for path in kept for parent in path.parents}
    return [path for attempt in attempts for path in _dispensable(attempt.path, kept)]


def _tidy(run: RunDir, result: Result, also: Iterable[str]) -> None:
    for path in superfluous(run, result, also):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    _clear(run.path)


def clear_leftovers(sweep: SweepDir) -> None:
    """Remove temporary files of killed writers beside the sweep's own files."""
    _clear(sweep.path)
    for name in listdir(sweep.path):
        if name not in _NOT_THESE and (sweep.path / name).is_dir() and not (sweep.path / name).is_symlink():
            _clear(sweep.path / name)


def _clear(folder: Path) -> None:
    for name in listdir(folder):
        match = TEMPORARY.fullmatch(name)
        with suppress(OSError, StorageError):  # such as a folder of another user
            if match and _is_abandoned(folder / name, folder / match["name"]):
                (folder / name).unlink(missing_ok=True)


def _is_abandoned(temporary: Path, final: Path) -> bool:
    """Return whether the writer has finished (the file has its final name, too) or was killed long ago."""
    try:
        if not temporary.is_file() or temporary.is_symlink():
            return False
        if final.is_file() and os.path.samefile(temporary, final):
            return True
        return age_by_file_server(temporary) > _ABANDONED_S
    except FileNotFoundError:
        return False


def _dispensable(folder: Path, kept: set[Path]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path not in kept:
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _dispensable(path, kept)

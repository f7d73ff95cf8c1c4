"""Adopt a finished run of another tree: whole, verified, and marked with where it comes from."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import plain
from orchestrator.rundir.attempts.absent_files import MARK
from orchestrator.rundir.attempts.attempt import listdir
from orchestrator.rundir.files.atomic import dump_json, read_record, storage_errors, write_atomic
from orchestrator.rundir.files.links import link_or_copy
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.run import RETIRED, RunDir

_MARK, _DRAFT = "adopted.json", ".{}.000000000000.tmp"


@dataclass(frozen=True)
class Adopted:
    """Where a run comes from: a sweep in a tree, as users name it, and the time in epoch seconds."""

    origin: str
    time: float


def adopt(run: RunDir, source: RunDir, origin: str) -> Result:
    """Make a finished run of another tree the result of ``run``, whole or not at all; return the result.

    For a run without attempts; call under the sweep's lock. Files are hard links where possible. Raises
    :class:`DamagedFileError` unless all files match the result's checksums, and ``StorageError``.
    """
    result = source.result()
    if result is None:
        raise DamagedFileError(source.result_path, "is gone")
    draft = run.path.with_name(_DRAFT.format(run.run_id))
    with storage_errors(draft):
        shutil.rmtree(draft, ignore_errors=True)  # of a killed command
        for path in sorted(_files(source, result)):
            link_or_copy(path, draft / path.relative_to(source.path))
        RunDir(draft).verify(result, checksums=True)
        write_atomic(draft / _MARK, dump_json(plain(Adopted(origin, time.time()))))
        shutil.rmtree(run.path, ignore_errors=True)
        os.rename(draft, run.path)
    return result


def adopted_from(run: RunDir) -> Adopted | None:
    """Return where a run comes from; ``None`` for one of this tree. Raises :class:`DamagedFileError`."""
    return read_record(Adopted, run.path / _MARK, "the mark of an adopted run")


def _files(run: RunDir, result: Result) -> set[Path]:
    """Return the files of a finished run: those of its result, and the records of its attempts."""
    own = {run.result_path, run.description_path, run.path / MARK}
    own |= {run.path / name for name in listdir(run.path) if RETIRED.fullmatch(name)}
    listed = {run.path / item.path for item in result.manifest}
    records = {path for attempt in run.with_prefix() for path in attempt.records}
    return {path for path in own | listed | records if path.is_file()}

"""Parcels: a job's part of a results tree, for a machine with a file system of its own.

::

    results/<sweep>/parcels/<token>/
      results/<sweep>/    the grid, the ledger, the index and the job's code, and its runs'
                          descriptions and all files a next attempt needs

A parcel has the tree's own layout, so that returned files have the same names.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.core.machine.file_locks import lock
from orchestrator.core.types import Job
from orchestrator.rundir.attempts.attempt import AttemptDir, listdir
from orchestrator.rundir.code import CodeDir
from orchestrator.rundir.files.atomic import storage_errors, temporary_name, write_atomic
from orchestrator.rundir.files.links import link_or_copy
from orchestrator.rundir.files.placed import written_files
from orchestrator.rundir.files.plain_files import read_plain
from orchestrator.rundir.run import RunDir
from orchestrator.rundir.sweep import SweepDir

RESULTS = "results"
_PARCELS = "parcels"
_JOURNALS, _HANDOVER, _RUNS, _LEDGER = "journals", "handover", "runs", "ledger"


def parcel(sweep: SweepDir, token: str) -> Path:
    """Return the folder of a job's parcel."""
    return sweep.path / _PARCELS / token


def pack(sweep: SweepDir, job: Job, code: CodeDir) -> Path:
    """Make the job's parcel, replacing an older one, and return its folder.

    Files are hard links where possible, so that checkpoints take no space; they are read-only in use.
    """
    whole = parcel(sweep, job.token)
    draft = temporary_name(whole)
    with storage_errors(draft):
        inside = draft / RESULTS / sweep.name
        (inside / _RUNS).mkdir(parents=True)
        (inside / _JOURNALS).mkdir()
        for path in _of_sweep(sweep, code):
            link_or_copy(path, inside / path.relative_to(sweep.path))
        runs = [sweep.run(run_id) for run_id in job.run_ids]
        SweepDir(draft / RESULTS, sweep.name).describe(
            run.description() for run in runs if not run.description_path.exists()
        )
        for run in runs:
            if run.description_path.exists():
                link_or_copy(run.description_path, inside / run.description_path.relative_to(sweep.path))
            for path in _next_attempt_files(run):
                link_or_copy(path, inside / path.relative_to(sweep.path))
        shutil.rmtree(whole, ignore_errors=True)
        os.rename(draft, whole)
    return whole


def add_private(sweep: SweepDir, token: str, name: str, text: str) -> None:
    """Add a file to a packed parcel that only its owner can read, here and where it is copied."""
    path = parcel(sweep, token) / name
    with storage_errors(path), open(path, "x", opener=_open_private) as file:
        file.write(text)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def discard(sweep: SweepDir, token: str) -> None:
    """Remove a parcel and the job's arrivals."""
    for folder in (parcel(sweep, token), arrivals(sweep, token)):
        shutil.rmtree(folder, ignore_errors=True)


def unpacked(sweep: SweepDir) -> list[str]:
    """Return the tokens of jobs with a parcel."""
    return sorted(name for name in listdir(sweep.path / _PARCELS) if not name.startswith("."))


def of_job(token: str, run_ids: Iterable[str]) -> tuple[list[str], list[str]]:
    """List the files a job returns: its worker's journal and output, and its runs' folders.

    Names are relative to the sweep's folder. Some files may not exist.
    """
    words = [f"{_JOURNALS}/{token}.jsonl", f"{_JOURNALS}/{token}.log"]
    return words, [f"{_RUNS}/{run_id}" for run_id in run_ids]


def arrivals(sweep: SweepDir, token: str) -> Path:
    """Return the folder for a job's returned files until they are placed; removed with the parcel."""
    return sweep.path / _PARCELS / f".{token}"


def keep_store(sweep: SweepDir, token: str, store: str) -> None:
    """Record the store of a job's results: its profile may change before they are fetched."""
    path = _store(sweep, token)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, store.encode())


def store_of(sweep: SweepDir, token: str) -> str | None:
    """Return the recorded store of a job's results; None if they stay on its machine."""
    try:
        return read_plain(_store(sweep, token)).decode()
    except FileNotFoundError:
        return None


def _store(sweep: SweepDir, token: str) -> Path:
    return arrivals(sweep, token) / "store"


def condemn(sweep: SweepDir, token: str) -> None:
    """Record that a job's machine must be terminated with all its files; the parcel holds the record."""
    path = _condemned(sweep, token)
    if path.exists():
        return
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, b"")


def condemned_at(sweep: SweepDir, token: str) -> float | None:
    """Return when :func:`condemn` was first called, in epoch seconds; None if never."""
    return _modified(_condemned(sweep, token))


def _condemned(sweep: SweepDir, token: str) -> Path:
    return arrivals(sweep, token) / "condemned"


def since_exchange(sweep: SweepDir, token: str) -> float:
    """Return the seconds since the last exchange with a job's machine."""
    at = _modified(_lock(sweep, token))
    return math.inf if at is None else time.time() - at


@contextmanager
def turn_to_exchange(sweep: SweepDir, token: str) -> Iterator[bool]:
    """Lock the exchange with a job's machine; yield False if another command holds the lock."""
    path = _lock(sweep, token)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        if not lock(file, wait=False):
            yield False
            return
        yield True
        if path.exists():
            os.utime(path)


def mark_fetched(sweep: SweepDir, token: str) -> None:
    """Record that everything a job's machine has was fetched just now."""
    _fetched(sweep, token).touch()


def fetched_at(sweep: SweepDir, token: str) -> float | None:
    """Return the time of the last :func:`mark_fetched`, in epoch seconds; None before the first."""
    return _modified(_fetched(sweep, token))


def _fetched(sweep: SweepDir, token: str) -> Path:
    return arrivals(sweep, token) / "fetched"


def _lock(sweep: SweepDir, token: str) -> Path:
    return arrivals(sweep, token) / "lock"


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def ledger_names(sweep: SweepDir) -> list[str]:
    """List the ledger's files as names in the sweep's folder."""
    return [f"{_LEDGER}/{name}" for name in sorted(listdir(sweep.path / _LEDGER)) if name[0] != "."]


def _of_sweep(sweep: SweepDir, code: CodeDir) -> Iterator[Path]:
    yield sweep.latest_grid_path()
    yield sweep.index_path
    yield from (sweep.path / name for name in ledger_names(sweep))
    # By the sweep's own path: a link in another path would be invalid elsewhere.
    kept = sweep.path / code.path.relative_to(sweep.path.absolute())
    yield from (kept / name for name in code.names())


def _next_attempt_files(run: RunDir) -> Iterator[Path]:
    """Yield the files of earlier and retired attempts that the next attempt needs."""
    for name in listdir(run.path):
        if name.startswith("retired-"):
            yield run.path / name
    yield from written_files(run.work)
    prefix = [run.prefix.path] if run.prefix is not None else []
    yield from prefix
    for attempt in run.attempts():
        yield from (path for path in _records(attempt) if path.exists())


def _records(attempt: AttemptDir) -> tuple[Path, ...]:
    return attempt.claim_path, attempt.end_path, attempt.metrics, attempt.checkpoints

"""Find files of a sweep that can be removed, and remove them. Lists plain files only, and follows no link."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError, StorageError
from orchestrator.rundir.attempts.attempt import CHECKPOINT, POLICY, listdir
from orchestrator.rundir.cleanup import TEMPORARY, superfluous
from orchestrator.rundir.code import CodeDir
from orchestrator.rundir.copies.synced import CODE, HANDOVER, INDEX, JOURNALS, RUNS, kind_of, plain_size
from orchestrator.rundir.copy_origin import SOURCES, SYNCED
from orchestrator.rundir.descriptions import FOLDER as DESCRIPTIONS
from orchestrator.rundir.files.atomic import storage_errors, temporary_name
from orchestrator.rundir.index import RUN_ID, SWEEP_NAME
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.records.verifications import FOLDER as VERIFIED
from orchestrator.rundir.records.verifications import SCRATCH
from orchestrator.rundir.run import ATTEMPTS, RunDir
from orchestrator.rundir.sweep import COMPARISON, GRIDS, LEDGER, SweepDir

CHECKPOINTS, POLICIES, STATE = "checkpoints", "policies", "state"
# The kinds of files without which a finished run's result is still whole.
OPTIONAL_KINDS = ("tensorboard", "wandb", POLICIES, STATE)
# Paths that a run writes in its folder, less its records.
_WRITTEN = re.compile(
    rf"{ATTEMPTS}/[0-9]+/("
    rf"checkpoints/({CHECKPOINT.pattern}|segment-[^/]+\.pt)|policies/{POLICY.pattern}|policy\.pt|"
    r"events\.out\.tfevents\.[^/]+|wandb\.tar|(wandb|scratch)/.+|(.+/)?\.[^/]+\.tmp)"
)
# All names in a sweep's folder, less comparisons and temporary files.
_SWEEP_NAMES = frozenset(
    (
        *(GRIDS, LEDGER, JOURNALS, CODE, HANDOVER, INDEX, DESCRIPTIONS, RUNS, SYNCED, SOURCES),
        *("scripts", "heard", "parcels", "evaluations", "audits", "report", "figures", ".lock"),
        *("results.parquet", "results.csv", "metrics.parquet", "marl_eval.json"),
        *("speeds.json", "uploads.jsonl", VERIFIED, SCRATCH),
    )
)


def leftovers(run: RunDir, result: Result) -> list[Path]:
    """List files of a finished run that its result does not need."""
    return _written(run, _files(superfluous(run, result)))


def retired_files(run: RunDir, result: Result) -> list[Path]:
    """List files of a finished run's retired attempts, less their small records."""
    last = run.retired
    if result.attempt <= last:
        return []
    old = [attempt for attempt in run.attempts() if attempt.number <= last]
    return _written(run, (path for attempt in old for path in _below(attempt.path)))


def listed_files(run: RunDir, result: Result) -> dict[str, list[Path]]:
    """Return the files that the result lists and the run still has, by kind.

    Kinds are :data:`OPTIONAL_KINDS` and :data:`CHECKPOINTS`.
    """
    found: dict[str, list[Path]] = {}
    for item in result.manifest:
        is_state = item.path in result.final_state and not item.required
        kind = STATE if is_state else _kind(item.path)
        known = kind == CHECKPOINTS or (kind in OPTIONAL_KINDS and not item.required)
        if kind is not None and known and plain_size(run.path, item.path) is not None:
            found.setdefault(kind, []).append(run.path / item.path)
    return found


def unfinished_files(run: RunDir) -> list[Path]:
    """List checkpoints, policies and inboxes of an unfinished run."""
    folders = [folder for one in run.attempts() for folder in (one.checkpoints, one.policies, one.scratch)]
    return _written(run, _files(folder for folder in folders if folder.exists()))


def temporary_files(run: RunDir) -> list[Path]:
    """List temporary files in the attempts of a run without a live attempt."""
    return [path for one in run.attempts() for path in _below(one.path) if TEMPORARY.fullmatch(path.name)]


def run_ids(sweep: SweepDir) -> list[str]:
    """Return the ids of the sweep's runs; none if their folder is a link."""
    return sweep.run_ids() if _is_folder(sweep.path / RUNS) else []


def code_snapshots(sweep: SweepDir) -> list[CodeDir]:
    """Return the complete code snapshots of a sweep."""
    folder = sweep.path / CODE
    names = sorted(listdir(folder)) if _is_folder(folder) else []
    found = [CodeDir(folder / name) for name in names if RUN_ID.fullmatch(name) and _is_folder(folder / name)]
    return [code for code in found if code.exists()]


def not_of_code(code: CodeDir, *, by_time: bool = True) -> list[Path]:
    """List files and links in a code snapshot that it was not stored with: programs write where they start.

    ``by_time``: also own files that are newer than the snapshot. Python's caches are not listed.
    """
    try:
        own = {code.path / name for name in code.names()}
    except DamagedFileError:  # what it was stored with is unknown
        own = {code.facts_path, code.changes}
    stored = code.facts_path.lstat().st_mtime_ns  # written last
    found = []
    for folder, folders, names in os.walk(code.path):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for path in (Path(folder, name) for name in sorted([*links, *names])):
            is_new = path not in own or (by_time and path.lstat().st_mtime_ns > stored)
            if is_new and path.parent.name != "__pycache__":
                found.append(path)
    return found


def code_drafts(sweep: SweepDir) -> list[Path]:
    """Return unfinished and half removed code snapshots. One may be in work unless the sweep is locked."""
    folder = sweep.path / CODE
    names = sorted(listdir(folder)) if _is_folder(folder) else []
    return [folder / name for name in names if TEMPORARY.fullmatch(name) and _is_folder(folder / name)]


def require_folders(run: RunDir) -> None:
    """Raise :class:`DamagedFileError` unless the run's folder and those of its attempts are folders."""
    attempts = run.path / ATTEMPTS
    for path in (run.path, attempts, *(attempts / name for name in sorted(listdir(attempts)))):
        if not _is_folder(path) and (path.exists() or path.is_symlink()):
            what = "a link" if path.is_symlink() else "a file"
            raise DamagedFileError(path, f"is {what}, expected a folder")


def strange_names(sweep: SweepDir) -> list[Path]:
    """List files and folders that this program does not write, in a sweep's folder and among its runs."""
    runs = sweep.path / RUNS
    tops = (name for name in sorted(listdir(sweep.path)) if not _is_of_sweep(sweep.path / name))
    others = (name for name in sorted(listdir(runs)) if not _is_of_run(name))
    return [*(sweep.path / name for name in tops), *(runs / name for name in others)]


def half_removed(results: Path) -> dict[str, list[Path]]:
    """Return what killed removals left of sweeps, by their names."""
    found: dict[str, list[Path]] = {}
    for name in sorted(listdir(results)):
        match = TEMPORARY.fullmatch(name)
        if match and SWEEP_NAME.fullmatch(match["name"]) and _is_folder(results / name):
            found.setdefault(match["name"], []).append(results / name)
    return found


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes that the removal of files frees: none for a file with a further hard link."""
    size = 0
    for path in paths:
        try:
            about = path.lstat()
        except FileNotFoundError:
            continue
        size += about.st_size if about.st_nlink == 1 else 0
    return size


def files_of(folder: Path) -> list[Path]:
    """List the plain files of a folder."""
    return list(_below(folder))


def remove_files(paths: Collection[Path]) -> None:
    """Remove files, and folders that are empty then."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _not_removed(path, error.strerror) from error
    for folder in {path.parent for path in paths}:
        try:
            while True:
                folder.rmdir()
                folder = folder.parent
        except OSError:  # not empty
            continue


def put_away(folder: Path) -> Path:
    """Give a folder a temporary name, by which no reader takes it for whole; return its new path."""
    if TEMPORARY.fullmatch(folder.name):
        return folder
    away = temporary_name(folder)
    with storage_errors(folder):
        os.rename(folder, away)
    return away


def remove_folder(folder: Path) -> None:
    """Remove a folder that :func:`put_away` returned, and its links without what they lead to."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise _not_removed(folder, "something is left in it")


def _not_removed(path: Path, why: str | None) -> StorageError:
    hint = "change the permissions of the file and of its folder, then run the same command again"
    return StorageError(f"cannot remove {path}: {why}", hint=hint)


def _kind(relative: str) -> str | None:
    """Return the kind of a file that a result lists, policies kept in training apart from checkpoints."""
    path = PurePosixPath(relative)
    kind = None if ".." in path.parts else kind_of(path)
    if kind != CHECKPOINTS:
        return kind
    return POLICIES if path.parent.name == POLICIES else CHECKPOINTS


def _written(run: RunDir, paths: Iterable[Path]) -> list[Path]:
    """Return the files that the run itself wrote."""
    return [path for path in paths if _WRITTEN.fullmatch(path.relative_to(run.path).as_posix())]


def _is_of_sweep(path: Path) -> bool:
    known = path.name in _SWEEP_NAMES or path.name.startswith(COMPARISON) or TEMPORARY.fullmatch(path.name)
    return bool(known) and not path.is_symlink()


def _is_of_run(name: str) -> bool:
    return bool(RUN_ID.fullmatch(name) or TEMPORARY.fullmatch(name))


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            found += _below(path)
        elif stat.S_ISREG(mode):
            found.append(path)
    return found


def _below(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()

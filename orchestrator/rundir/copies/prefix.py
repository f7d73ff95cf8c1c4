"""Begin a run with what another one left: an attempt 0.

It holds the final state of a shorter run, from which the first attempt resumes, or a policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import plain
from orchestrator.core.types import Int64, Value
from orchestrator.rundir.attempts.attempt import CHECKPOINT, AttemptDir, sha256
from orchestrator.rundir.attempts.metrics import MetricsWriter
from orchestrator.rundir.files.atomic import (
    dump_json,
    read_record,
    storage_errors,
    temporary_name,
    write_atomic,
)
from orchestrator.rundir.files.links import link_or_copy
from orchestrator.rundir.files.placed import written_files
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.run import RunDir

_DRAFT = ".0.tmp"


@dataclass(frozen=True)
class Prefix:
    """A finished run that a longer one begins with, up to its last checkpoint, after ``frames``.

    ``tree``: of its ``sweep``, as users name it. ``result``: the SHA-256 of its result, which lists all of
    its files. ``versions``, ``cpu_capability``: of what trained it; others may train other bits. ``fork``:
    the point of that run, if this one goes on with other keys.
    """

    run_id: str
    sweep: str
    tree: str
    frames: Int64
    result: str
    code_id: str | None = None
    versions: Mapping[str, str] | None = None
    cpu_capability: str | None = None
    fork: Mapping[str, Value] | None = None

    @classmethod
    def of(cls, run: RunDir, result: Result, tree: str) -> Self | None:
        """Describe a finished run; ``None`` if it keeps no state from which a longer run can go on."""
        frames = _frames(result.final_state)
        return None if frames is None else cls._of(run, result, tree, frames)

    @classmethod
    def of_policy(cls, run: RunDir, result: Result, tree: str) -> Self:
        """Describe a finished run that gives others their policy."""
        return cls._of(run, result, tree, 0)

    @classmethod
    def _of(cls, run: RunDir, result: Result, tree: str, frames: int) -> Self:
        return cls(
            run_id=run.run_id,
            sweep=run.sweep,
            tree=tree,
            frames=frames,
            result=sha256(run.result_path),
            code_id=result.code_id,
            versions=result.fields.get("versions"),
            cpu_capability=result.host.cpu_capability,
        )


def prefix_of(run: RunDir) -> Prefix | None:
    """Return what the run begins with; ``None`` if that is nothing. Raises :class:`DamagedFileError`."""
    first = run.prefix
    return None if first is None else read_record(Prefix, first.prefix_path, "a prefix")


def place_prefix(run: RunDir, source: RunDir, prefix: Prefix) -> None:
    """Make the final state of ``source`` the run's attempt 0, whole or not at all.

    For a run without attempts; call under the sweep's lock. Files are hard links where possible: no run
    changes them. Those that a program wrote in its working folder are copies, as it may append to them.
    Raises :class:`DamagedFileError` and ``StorageError``.
    """

    def fill(attempt: AttemptDir, result: Result) -> None:
        for path in written_files(source.work):
            _copy(path, run.work / path.relative_to(source.work))
        metrics = MetricsWriter(attempt.metrics, None)
        metrics.append(*(row for row in source.history(result.attempt) if row.frames <= prefix.frames))
        metrics.sync()
        metrics.close()
        for name in result.final_state:
            link_or_copy(source.path / name, attempt.checkpoints / PurePosixPath(name).name)
        for policy in source.policies(below=result.attempt + 1):
            link_or_copy(policy, attempt.policies / policy.name)

    _place(run, source, prefix, fill)


def place_policy(run: RunDir, source: RunDir, policy: Prefix) -> None:
    """Give the run the policy of ``source``, its last checkpoint, and no state; as :func:`place_prefix`."""

    def fill(attempt: AttemptDir, result: Result) -> None:
        last = policy_file(result)
        if last is None:
            raise DamagedFileError(source.result_path, "names no checkpoint, so it has no policy")
        link_or_copy(source.path / last, attempt.init)

    _place(run, source, policy, fill)


def policy_file(result: Result) -> str | None:
    """Return the last checkpoint of a finished run, by its path in the run's folder; ``None`` without one."""
    found = ((_frames((item.path,)), item.path) for item in result.manifest)
    return max(((frames, path) for frames, path in found if frames is not None), default=(0, None))[1]


def _place(run: RunDir, source: RunDir, prefix: Prefix, fill: Callable[[AttemptDir, Result], None]) -> None:
    """Make an attempt 0 that ``fill`` writes, whole or not at all."""
    whole, result = run.attempt(0), source.result()
    draft = whole.path.with_name(_DRAFT)
    shutil.rmtree(draft, ignore_errors=True)  # of a killed command
    if whole.prefix_path.exists() or result is None:
        return
    attempt = AttemptDir(draft / whole.path.name)
    with storage_errors(draft):
        attempt.path.mkdir(parents=True)
        fill(attempt, result)
        write_atomic(attempt.prefix_path, dump_json(plain(prefix), indent=1))
        os.rename(attempt.path, whole.path)
        draft.rmdir()


def _frames(names: Iterable[str]) -> int | None:
    """Return the frames of the most advanced checkpoint among files; ``None`` without one."""
    matches = map(CHECKPOINT.fullmatch, (PurePosixPath(name).name for name in names))
    return max((int(match["frames"]) for match in matches if match), default=None)


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its time, whole or not at all."""
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = temporary_name(target)
        shutil.copy2(source, draft)
        os.replace(draft, target)

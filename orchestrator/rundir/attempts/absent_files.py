"""The absence mark in a run's folder: files of a finished run that lie elsewhere.

They were left at the source of a copy, or moved: the result counts as complete without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.rundir.files.atomic import dump_json, read_record, write_atomic

MARK = ".absent.json"


@dataclass(frozen=True)
class AbsentFiles:
    """Manifest files, relative to the run's folder, that lie at ``where`` (text for users)."""

    where: str
    files: frozenset[str]


_NONE = AbsentFiles("", frozenset())


def read_absent(run_folder: Path) -> AbsentFiles:
    """Read the absence mark; empty if the run has none. Raises :class:`DamagedFileError`."""
    return read_record(AbsentFiles, run_folder / MARK, "a list of absent files") or _NONE


def mark_absent(run_folder: Path, where: str, files: Iterable[str]) -> None:
    """Record the files that lie elsewhere; without any, remove the mark."""
    path = run_folder / MARK
    if names := sorted(files):
        write_atomic(path, dump_json({"where": where, "files": names}), durable=False)
    else:
        path.unlink(missing_ok=True)

"""What becomes of a run's folder once its result is published."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.rundir.run import RunDir


def tidy_finished(run: RunDir, result: Mapping[str, Any], also: Iterable[str] = ()) -> None:
    """Remove what a finished run needs no more: everything but its small records and the manifest's files.

    ``also`` are further files to keep, by their paths in the run's folder. Safe to be killed in and to be
    called again.
    """
    kept = {run.path / item["path"] for item in result["manifest"]} | {run.path / path for path in also}
    for attempt in run.current_attempts():
        kept |= {attempt.claim_path, attempt.end_path, attempt.log, attempt.metrics}
    kept |= {parent for path in kept for parent in path.parents}
    for attempt in run.current_attempts():
        for path in list(_dispensable(attempt.path, kept)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _dispensable(folder: Path, kept: set[Path]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path not in kept:
            yield path
        elif path.is_dir():
            yield from _dispensable(path, kept)

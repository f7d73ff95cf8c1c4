"""Whether jobs elsewhere still train runs of synced sweeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.control.poll import poll_sweep
from orchestrator.rundir import SweepDir
from orchestrator.sync.listing import folder_of
from orchestrator.sync.source import Source


def works(source: Source, results: Path, names: Iterable[str]) -> bool:
    """Whether one of these sweeps had unfinished jobs there at the last sync."""
    folders = (folder_of(SweepDir(results.absolute(), name), source).path for name in names)
    return any(poll_sweep(SweepDir(folder.parent, folder.name)).active for folder in folders)

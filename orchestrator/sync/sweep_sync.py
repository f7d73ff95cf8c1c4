"""The sync of one sweep from one source: its state, and where its files go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.copy_origin import SOURCES, SYNCED
from orchestrator.rundir.synced import RUNS, CopyDir, State, copy_of, further_copy, refuse_links
from orchestrator.sync.listing import ListedSweep
from orchestrator.sync.request import SyncOptions, SyncReport
from orchestrator.sync.rsync import Rsync
from orchestrator.sync.source import Source


@dataclass(frozen=True)
class SweepSync:
    """The sync of one sweep. ``sweep``: its folder in the results folder. ``folder``: the source's copy.

    ``began``: when the source was listed, in epoch seconds. ``suspect``: finished runs to read again here.
    """

    rsync: Rsync
    listed: ListedSweep
    sweep: SweepDir
    folder: CopyDir
    options: SyncOptions
    state: State
    report: SyncReport
    began: float
    suspect: set[str] = field(default_factory=set)

    @property
    def source(self) -> str:
        """The source, as a user writes it."""
        return self.rsync.source.text

    def run(self, run_id: str) -> RunDir:
        """Return this source's copy of a run."""
        return self.folder.run(run_id)

    def token(self, run_id: str) -> str:
        """Return the version of a run stored once it is complete, with the selection of files."""
        selection = self.options.selection
        return self.listed.runs[run_id].token + (f"\t{selection}" if selection else "")


def sweep_sync_of(
    rsync: Rsync, listed: ListedSweep, began: float, results: Path, options: SyncOptions
) -> SweepSync:
    """Prepare the sync of a sweep, listed at ``began``, into the results folder (an absolute path)."""
    sweep = SweepDir(results, listed.name)
    folder = folder_of(sweep, rsync.source)
    finished = sum(run.result is not None for run in listed.runs.values())
    report = SyncReport(listed.name, runs=len(listed.runs), finished=finished)
    return SweepSync(rsync, listed, sweep, folder, options, folder.state(), report, began)


def folder_of(sweep: SweepDir, source: Source) -> CopyDir:
    """Return the folder of this source's copy: the sweep's own, unless that has another origin."""
    copy = copy_of(sweep)
    further = sweep.latest_grid() is not None if copy is None else copy.name != source.name
    folder = further_copy(sweep, source.name) if further else CopyDir(sweep.path)
    own = sweep.path / SYNCED
    folders = [sweep.path, sweep.path / RUNS, sweep.path / SOURCES, own, folder.path, folder.path / SYNCED]
    refuse_links([*folders, own / "lock", folder.incoming, folder.staged], sweep.results)
    return folder

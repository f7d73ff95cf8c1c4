"""The sync of one sweep from one source: its state, and where its files go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.copy_origin import SOURCES, SYNCED
from orchestrator.rundir.synced import (
    RUNS,
    CopyDir,
    State,
    copy_of,
    further_copies,
    further_copy,
    refuse_links,
)
from orchestrator.sync.listing import ListedSweep
from orchestrator.sync.request import SyncOptions, SyncReport
from orchestrator.sync.rsync import Rsync
from orchestrator.sync.source import Source


@dataclass(frozen=True)
class SweepSync:
    """The sync of one sweep. ``sweep``: its folder in the main tree. ``folder``: the source's copy.

    ``taken``: runs with another source's version in the main tree. ``began``: when the source was listed, in
    epoch seconds. ``suspect``: finished runs to read again here.
    """

    rsync: Rsync
    listed: ListedSweep
    sweep: SweepDir
    folder: CopyDir
    options: SyncOptions
    state: State
    taken: set[str]
    report: SyncReport
    began: float
    suspect: set[str] = field(default_factory=set)

    @property
    def main(self) -> bool:
        """Whether the main tree is a copy of this source."""
        return self.folder.path == self.sweep.path

    @property
    def source(self) -> str:
        """The source, as a user writes it."""
        return self.rsync.source.text

    def where(self, run_id: str) -> Path:
        """Return the folder, laid out like a sweep, that has this source's version of a run."""
        if self.main and run_id in self.taken:
            return further_copy(self.sweep, self.rsync.source.name).path
        here = self.main or run_id in self.state.placed or run_id in self.state.adopted
        return self.sweep.path if here else self.folder.path

    def run(self, run_id: str) -> RunDir:
        """Return this source's version of a run."""
        return RunDir(self.where(run_id) / RUNS / run_id)

    def adopted(self, run_id: str) -> bool:
        """Return whether the main tree has the run from elsewhere, with the same result as this source."""
        return not self.main and run_id in self.state.adopted

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
    others = [other for other, _ in further_copies(sweep) if other.path != folder.path]
    taken = {run_id for other in others for run_id in other.state().placed}
    finished = sum(run.result is not None for run in listed.runs.values())
    report = SyncReport(listed.name, runs=len(listed.runs), finished=finished)
    return SweepSync(rsync, listed, sweep, folder, options, folder.state(), taken, report, began)


def folder_of(sweep: SweepDir, source: Source) -> CopyDir:
    """Return the folder of this source's copy: the sweep's own, unless that has another origin."""
    copy = copy_of(sweep)
    further = sweep.latest_grid() is not None if copy is None else copy.name != source.name
    folder = further_copy(sweep, source.name) if further else CopyDir(sweep.path)
    own = sweep.path / SYNCED
    folders = [sweep.path, sweep.path / RUNS, sweep.path / SOURCES, own, folder.path, folder.path / SYNCED]
    refuse_links([*folders, own / "lock", folder.incoming, folder.staged], sweep.results)
    return folder

"""What a sync is at: one sweep of one source, and where it comes to."""

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
from orchestrator.sync.listing import SweepThere
from orchestrator.sync.request import SyncOptions, SyncReport
from orchestrator.sync.rsync import Rsync
from orchestrator.sync.source import Source


@dataclass(frozen=True)
class SweepSync:
    """A sweep at a source, and where it comes to. ``sweep`` is the main tree's, ``folder`` the source's copy.

    ``taken``: runs of which the main tree has another source's version. ``began``: when the list of what is
    there was made, in epoch seconds. ``suspect``: finished runs whose files here are to be read again.
    """

    rsync: Rsync
    there: SweepThere
    sweep: SweepDir
    folder: CopyDir
    wish: SyncOptions
    state: State
    taken: set[str]
    brought: SyncReport
    began: float
    suspect: set[str] = field(default_factory=set)

    @property
    def main(self) -> bool:
        """Whether the main tree is a copy of this source."""
        return self.folder.path == self.sweep.path

    @property
    def source(self) -> str:
        return self.rsync.source.text

    def where(self, run_id: str) -> Path:
        """The folder, laid out like a sweep, that has this source's version of a run."""
        if self.main and run_id in self.taken:
            return further_copy(self.sweep, self.rsync.source.name).path
        here = self.main or run_id in self.state.placed or run_id in self.state.adopted
        return self.sweep.path if here else self.folder.path

    def run(self, run_id: str) -> RunDir:
        return RunDir(self.where(run_id) / RUNS / run_id)

    def adopted(self, run_id: str) -> bool:
        """Whether the main tree has the run from elsewhere, with the very result that this source has."""
        return not self.main and run_id in self.state.adopted

    def token(self, run_id: str) -> str:
        """What is remembered of a run that need not be looked at again, with what was left out of it."""
        return self.there.runs[run_id].token + (f"\t{self.wish.selection}" if self.wish.selection else "")


def sweep_sync_of(
    rsync: Rsync, there: SweepThere, began: float, results: Path, wish: SyncOptions
) -> SweepSync:
    """The task of bringing a sweep, listed when it ``began``, to the results folder (an absolute path)."""
    sweep = SweepDir(results, there.name)
    folder = folder_of(sweep, rsync.source)
    others = [other for other, _ in further_copies(sweep) if other.path != folder.path]
    taken = {run_id for other in others for run_id in other.state().placed}
    finished = sum(run.result is not None for run in there.runs.values())
    brought = SyncReport(there.name, runs=len(there.runs), finished=finished)
    return SweepSync(rsync, there, sweep, folder, wish, folder.state(), taken, brought, began)


def folder_of(sweep: SweepDir, source: Source) -> CopyDir:
    """Where this source's copy is, or is to be: the sweep's own folder unless that is somebody else's."""
    copy = copy_of(sweep)
    further = sweep.latest_grid() is not None if copy is None else copy.name != source.name
    folder = further_copy(sweep, source.name) if further else CopyDir(sweep.path)
    own = sweep.path / SYNCED
    folders = [sweep.path, sweep.path / RUNS, sweep.path / SOURCES, own, folder.path, folder.path / SYNCED]
    refuse_links([*folders, own / "lock", folder.incoming, folder.staged], sweep.results)
    return folder

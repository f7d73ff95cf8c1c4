"""List the sweeps at a source, their runs and results, and prepare the sync of each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.errors import NotFoundError
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import MARK
from orchestrator.rundir.copies.synced import (
    BUCKETS,
    CODE,
    INDEX,
    JOURNALS,
    RESULT,
    RUNS,
    TOO_HIGH,
    CopyDir,
    State,
    refuse_links,
)
from orchestrator.rundir.copy_origin import SOURCES, SYNCED, read_copy
from orchestrator.rundir.descriptions import FOLDER as DESCRIPTIONS
from orchestrator.rundir.index import RUN_ID, SWEEP_NAME
from orchestrator.rundir.run import RETIRED
from orchestrator.rundir.sweep import GRIDS, LEDGER
from orchestrator.sync.request import SyncOptions, SyncReport
from orchestrator.sync.rsync import ListedFile, Rsync
from orchestrator.sync.source import Source

_FOLDERS = (RUNS, CODE, JOURNALS, DESCRIPTIONS, GRIDS, LEDGER)


@dataclass
class ListedRun:
    """A run at the source. ``stamp``: of its folder. ``result``: stamp of its result. ``retired``: stamps of
    results put aside.
    """

    stamp: str
    result: str | None = None
    retired: dict[str, str] = field(default_factory=dict)
    pruned: bool = False

    @property
    def token(self) -> str:
        """Version of the run, which changes when the run does, once it has a result."""
        return f"{self.result} {self.stamp}"


@dataclass
class ListedSweep:
    """A sweep at the source. ``entries``: the files and folders in it, except runs and codes."""

    name: str
    entries: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    runs: dict[str, ListedRun] = field(default_factory=dict)
    index: str = ""


@dataclass(frozen=True)
class ListedTree:
    """The sweeps at a source. ``refused``: names that no sweep or run has; never fetched."""

    sweeps: Mapping[str, ListedSweep]
    refused: Sequence[str]


def list_tree(rsync: Rsync, only: Sequence[str] = ()) -> ListedTree:
    """List all sweeps at the source, or those named; :class:`NotFoundError` if there is none."""
    with tempfile.TemporaryDirectory() as nothing:
        listing = rsync.list("", Path(nothing), rules=_rules(only))
    found: dict[str, ListedSweep] = {}
    refused = list(listing.special)
    for entry in listing.entries:
        if not entry.plain or not _add(found, entry):
            refused.append(entry.path)
    sweeps = {name: there for name, there in sorted(found.items()) if GRIDS in there.entries}
    missing = [name for name in only if name not in sweeps]
    if missing or not sweeps:
        what = f"no sweep named {missing[0]!r}" if missing else "no sweep"
        known = f" (found: {', '.join(sweeps)})" if sweeps else ""
        raise NotFoundError(
            f"{what} in {rsync.source.text}{known}",
            hint="a results tree has a folder for each sweep; give its path: user@host:path",
        )
    return ListedTree(sweeps, refused)


def _rules(only: Sequence[str]) -> list[str]:
    tops = [f"+ /{name}/" for name in only if SWEEP_NAME.fullmatch(name)] or ["+ /*/"]
    runs = [f"+ /*/{RUNS}/*/{name}" for name in (RESULT, "retired-*.json", MARK)]
    return [
        f"- /{BUCKETS}/",
        *tops,
        "- /*",
        "- /*/.*",
        f"- /*/{SOURCES}/",
        f"+ /*/{RUNS}/",
        f"+ /*/{RUNS}/*/",
        *runs,
        f"- /*/{RUNS}/**",
        f"+ /*/{CODE}/",
        f"+ /*/{CODE}/*/",
        f"- /*/{CODE}/**",
        "+ /*/*",
        "- *",
    ]


def _add(found: dict[str, ListedSweep], entry: ListedFile) -> bool:
    """Add a listed file or folder; ``False`` for an unexpected name."""
    name, *rest = entry.path.split("/")
    if not SWEEP_NAME.fullmatch(name):
        return False
    sweep = found.setdefault(name, ListedSweep(name))
    match rest:
        case [top] if entry.folder != (top in _FOLDERS) and top in (*_FOLDERS, INDEX):
            return False
        case [top, run_id, *inside] if top == RUNS:
            return _add_run(sweep, run_id, inside, entry)
        case [top, code_id] if top == CODE and entry.folder:
            sweep.codes.append(code_id)
        case [top] if top == INDEX:
            sweep.index = entry.stamp
        case [top] if top not in (RUNS, CODE):
            sweep.entries.append(top)
        case [_, _, *_]:
            return False
    return True


def _add_run(sweep: ListedSweep, run_id: str, inside: list[str], entry: ListedFile) -> bool:
    if not RUN_ID.fullmatch(run_id) or entry.folder == bool(inside):  # only files of a run are listed
        return False
    run = sweep.runs.setdefault(run_id, ListedRun(entry.stamp))
    match inside:
        case []:
            run.stamp = entry.stamp
        case [name] if name == RESULT:
            run.result = entry.stamp
        case [name] if RETIRED.fullmatch(name) and not TOO_HIGH.match(name):
            run.retired[name] = entry.stamp
        case [name] if name == MARK:
            run.pruned = True
        case _:
            return False
    return True


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
    copy = read_copy(sweep.path)
    further = sweep.latest_grid() is not None if copy is None else copy.name != source.name
    folder = CopyDir(sweep.path / SOURCES / source.name if further else sweep.path)
    own = sweep.path / SYNCED
    folders = [sweep.path, sweep.path / RUNS, sweep.path / SOURCES, own, folder.path, folder.path / SYNCED]
    refuse_links([*folders, own / "lock", folder.incoming, folder.staged], sweep.results)
    return folder

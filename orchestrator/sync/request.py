"""The request to a sync: options, and the files that they select by name; its progress and report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.core.formatting import listed
from orchestrator.rundir.attempts.absent_files import MARK
from orchestrator.rundir.attempts.attempt import CHECKPOINT
from orchestrator.rundir.copies.synced import CODE, INDEX, KINDS, RESULT, RUNS, kind_of
from orchestrator.rundir.index import index_rows
from orchestrator.status.select_runs import select_runs

_NAMED = 5


@dataclass(frozen=True)
class SyncOptions:
    """Sweeps, runs (selected as in `status`) and kinds of files to fetch; all by default.

    ``verify``: read all files here of finished runs and frozen code again; fetch damaged ones.
    """

    sweeps: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    latest_checkpoint: bool = False
    verify: bool = False

    @property
    def selection(self) -> str:
        """Text of the selected kinds; empty if runs are fetched completely."""
        kinds = "" if self.only is None else ",".join(sorted(self.only)) or "records"
        return f"{kinds}{' latest' if self.latest_checkpoint else ''}"

    def wants(self, path: PurePosixPath) -> bool:
        """Return whether a run's file is selected, by its path in the run's folder; any checkpoint counts
        alike.
        """
        kind = kind_of(path)
        return self.only is None or kind == "" or kind in self.only


def kinds(text: str) -> frozenset[str]:
    """Parse the kinds in ``metrics,checkpoints``. Raises :class:`OrchestrateError`."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found or [text]:
        if word not in KINDS:
            raise OrchestrateError(
                f"--only: found {word!r}, expected some of {', '.join(KINDS)}",
                hint=f"for example: --only {KINDS[0]},{KINDS[1]}",
            )
    return frozenset(found)


@dataclass(frozen=True)
class WantedFiles:
    """The files of a results tree to fetch; names are paths in the tree.

    ``others``: folders of runs not selected. ``outdated``: checkpoints not fetched, each with the newest of
    its run.
    """

    options: SyncOptions
    others: frozenset[str] = frozenset()
    outdated: Mapping[str, str] = field(default_factory=dict)

    def is_listed(self, name: str) -> bool:
        """Return whether the file counts: all of selected runs, the small records of others."""
        return name.count("/") < 4 or _run_of(name) not in self.others

    def is_selected(self, name: str) -> bool:
        """Return whether the file is outside runs that are not selected."""
        return _run_of(name) not in self.others

    def comes(self, name: str) -> bool:
        """Return whether the file itself is fetched."""
        _, top, *rest = name.split("/")
        if top == CODE:
            return self.options.only is None
        if top != RUNS or len(rest) < 2:
            return True
        if name in self.outdated or not self.is_selected(name):
            return False
        return rest[1] in (RESULT, MARK) or self.options.wants(PurePosixPath(*rest[1:]))


def find_wanted(options: SyncOptions, names: Iterable[str], tree: Path) -> WantedFiles:
    """Select from these files; without its index in ``tree``, all runs of a sweep are selected."""
    runs: dict[str, list[str]] = {}
    for name in names:
        if run := _run_of(name):
            runs.setdefault(run, []).append(name)
    sweeps = {run.partition("/")[0] for run in runs} if options.runs else set()
    selected: dict[str, set[str]] = {}
    for sweep in sweeps:
        if (index := tree / sweep / INDEX).is_file():
            selected[sweep] = set().union(*matching_runs(index, options.runs).values())
    others = frozenset(run for run in runs if not _is_selected(run, selected))
    outdated: dict[str, str] = {}
    for run in runs.keys() - others if options.latest_checkpoint else ():
        sweep = run.partition("/")[0]
        found = checkpoints(name.removeprefix(f"{sweep}/") for name in runs[run])
        outdated |= {f"{sweep}/{name}": f"{sweep}/{found[-1]}" for name in found[:-1]}
    return WantedFiles(options, others, outdated)


def matching_runs(index: Path, selectors: Sequence[str]) -> dict[str, set[str]]:
    """Return the ids of the runs that match each selector, from an index file."""
    try:
        rows = index_rows(index)
    except DamagedFileError:
        rows = []
    return {selector: {row.run_id for row in select_runs(rows, selector)} for selector in selectors}


def is_index(name: str) -> bool:
    """Return whether a file is a sweep's index, by its path in the tree."""
    return name.partition("/")[2] == INDEX


def checkpoints(names: Iterable[str]) -> list[str]:
    """Return the checkpoints among a run's files, by their paths in the sweep's folder, in order
    of progress.
    """
    found = []
    for name in names:
        parts = name.split("/")
        match = CHECKPOINT.fullmatch(parts[-1])
        if match and len(parts) == 6 and parts[3].isdecimal():
            found.append((int(match["frames"]), int(parts[3]), name))
    return [name for _, _, name in sorted(found)]


def _run_of(name: str) -> str:
    """Return the run's folder of a file, by its path in the tree; empty outside runs."""
    parts = name.split("/")
    return "/".join(parts[:3]) if len(parts) > 3 and parts[1] == RUNS else ""


def _is_selected(run: str, selected: Mapping[str, set[str]]) -> bool:
    sweep, _, run_id = run.split("/")
    return sweep not in selected or run_id in selected[sweep]


class SyncProgress:
    """Shows the progress of a sync; this one shows nothing."""

    def expect(self, sweep: str, files: int, size: int) -> None:
        """Begin a sweep with this many files and bytes to fetch."""

    def came(self, size: int) -> None:
        """Show the bytes fetched so far."""

    def begin(self, what: str) -> None:
        """Show the begin of a slow step without byte counts, such as a listing."""

    def say(self, text: str) -> None:
        """Show a message."""


@dataclass
class SyncReport:
    """The outcome of a sync for one sweep.

    ``complete``: runs verified just now. ``finished``: all runs with a result at the source. ``files``,
    ``size`` (bytes): fetched, or to fetch. ``due``: runs with a result to fetch. ``put_aside``: runs here to
    put aside as at the source. ``fitting``: selectors that match a run. ``problems``: differences from the
    source that remain. ``notes``: other messages. ``happened``: messages about runs, with their ids.
    ``lack``: the error where files do not fit on the disk.
    """

    sweep: str
    files: int = 0
    size: int = 0
    complete: list[str] = field(default_factory=list)
    finished: int = 0
    runs: int = 0
    due: int = 0
    put_aside: int = 0
    fitting: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    happened: dict[str, list[str]] = field(default_factory=dict)
    lack: StorageError | None = None

    def tell(self, run_id: str, what: str) -> None:
        """Add a message about a run; runs with the same message share a line."""
        self.happened.setdefault(what, []).append(run_id)

    def summarise(self) -> None:
        """Turn messages about runs into notes."""
        for what, run_ids in self.happened.items():
            runs = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
            named = f": {listed(run_ids, _NAMED)}" if len(run_ids) > 1 else ""
            self.notes.append(f"{runs}: {what}{named}")
        self.happened.clear()

"""Select the files of a source to fetch, by their names alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.absent_files import MARK
from orchestrator.rundir.attempt import CHECKPOINT
from orchestrator.rundir.index import index_rows
from orchestrator.rundir.synced import CODE, INDEX, RESULT, RUNS
from orchestrator.status.select_runs import select_runs
from orchestrator.sync.request import SyncOptions


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

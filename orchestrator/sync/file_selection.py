"""Choose the files to fetch from a listing, by name and kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir
from orchestrator.rundir.attempts.absent_files import MARK
from orchestrator.rundir.copies.synced import RESULT, RUNS, is_brought, is_derived, kind_of
from orchestrator.rundir.files.placed import is_placed_copy
from orchestrator.rundir.records.result import ManifestItem
from orchestrator.rundir.run import ATTEMPTS, WORK
from orchestrator.sync.request import SyncOptions, checkpoints
from orchestrator.sync.rsync import ListedFile, Listing
from orchestrator.sync.verify import is_as_listed


@dataclass
class ChosenFiles:
    """Files to fetch of one run, or of the sweep outside its runs (empty ``run_id``), into the folder
    ``here``.

    ``names``: relative to the sweep's folder, at the source and here. ``there``: all files at the source,
    relative to the run's folder or the sweep's. ``refused``: unusable names. ``kept``: files verified here
    with another size or time at the source; ``same``: those of them with equal content. ``whole``: the
    listing is complete. ``fresh``: nothing of it was here before. ``repaired``: files listed by a result here
    are fetched again. ``misplaced``: folders where a run has a file, or the other way round; not fetched.
    """

    here: Path
    run_id: str = ""
    whole: bool = True
    fresh: bool = False
    repaired: bool = False
    names: list[str] = field(default_factory=list)
    files: int = 0
    size: int = 0
    there: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    kept: list[ListedFile] = field(default_factory=list)
    same: list[ListedFile] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)

    def take(self, entry: ListedFile) -> None:
        """Add a file or folder."""
        self.names.append(entry.path)
        if not entry.folder:
            self.files += 1
            self.size += entry.size


def choose(listing: Listing, here: Path, options: SyncOptions) -> list[ChosenFiles]:
    """Choose the files to fetch from a listing compared with the folder ``here``: the sweep's, then each
    run's.
    """
    whole = not listing.problems
    groups: dict[str, list[ListedFile]] = {"": []}
    for entry in listing.entries:
        groups.setdefault(run_of(entry.path), []).append(entry)
    return [
        _choose(ChosenFiles(here, run_id, whole), group, options) for run_id, group in groups.items() if group
    ]


def run_of(path: str) -> str:
    """Return the run of a file or folder, by its path in the sweep's folder; empty if it is of none."""
    top, *rest = path.split("/", 2)
    return rest[0] if top == RUNS and rest else ""


def _choose(chosen: ChosenFiles, entries: Sequence[ListedFile], options: SyncOptions) -> ChosenFiles:
    here, run_id = chosen.here, chosen.run_id
    chosen.fresh = all(entry.new for entry in entries)
    base = here / RUNS / run_id if run_id else here
    verified = _manifest(base) if run_id and any(entry.new for entry in entries) else {}
    outdated = (
        checkpoints(entry.path for entry in entries)[:-1] if run_id and options.latest_checkpoint else []
    )
    for entry in entries:
        path = PurePosixPath(entry.path)
        if not entry.plain:
            chosen.refused.append(entry.path)
            continue
        inside = PurePosixPath(*path.parts[2:]) if run_id else path
        if run_id and inside.parts and not _is_in_place(inside, entry.folder):
            chosen.misplaced += [entry.path] * (len(inside.parts) == 1)
            chosen.whole = False
            continue
        if not is_brought(path) or (not entry.folder and _is_placed(inside, entry.time)):
            continue
        if inside.parts:
            chosen.there.add(inside.as_posix())
        if not entry.new or entry.path in outdated or not _is_wanted(entry, inside, options, bool(run_id)):
            continue
        listed = inside.as_posix() in verified
        if listed and is_as_listed(base, verified[inside.as_posix()]):
            chosen.kept.append(entry)
        elif run_id or not _newer_here(entry, here):
            chosen.take(entry)
            chosen.repaired = chosen.repaired or listed
    parents = {name.rpartition("/")[0] for name in chosen.names}
    chosen.names = [name for name in chosen.names if name not in parents]  # fetched with their files
    return chosen


def _is_in_place(inside: PurePosixPath, folder: bool) -> bool:
    """Return whether names reserved for files are files in a run's folder, and those for folders
    are folders.
    """
    top, *more = inside.parts
    if top in (RESULT, MARK) or kind_of(PurePosixPath(top)) == "":
        return not folder and not more
    return top != ATTEMPTS or folder or bool(more)


def _is_placed(inside: PurePosixPath, changed: float) -> bool:
    """Return whether a file of a run is one of the project's, placed in the working folder for a while."""
    top, *more = inside.parts or ("",)
    return top == WORK and is_placed_copy("/".join(more), changed)


def _is_wanted(entry: ListedFile, inside: PurePosixPath, options: SyncOptions, of_run: bool) -> bool:
    if entry.folder and of_run and inside.parts[:1] == (WORK,):
        return False  # fetched with its files: one of the project has none to fetch
    if not of_run or options.only is None:
        return True
    return not entry.folder and options.wants(inside)  # folders are fetched with their files


def _newer_here(entry: ListedFile, here: Path) -> bool:
    """Return whether tables, a report or a comparison here are newer than those at the source."""
    if entry.folder or not is_derived(PurePosixPath(entry.path)):
        return False
    try:
        return (here / entry.path).stat().st_mtime > entry.time
    except FileNotFoundError:
        return False


def _manifest(folder: Path) -> Mapping[str, ManifestItem]:
    """Return the files listed by a published result: an intact one is never replaced."""
    try:
        return {item.path: item for item in RunDir(folder).manifest()}
    except DamagedFileError:
        return {}

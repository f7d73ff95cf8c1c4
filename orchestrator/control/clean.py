"""Free disk space: find files that no run and no command needs any more, and remove them.

:func:`surplus` lists and changes nothing; :func:`remove` lists again under the sweep's lock and removes
exactly that. A removal that was killed is completed by the next one.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

from orchestrator.config.code.snapshot import is_whole
from orchestrator.control.cloud.cloud_instances import sent_jobs
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import amount, count, listed, moment
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.types import RunState, array_of
from orchestrator.rundir import CodeDir, Result, RunDir, SweepDir, removable
from orchestrator.rundir.attempts.absent_files import mark_absent, read_absent
from orchestrator.rundir.copies.synced import no_sync
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.files.placed import written_files
from orchestrator.rundir.records.ledger_entries import AssignedEntry, DamagedEntry, jobs_of, submissions
from orchestrator.rundir.removable import CHECKPOINTS, OPTIONAL_KINDS
from orchestrator.rundir.run import WORK
from orchestrator.status.survey import Survey
from orchestrator.sync.wandb import plan_uploads

OUTSIDE = "outside-grid"
# What `--drop` can name, each with what it removes.
DROPPABLE: Mapping[str, str] = {
    "tensorboard": "TensorBoard's event files",
    "wandb": "uploaded W&B logs",
    "policies": "policies kept in training",
    "state": "replay memories of finished runs",
    OUTSIDE: "checkpoints of runs outside the grid",
    WORK: "working folders of finished programs",
}
_LEFTOVERS, _RETIRED = "leftovers of finished runs", "attempts before a retry"
_TEMPORARY, _CODE = "temporary files of killed runs", "code that no run refers to"
# Files named at most that stand in the way.
_MOST_NAMED = 8
_HALF_REMOVED = "rest of a removed sweep"
# Seconds after which a code snapshot without a submission is not on its way to one.
_CODE_UNUSED_S = 86400.0
_AT_WORK = (RunState.RUNNING, RunState.STALLED, RunState.QUEUED, RunState.UNKNOWN)


@dataclass(frozen=True)
class CleanOptions:
    """``drop``: keys of :data:`DROPPABLE`. ``older_than``: seconds since the end of a run, or of a sweep."""

    drop: frozenset[str] = frozenset()
    older_than: float = 0.0


@dataclass
class Group:
    """Files, or whole folders, to remove for one reason, and the bytes that this frees."""

    what: str
    files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    size: int = 0
    count: int = 0


@dataclass
class Surplus:
    """The groups of a sweep, or of one run, to remove.

    ``kept``: bytes by kind that `--drop` would remove. ``absent``: files to remove that results list, by run.
    ``not_uploaded``: runs that keep their W&B logs therefore; ``further``: versions of runs that do, because
    another version counts. ``left``: problems for users, with the path that is left as it is.
    """

    sweep: str
    groups: dict[str, Group] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    absent: dict[Path, list[Path]] = field(default_factory=dict)
    not_uploaded: int = 0
    further: int = 0
    left: list[str] = field(default_factory=list)

    def add(self, what: str, files: Sequence[Path], folder: Path | None = None) -> None:
        """Add files to a group, or a folder with these files; nothing without both."""
        if files or folder is not None:
            size = removable.size_of(files)
            folders = [] if folder is None else [folder]
            self._merge(Group(what, [] if folders else list(files), folders, size, len(files)))

    def drop(self, what: str, run: RunDir, files: Sequence[Path]) -> None:
        """Add files that the run's result lists to a group."""
        self.add(what, files)
        if files:
            self.absent.setdefault(run.path, []).extend(files)

    def merge(self, other: Surplus) -> None:
        """Add all of a run's surplus."""
        for group in other.groups.values():
            self._merge(group)
        self.kept += other.kept
        self.absent |= other.absent
        self.not_uploaded += other.not_uploaded
        self.further += other.further
        self.left += other.left

    def _merge(self, group: Group) -> None:
        own = self.groups.setdefault(group.what, Group(group.what))
        own.files += group.files
        own.folders += group.folders
        own.size += group.size
        own.count += group.count


def surplus(sweep_dir: SweepDir, options: CleanOptions) -> Surplus:
    """List the sweep's files that can be removed."""
    found = Surplus(sweep_dir.name)
    if sweep_dir.path.is_symlink():
        found.left.append(f"{sweep_dir.path}: is a link, expected a folder")
        return found
    seen, not_uploaded = poll_sweep(sweep_dir), _not_uploaded(sweep_dir, options)
    for tree in (sweep_dir, *sweep_dir.copies()):
        tree_runs = _TreeRuns(sweep_dir, tree, options, seen, not_uploaded)
        for one in read_all(tree_runs.surplus, removable.run_ids(tree)):
            found.merge(one)
    if read_copy(sweep_dir.path) is None:
        _add_code(sweep_dir, seen, options, found)
    if found.not_uploaded:
        runs = count(found.not_uploaded, "run")
        found.left.append(f"W&B logs of {runs} that are not uploaded; first: orchestrate sync --wandb")
    if found.further:
        runs = count(found.further, "run")
        found.left.append(
            f"W&B logs of {runs} that another source finished, too: only the versions that count are uploaded"
        )
    found.left += [f"{path}: was not written by this program" for path in removable.strange_names(sweep_dir)]
    return found


def remove(sweep_dir: SweepDir, options: CleanOptions) -> Surplus:
    """Remove what :func:`surplus` lists; return it. Raises :class:`OrchestrateError`."""
    if sweep_dir.path.is_symlink():
        return surplus(sweep_dir, options)
    with sweep_dir.lock(), no_sync(sweep_dir):
        found = surplus(sweep_dir, options)
        for folder, files in found.absent.items():
            before = read_absent(folder)
            names = {path.relative_to(folder).as_posix() for path in files}
            mark_absent(folder, before.where, before.files | names)
        if found.absent:
            os.sync()  # after a power cut no result may lack files without the mark
        for group in found.groups.values():
            removable.remove_files(group.files)
            for away in map(removable.put_away, group.folders):
                removable.remove_folder(away)
    return found


def whole(sweep_dir: SweepDir, options: CleanOptions) -> Surplus:
    """List a whole sweep as surplus; raise :class:`OrchestrateError` if it must stay."""
    name, path = sweep_dir.name, sweep_dir.path
    found = Surplus(name)
    if path.is_symlink():
        hint = "remove the link, or name the folder that it leads to with --results"
        raise OrchestrateError(f"{path} is a link, expected a folder", hint=hint)
    strange = removable.strange_names(sweep_dir)
    strange += chain.from_iterable(map(_written_into, removable.code_snapshots(sweep_dir)))
    if strange:
        names = listed(list(map(str, strange)), _MOST_NAMED)
        raise OrchestrateError(
            f"{name} cannot be removed as a whole: {names} not written by this program",
            hint="move that elsewhere, then run the same command again",
        )
    seen = poll_sweep(sweep_dir)
    if read_copy(sweep_dir.path) is None:
        _require_over(sweep_dir, seen)
    now, last = time.time(), _last_event(sweep_dir)
    since = f"idle since {moment(last, now)}" if last else "never submitted"
    if options.older_than and now - (last or path.stat().st_mtime) < options.older_than:
        found.left.append(f"{path}: {since}, which is younger than --older-than")
        return found
    counted = Counter(status.state for status in seen.statuses.values())
    states = ", ".join(f"{counted[state]} {state.value}" for state in RunState if counted[state])
    found.add(f"all of it: {states or 'no runs'}; {since}", removable.files_of(path), path)
    return found


def remove_whole(sweep_dir: SweepDir, options: CleanOptions) -> Surplus:
    """Remove a whole sweep; return what was removed. Raises as :func:`whole`."""
    with sweep_dir.lock(), no_sync(sweep_dir):
        found = whole(sweep_dir, options)
        away = [removable.put_away(folder) for group in found.groups.values() for folder in group.folders]
    for folder in away:
        removable.remove_folder(folder)
    return found


def half_removed(results: Path, names: Iterable[str] = (), *, dry: bool) -> list[Surplus]:
    """List the rests of sweeps after a killed removal, by default of all; unless ``dry`` remove them."""
    only, rests = set(names), []
    for name, folders in removable.half_removed(results).items():
        if only and name not in only:
            continue
        found = Surplus(name)
        for folder in folders:
            found.add(_HALF_REMOVED, removable.files_of(folder), folder)
            if not dry:
                removable.remove_folder(folder)
        rests.append(found)
    return rests


@dataclass(frozen=True)
class _TreeRuns:
    """The runs in one folder of a sweep: in its own, or in that of a copy from a further source.

    ``not_uploaded``: runs that keep their W&B logs.
    """

    sweep_dir: SweepDir
    tree: SweepDir
    options: CleanOptions
    seen: Survey
    not_uploaded: frozenset[str]

    @cached_property
    def copied(self) -> bool:
        """Whether the folder is a copy."""
        return read_copy(self.tree.path) is not None

    @cached_property
    def outside(self) -> frozenset[str]:
        """Runs that the index has outside the grid."""
        return frozenset(row.run_id for row in self.seen.rows if not row.in_grid)

    def surplus(self, run_id: str) -> Surplus:
        """Return a run's surplus; a damaged run has only a problem."""
        run, found = self.tree.run(run_id), Surplus(self.tree.name)
        try:
            removable.require_folders(run)
            result = run.result()
            if result is not None:
                run.verify(result)
                self._finished(found, run, result)
            elif not self.copied:
                self._unfinished(found, run)
        except OrchestrateError as error:
            return Surplus(found.sweep, left=[str(error)])
        except OSError as error:
            return Surplus(found.sweep, left=[f"{error.filename}: {error.strerror}"])
        return found

    def _finished(self, found: Surplus, run: RunDir, result: Result) -> None:
        if not self._is_old(run.result_path.stat().st_mtime, result.ended):
            return
        # For a copy a sync would fetch the same files again.
        if not self.copied and run.blocked_by() is None:
            found.add(_LEFTOVERS, removable.leftovers(run, result))
            found.add(_RETIRED, removable.retired_files(run, result))
        needed = removable.listed_files(run, result)
        for kind in OPTIONAL_KINDS:
            files = needed.get(kind, [])
            if kind not in self.options.drop:
                found.kept[kind] += removable.size_of(files)
            elif kind == "wandb" and files and run.run_id in self.not_uploaded:
                found.not_uploaded += 1
            elif kind == "wandb" and files and self.sweep_dir.run_to_read(run.run_id).path != run.path:
                found.further += 1
            else:
                found.drop(DROPPABLE[kind], run, files)
        folders = (run.work, *(attempt.work for attempt in run.attempts()))
        written = [path for folder in folders for path in written_files(folder)]
        if WORK in self.options.drop:
            found.add(DROPPABLE[WORK], written)
        else:
            found.kept[WORK] += removable.size_of(written)
        if run.run_id in self.outside:
            files = needed.get(CHECKPOINTS, [])
            if OUTSIDE in self.options.drop:
                found.drop(DROPPABLE[OUTSIDE], run, files)
            else:
                found.kept[OUTSIDE] += removable.size_of(files)

    def _unfinished(self, found: Surplus, run: RunDir) -> None:
        status, attempts = self.seen.statuses.get(run.run_id), run.attempts()
        if self.seen.damaged:  # of a damaged ledger a queued job may be unknown
            return
        if (status is not None and status.state in _AT_WORK) or run.blocked_by() is not None:
            return
        if not attempts or not self._is_old(attempts[-1].claim_path.stat().st_mtime):
            return
        found.add(_TEMPORARY, removable.temporary_files(run))
        if run.run_id in self.outside:
            files = removable.unfinished_files(run)
            if OUTSIDE in self.options.drop:
                found.add(DROPPABLE[OUTSIDE], files)
            else:
                found.kept[OUTSIDE] += removable.size_of(files)

    def _is_old(self, changed: float, ended: object = None) -> bool:
        """Compare with the age asked for: the end on record, or else the time of the last change."""
        at = ended if isinstance(ended, int | float) else changed
        older_than = self.options.older_than
        return not older_than or time.time() - at >= older_than


def _not_uploaded(sweep_dir: SweepDir, options: CleanOptions) -> frozenset[str]:
    if "wandb" not in options.drop:
        return frozenset()
    plan = plan_uploads([sweep_dir])
    return frozenset([one.run_id for one in plan.todo] + [one.run_id for one in plan.left])


def _add_code(sweep_dir: SweepDir, seen: Survey, options: CleanOptions, found: Surplus) -> None:
    """Add code snapshots that no run, no live job and no other tree refers to, less the latest."""
    for draft in removable.code_drafts(sweep_dir):
        found.add(_CODE, removable.files_of(draft), draft)
    before = time.time() - max(options.older_than, _CODE_UNUSED_S)
    old = [code for code in removable.code_snapshots(sweep_dir) if code.path.stat().st_mtime <= before]
    try:
        in_use = set(_codes_in_use(sweep_dir, seen)) if old else set()
    except DamagedFileError as error:
        found.left.append(f"code snapshots: {error}")
        return
    for code in old:
        if code.code_id in in_use:
            continue
        if written := _written_into(code):
            names = listed([os.fspath(path.relative_to(code.path)) for path in written], _MOST_NAMED)
            size = amount(removable.size_of(written))
            found.left.append(f"{code.path}: programs wrote {names} ({size}) into it; move that elsewhere")
        else:
            found.add(_CODE, removable.files_of(code.path), code.path)


def _written_into(code: CodeDir) -> list[Path]:
    """List files in a code snapshot that are not its own, or no longer as they were stored."""
    found = removable.not_of_code(code)
    # A copied tree has new times; where all contents are those of the id, only other names are new.
    return removable.not_of_code(code, by_time=False) if found and is_whole(code) else found


def _codes_in_use(sweep_dir: SweepDir, seen: Survey) -> Iterator[str]:
    """Yield ids of code snapshots. Raises :class:`DamagedFileError` if they cannot all be known."""
    ledger = sweep_dir.read_ledger()
    for entry in ledger:
        if isinstance(entry, DamagedEntry):
            raise DamagedFileError(sweep_dir.path, f"ledger entry {entry.problem}")
        if isinstance(entry, AssignedEntry):
            yield entry.code.id
    yield from (entry.code.id for entry in submissions(ledger)[-1:] if entry.code is not None)
    tokens = chain(seen.live, *read_all(partial(_tokens, sweep_dir), sweep_dir.run_ids()))
    arrays = set(map(array_of, tokens))
    for submission, job in jobs_of(ledger):
        if submission.code is not None and array_of(job.token) in arrays:
            yield submission.code.id


def _tokens(sweep_dir: SweepDir, run_id: str) -> list[str]:
    """Return the tokens of the jobs that worked on a run's attempts, less those before a retry."""
    run = sweep_dir.run(run_id)
    attempts = run.current_attempts() if run.has_result() else run.attempts()
    claims = [attempt.claim() for attempt in attempts]
    return [claim.worker for claim in claims if claim is not None]


def _require_over(sweep_dir: SweepDir, seen: Survey) -> None:
    """Raise :class:`OrchestrateError` if anything works, or may start to work, on the sweep."""
    name = sweep_dir.name
    if seen.damaged:
        raise OrchestrateError(
            f"{name}: {'; '.join(seen.damaged)}: whether anything is queued or at work cannot be known",
            hint=f"remove the folder by hand, once nothing works on it: {sweep_dir.path}",
        )
    if sent_jobs(sweep_dir):
        raise OrchestrateError(
            f"{name} has jobs on cloud instances", hint=f"first: orchestrate status {name} --exchange"
        )
    busy = {run_id for run_id, one in seen.statuses.items() if one.state in _AT_WORK}
    busy |= {run_id for run_id in sweep_dir.run_ids() if _is_blocked(sweep_dir.run(run_id))}
    if busy or seen.live:
        what = f"{count(len(busy), 'run')} of {name} " + ("is" if len(busy) == 1 else "are")
        raise OrchestrateError(
            f"{what} queued or at work" if busy else f"{name} has jobs that are queued or at work",
            hint=f"wait for their end, or first: orchestrate cancel {name}",
        )


def _is_blocked(run: RunDir) -> bool:
    try:
        return not run.has_result() and run.blocked_by() is not None
    except DamagedFileError:
        return True


def _last_event(sweep_dir: SweepDir) -> float:
    """Return the time of the sweep's last submission, decision or event of a worker, in epoch seconds."""
    times = [entry.time for entry in sweep_dir.read_ledger() if entry.time]
    times += [log.events[-1].time for log in sweep_dir.read_journals() if log.events]
    return max(times, default=0.0)

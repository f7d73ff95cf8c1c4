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
from pathlib import Path
from typing import Any

from orchestrator.control.cloud_instances import sent_jobs
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.core.types import RunState, array_of
from orchestrator.rundir import RunDir, SweepDir, removable
from orchestrator.rundir.foreign_marks import mark_absent, origin_of, read_absent
from orchestrator.rundir.ledger_entries import AssignedEntry, DamagedEntry, jobs_of, submissions
from orchestrator.rundir.removable import CHECKPOINTS, OPTIONAL_KINDS
from orchestrator.rundir.synced import copy_of, no_sync
from orchestrator.status.survey import Survey
from orchestrator.sync.wandb import plan_uploads

OUTSIDE = "outside-grid"
# What `--drop` can name, each with what it removes.
DROPPABLE: Mapping[str, str] = {
    "tensorboard": "TensorBoard's event files",
    "wandb": "uploaded W&B logs",
    "policies": "policies kept in training",
    OUTSIDE: "checkpoints of runs outside the grid",
}
_LEFTOVERS, _RETIRED = "leftovers of finished runs", "attempts before a retry"
_TEMPORARY, _CODE = "temporary files of killed runs", "code that no run refers to"
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

    def add(self, files: Sequence[Path], folder: Path | None = None) -> None:
        """Add files, or a folder with these files."""
        self.size += removable.size_of(files)
        self.count += len(files)
        if folder is None:
            self.files += files
        else:
            self.folders.append(folder)


@dataclass
class Surplus:
    """The groups of a sweep to remove.

    ``kept``: bytes by kind that `--drop` would remove. ``left``: problems for users, with the path that is
    left as it is. ``absent``: files to remove that results list, by run.
    """

    sweep: str
    groups: dict[str, Group] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    absent: dict[Path, list[Path]] = field(default_factory=dict)

    def add(self, what: str, files: Sequence[Path], folder: Path | None = None) -> None:
        """Add to a group, unless there is nothing."""
        if files or folder is not None:
            self.groups.setdefault(what, Group(what)).add(files, folder)


def surplus(sweep_dir: SweepDir, options: CleanOptions) -> Surplus:
    """List the sweep's files that can be removed."""
    found = Surplus(sweep_dir.name)
    if sweep_dir.path.is_symlink():
        found.left.append(f"{sweep_dir.path}: is a link, expected a folder")
        return found
    copied = copy_of(sweep_dir) is not None
    seen = poll_sweep(sweep_dir)
    found.left += [f"{path}: is not this program's" for path in removable.strange_names(sweep_dir)]
    in_grid = {row.run_id for row in seen.rows if row.in_grid}
    runs = _RunSurplus(found, options, seen, _not_uploaded(sweep_dir, options), copied)
    for run_id in sweep_dir.run_ids():
        run = sweep_dir.run(run_id)
        try:
            removable.require_folders(run)
            runs.add(run, outside=run_id not in in_grid)
        except (DamagedFileError, OSError) as error:
            found.left.append(str(error))
    if not copied:
        _add_code(sweep_dir, seen, options, found)
    if runs.logs_to_upload:
        several = count(runs.logs_to_upload, "run")
        found.left.append(f"W&B logs of {several} are not uploaded: orchestrate sync --wandb")
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
    if strange := removable.strange_names(sweep_dir):
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise OrchestrateError(
            f"{strange[0]}{more}: not this program's, so that {name} cannot be removed as a whole",
            hint="move that elsewhere, then run the same command again",
        )
    seen = poll_sweep(sweep_dir)
    if copy_of(sweep_dir) is None:
        _require_over(sweep_dir, seen)
    quiet = time.time() - _last_event(sweep_dir)
    if quiet < options.older_than:
        found.left.append(f"{name}: its last event is younger than --older-than")
        return found
    states = ", ".join(f"{number} {state.value}" for state, number in seen.counts().items())
    found.add(f"the whole sweep ({states or 'no runs'})", removable.files_of(path), path)
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
    only, listed = set(names), []
    for name, folders in removable.half_removed(results).items():
        if only and name not in only:
            continue
        found = Surplus(name)
        for folder in folders:
            found.add(_HALF_REMOVED, removable.files_of(folder), folder)
            if not dry:
                removable.remove_folder(folder)
        listed.append(found)
    return listed


class _RunSurplus:
    """Adds the files of runs to a sweep's surplus, run by run.

    ``logs_to_upload``: number of runs that keep their W&B logs because these are not uploaded.
    """

    def __init__(
        self, found: Surplus, options: CleanOptions, seen: Survey, not_uploaded: frozenset[str], copied: bool
    ) -> None:
        self._found, self._options, self._seen = found, options, seen
        self._not_uploaded, self._copied = not_uploaded, copied
        self.logs_to_upload = 0

    def add(self, run: RunDir, *, outside: bool) -> None:
        """Add the run's files to the groups. Raises :class:`DamagedFileError`."""
        result = run.result()
        if result is not None:
            run.verify(result)
            if self._is_old(result.get("ended") or run.result_path.stat().st_mtime):
                self._add_finished(run, result, outside)
        elif not self._copied:
            self._add_unfinished(run, outside)

    def _add_finished(self, run: RunDir, result: Mapping[str, Any], outside: bool) -> None:
        # Of what came from elsewhere a sync would fetch the same files again.
        if not self._copied and origin_of(run.path) is None and run.blocked_by() is None:
            self._found.add(_LEFTOVERS, removable.leftovers(run, result))
            self._found.add(_RETIRED, removable.retired_files(run))
        listed = removable.listed_files(run, result)
        wanted = {kind for kind in OPTIONAL_KINDS if kind in self._options.drop}
        for kind in OPTIONAL_KINDS:
            files = listed.get(kind, [])
            if kind == "wandb" and files and run.run_id in self._not_uploaded:
                self.logs_to_upload += 1
            elif kind in wanted:
                self._drop(DROPPABLE[kind], run, files)
            else:
                self._found.kept[kind] += removable.size_of(files)
        if outside:
            self._drop_outside(run, listed.get(CHECKPOINTS, []), listed=True)

    def _add_unfinished(self, run: RunDir, outside: bool) -> None:
        status = self._seen.statuses.get(run.run_id)
        if (status is not None and status.state in _AT_WORK) or run.blocked_by() is not None:
            return
        if not self._is_old(max((one.claim_path.stat().st_mtime for one in run.attempts()), default=0.0)):
            return
        self._found.add(_TEMPORARY, removable.temporary_files(run))
        if outside:
            self._drop_outside(run, removable.unfinished_files(run), listed=False)

    def _drop_outside(self, run: RunDir, files: Sequence[Path], *, listed: bool) -> None:
        if OUTSIDE not in self._options.drop:
            self._found.kept[OUTSIDE] += removable.size_of(files)
        elif listed:
            self._drop(DROPPABLE[OUTSIDE], run, files)
        else:
            self._found.add(DROPPABLE[OUTSIDE], files)

    def _drop(self, what: str, run: RunDir, files: Sequence[Path]) -> None:
        """Add files that the run's result lists."""
        self._found.add(what, files)
        if files:
            self._found.absent.setdefault(run.path, []).extend(files)

    def _is_old(self, at: float) -> bool:
        return time.time() - at >= self._options.older_than


def _not_uploaded(sweep_dir: SweepDir, options: CleanOptions) -> frozenset[str]:
    if "wandb" not in options.drop:
        return frozenset()
    plan = plan_uploads([sweep_dir])
    return frozenset([one.run_id for one in plan.todo] + [one.run_id for one in plan.left])


def _add_code(sweep_dir: SweepDir, seen: Survey, options: CleanOptions, found: Surplus) -> None:
    """Add code snapshots that no run, no live job and no other tree refers to, less the latest."""
    for draft in removable.code_drafts(sweep_dir):
        found.add(_CODE, removable.files_of(draft), draft)
    snapshots = {code.code_id: code for code in removable.code_snapshots(sweep_dir)}
    if not snapshots:
        return
    try:
        kept = set(_codes_in_use(sweep_dir, seen))
    except DamagedFileError as error:
        found.left.append(f"code snapshots: {error}")
        return
    for code_id, code in snapshots.items():
        unused = time.time() - code.path.stat().st_mtime
        if code_id not in kept and unused >= max(options.older_than, _CODE_UNUSED_S):
            found.add(_CODE, removable.files_of(code.path), code.path)


def _codes_in_use(sweep_dir: SweepDir, seen: Survey) -> Iterator[str]:
    ledger = sweep_dir.read_ledger()
    for entry in ledger:
        if isinstance(entry, DamagedEntry):
            raise DamagedFileError(sweep_dir.path, f"ledger entry {entry.problem}")
        if isinstance(entry, AssignedEntry):
            yield entry.code.id
    yield from (entry.code.id for entry in submissions(ledger)[-1:] if entry.code is not None)
    arrays = {array_of(token) for token in (*seen.live, *_tokens(sweep_dir))}
    for submission, job in jobs_of(ledger):
        if submission.code is not None and array_of(job.token) in arrays:
            yield submission.code.id


def _tokens(sweep_dir: SweepDir) -> Iterator[str]:
    """Yield the tokens of the jobs that worked on the runs' attempts, less those before a retry."""
    for run_id in sweep_dir.run_ids():
        run = sweep_dir.run(run_id)
        attempts = run.current_attempts() if run.result_path.exists() else run.attempts()
        for attempt in attempts:
            claim = attempt.claim()
            if claim is not None:
                yield claim.worker


def _require_over(sweep_dir: SweepDir, seen: Survey) -> None:
    """Raise :class:`OrchestrateError` if anything works, or may start to work, on the sweep."""
    name = sweep_dir.name
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
        return not run.result_path.exists() and run.blocked_by() is not None
    except DamagedFileError:
        return False


def _last_event(sweep_dir: SweepDir) -> float:
    """Return the time of the sweep's last submission, decision or event of a worker, in epoch seconds."""
    times = [entry.time for entry in sweep_dir.read_ledger() if entry.time]
    times += [log.events[-1].time for log in sweep_dir.read_journals() if log.events]
    return max(times, default=0.0)

"""Whose version has a run's place: seen to before anything comes, and again when all is here."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir
from orchestrator.rundir.foreign_marks import Origin, forget_origin, origin_of
from orchestrator.rundir.plain_files import same_content
from orchestrator.rundir.run import RETIRED, listdir
from orchestrator.rundir.synced import RUNS, CopyDir, copy_of, further_copies, further_copy
from orchestrator.sync import merge
from orchestrator.sync.job import SweepSync


def settle_places(task: SweepSync, visited: Iterable[str]) -> list[str]:
    """Move versions of these runs to where :meth:`SweepSync.where` says, also after a cut; those now there.

    A run whose folder here is a link stays as it is, and is named.
    """
    fine = []
    for run_id in visited:
        try:
            _refuse_link(task, run_id)
            _settle_place(task, run_id)
        except DamagedFileError as error:
            task.brought.problems.append(f"run {run_id}: {error}; left as it is")
        else:
            fine.append(run_id)
    return fine


def _refuse_link(task: SweepSync, run_id: str) -> None:
    for run in (task.sweep.run(run_id), task.folder.run(run_id)):
        if run.path.is_symlink():
            raise DamagedFileError(
                run.path, "is a link, expected a folder", hint="put the folder itself there"
            )


def _settle_place(task: SweepSync, run_id: str) -> None:
    main = task.sweep.run(run_id)
    origin, placed = origin_of(main.path), run_id in task.state.placed
    if origin is None and not placed:
        return
    with task.sweep.lock():
        if placed or (origin is not None and origin.source == task.source):
            if not task.main and not main.result_path.exists():
                _without_result(task, main, origin)
        elif origin is not None and task.main and run_id not in task.taken:
            _of_another(task, main, origin)


def _without_result(task: SweepSync, main: RunDir, origin: Origin | None) -> None:
    """This source's version has no result in the main tree: cut on its way there, or lost since."""
    own, attempt = task.folder.run(main.run_id), merge.newest_attempt(main)
    if listdir(own.path / "attempts"):
        if _is_other(main, own):  # a cut came before they were moved
            forget_origin(main.path)
    elif main.path.exists() and not _is_done_here(task, main, attempt, origin):
        merge.take_back(task.sweep, task.folder, main, attempt)
    forget(task, main.run_id)


def _is_other(main: RunDir, own: RunDir) -> bool:
    """Whether a run's attempts in the main tree are none that are also beside it."""
    pairs = [(one.claim_path, own.attempt(one.number).claim_path) for one in main.attempts()[:1]]
    return all(theirs.exists() and not same_content(ours, theirs) for ours, theirs in pairs)


def _of_another(task: SweepSync, main: RunDir, origin: Origin) -> None:
    """A version of another source lies where this one's would be, and that source's state does not say so."""
    for folder, other in further_copies(task.sweep):
        if other.source != origin.source:
            continue
        if main.result_path.exists():
            _remember(task, folder, main.run_id)
            task.taken.add(main.run_id)
        elif not listdir(folder.run(main.run_id).path / "attempts"):
            merge.take_back(task.sweep, folder, main, origin.attempts)


def came_from(task: SweepSync, run_id: str) -> bool:
    """Whether the version in the main tree is marked as this source's."""
    try:
        origin = origin_of(task.sweep.run(run_id).path)
    except DamagedFileError:  # which is named when places are settled
        return False
    return origin is not None and origin.source == task.source


def forget(task: SweepSync, run_id: str) -> None:
    """Have it known that this source's version is not in the main tree."""
    task.state.placed.discard(run_id)
    task.state.adopted.discard(run_id)
    task.state.unsettle(run_id)
    task.folder.remember(task.state)


def is_done_again_here(task: SweepSync, run: RunDir) -> bool:
    """Whether a result in the main tree is of an attempt after those that came from this source."""
    result, origin = run.result(), origin_of(run.path)
    if result is None or run.run_id not in task.state.placed:
        return False
    return _is_done_here(task, run, result["attempt"], origin)


def _is_done_here(task: SweepSync, main: RunDir, attempt: int, origin: Origin | None) -> bool:
    """Whether this tree decided to do a run again, or began to; in a copy nobody does."""
    if copy_of(task.sweep) is not None:
        return False
    retired = {name for name in listdir(main.path) if RETIRED.fullmatch(name)}
    return bool(retired - set(task.there.runs[main.run_id].retired)) or attempt > (
        origin.attempts if origin else 0
    )


def promote(task: SweepSync) -> None:
    """Give verified versions that are kept beside the main tree the places that no other result has."""
    copy = copy_of(task.sweep)
    folders = [(folder, other.source) for folder, other in further_copies(task.sweep)]
    if copy is not None:
        folders.append((further_copy(task.sweep, copy.name), copy.source))
    for folder, source in folders:
        for run_id in sorted(listdir(folder.path / RUNS)):
            kept, main = folder.run(run_id), task.sweep.run(run_id)
            if kept.result_path.exists() and not main.result_path.exists():
                _promote(task, folder, source, run_id)


def _promote(task: SweepSync, folder: CopyDir, source: str, run_id: str) -> None:
    try:
        result = folder.run(run_id).result()
        with task.sweep.lock():
            if result is None or not merge.place(task.sweep, folder, source, run_id):
                return
            if copy_of(task.sweep) is None:
                merge.put_on_record(task.sweep, {run_id: result})
    except DamagedFileError as error:
        task.brought.problems.append(f"run {run_id}: {error}; left as it is")
        return
    if folder.copy() is not None:  # else it is the main tree's own source, whose runs lie there anyway
        _remember(task, folder, run_id)
    task.brought.tell(run_id, f"{source}'s version has its place now")


def _remember(task: SweepSync, folder: CopyDir, run_id: str) -> None:
    """Have it known that a source's version is in the main tree."""
    state = task.state if folder.path == task.folder.path else folder.state()
    state.placed.add(run_id)
    folder.remember(state)

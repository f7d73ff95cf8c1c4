"""Decide which source's version of a run is in the main tree, before and after a sync."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir
from orchestrator.rundir.attempt import listdir
from orchestrator.rundir.foreign_marks import Origin, forget_origin, origin_of
from orchestrator.rundir.plain_files import same_content
from orchestrator.rundir.run import ATTEMPTS, RETIRED
from orchestrator.rundir.synced import RUNS, CopyDir, copy_of, further_copies, further_copy
from orchestrator.sync import merge
from orchestrator.sync.sweep_sync import SweepSync


def restore_precedence(sync: SweepSync, visited: Iterable[str]) -> list[str]:
    """Move the versions of these runs to where :meth:`SweepSync.where` expects them; return the runs in
    place.

    Completes interrupted moves. A run with a link as its folder here is reported and left unchanged.
    """
    fine = []
    for run_id in visited:
        try:
            _refuse_link(sync, run_id)
            _restore_precedence(sync, run_id)
        except DamagedFileError as error:
            sync.report.problems.append(f"run {run_id}: {error}; left as it is")
        else:
            fine.append(run_id)
    return fine


def _refuse_link(sync: SweepSync, run_id: str) -> None:
    for run in (sync.sweep.run(run_id), sync.folder.run(run_id)):
        if run.path.is_symlink():
            raise DamagedFileError(
                run.path, "is a link, expected a folder", hint="put the folder itself there"
            )


def _restore_precedence(sync: SweepSync, run_id: str) -> None:
    main = sync.sweep.run(run_id)
    origin, placed = origin_of(main.path), run_id in sync.state.placed
    if origin is None and not placed:
        return
    with sync.sweep.lock():
        if placed or (origin is not None and origin.source == sync.source):
            if not sync.main and not main.result_path.exists():
                _without_result(sync, main, origin)
        elif origin is not None and sync.main and run_id not in sync.taken:
            _record_other_source(sync, main, origin)


def _without_result(sync: SweepSync, main: RunDir, origin: Origin | None) -> None:
    """Take this source's version out of the main tree if its result is not there: lost, or cut off before."""
    own, attempt = sync.folder.run(main.run_id), main.newest_attempt()
    if listdir(own.path / ATTEMPTS):
        if _is_other(main, own):  # interrupted before they were moved
            forget_origin(main.path)
    elif main.path.exists() and not _is_done_here(sync, main, attempt, origin):
        merge.move_from_main(sync.sweep, sync.folder, main, attempt)
    unplace(sync, main.run_id)


def _is_other(main: RunDir, own: RunDir) -> bool:
    """Return whether a run's attempts in the main tree differ from those beside it."""
    pairs = [(one.claim_path, own.attempt(one.number).claim_path) for one in main.attempts()[:1]]
    return all(theirs.exists() and not same_content(ours, theirs) for ours, theirs in pairs)


def _record_other_source(sync: SweepSync, main: RunDir, origin: Origin) -> None:
    """Correct the state of another source if its version is in the main tree without a record."""
    for folder, other in further_copies(sync.sweep):
        if other.source != origin.source:
            continue
        if main.result_path.exists():
            _record_placed(sync, folder, main.run_id)
            sync.taken.add(main.run_id)
        elif not listdir(folder.run(main.run_id).path / ATTEMPTS):
            merge.move_from_main(sync.sweep, folder, main, origin.attempts)


def is_from_source(sync: SweepSync, run_id: str) -> bool:
    """Return whether the version in the main tree is marked as this source's."""
    try:
        origin = origin_of(sync.sweep.run(run_id).path)
    except DamagedFileError:  # reported by restore_precedence
        return False
    return origin is not None and origin.source == sync.source


def unplace(sync: SweepSync, run_id: str) -> None:
    """Record that this source's version is not in the main tree."""
    sync.state.placed.discard(run_id)
    sync.state.adopted.discard(run_id)
    sync.state.unsettle(run_id)
    sync.folder.remember(sync.state)


def is_done_again_here(sync: SweepSync, run: RunDir) -> bool:
    """Return whether a result in the main tree is of an attempt after those from this source."""
    result, origin = run.result(), origin_of(run.path)
    if result is None or run.run_id not in sync.state.placed:
        return False
    return _is_done_here(sync, run, result["attempt"], origin)


def _is_done_here(sync: SweepSync, main: RunDir, attempt: int, origin: Origin | None) -> bool:
    """Return whether this tree retried a run, or began to; copies never do."""
    if copy_of(sync.sweep) is not None:
        return False
    retired = {name for name in listdir(main.path) if RETIRED.fullmatch(name)}
    return bool(retired - set(sync.listed.runs[main.run_id].retired)) or attempt > (
        origin.attempts if origin else 0
    )


def fill_free_places(sync: SweepSync) -> None:
    """Move verified versions beside the main tree into it where it has no result."""
    copy = copy_of(sync.sweep)
    folders = [(folder, other.source) for folder, other in further_copies(sync.sweep)]
    if copy is not None:
        folders.append((further_copy(sync.sweep, copy.name), copy.source))
    for folder, source in folders:
        for run_id in sorted(listdir(folder.path / RUNS)):
            kept, main = folder.run(run_id), sync.sweep.run(run_id)
            if kept.result_path.exists() and not main.result_path.exists():
                _fill_place(sync, folder, source, run_id)


def _fill_place(sync: SweepSync, folder: CopyDir, source: str, run_id: str) -> None:
    try:
        result = folder.run(run_id).result()
        with sync.sweep.lock():
            if result is None or not merge.move_to_main(sync.sweep, folder, source, run_id):
                return
            if copy_of(sync.sweep) is None:
                merge.record_results(sync.sweep, {run_id: result})
    except DamagedFileError as error:
        sync.report.problems.append(f"run {run_id}: {error}; left as it is")
        return
    if folder.copy() is not None:  # else it is the main tree's own source
        _record_placed(sync, folder, run_id)
    sync.report.tell(run_id, f"{source}'s version is now in the main tree")


def _record_placed(sync: SweepSync, folder: CopyDir, run_id: str) -> None:
    """Record that a source's version is in the main tree."""
    state = sync.state if folder.path == sync.folder.path else folder.state()
    state.placed.add(run_id)
    folder.remember(state)

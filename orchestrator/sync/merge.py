"""Merge runs of several sources in one tree: the first verified version is in the main tree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.rundir import IndexRow, RunDir, SweepDir, depends_on_time
from orchestrator.rundir.atomic import link
from orchestrator.rundir.attempt import listdir
from orchestrator.rundir.foreign_marks import forget_origin, mark_origin, origin_of
from orchestrator.rundir.ledger_entries import FoundEntry, FoundResult, LostEntry
from orchestrator.rundir.plain_files import same_content
from orchestrator.rundir.run import ATTEMPTS, attempt_ended
from orchestrator.rundir.synced import CopyDir, copy_of, further_copies, further_copy

# The folder for this tree's own versions that ended without a result and were moved aside.
HERE = "here"


def publish(staged: RunDir, run: RunDir) -> bool:
    """Publish the result of a verified run; ``False`` if it has another one. The file keeps its time."""
    try:
        link(staged.result_path, run.result_path)
    except FileExistsError:
        return same_content(staged.result_path, run.result_path)
    return True


def move_to_main(sweep: SweepDir, folder: CopyDir, source: str, run_id: str) -> bool:
    """Move another source's version of a run to the main tree; ``False`` if it has a version already.

    Call under the sweep's lock. An unfinished version is moved aside unless a worker here may be active in
    it. The next call completes an interrupted move.
    """
    run, main = folder.run(run_id), sweep.run(run_id)
    if main.path.is_symlink() or run.path.is_symlink() or main.result_path.exists():
        return False
    if not run.attempts() and (origin := origin_of(main.path)) is not None and origin.source == source:
        if main.newest_attempt() > origin.attempts:
            return False
        _move_rest(run, main)
        return True
    mark_origin(run.path, source, run.newest_attempt())
    begun = main.path.exists() and (copy_of(sweep) is not None or main.attempts())
    if begun and not _move_aside(sweep, folder, main):
        return False
    if main.path.exists():
        return _move_in(run, main, source)
    main.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(run.path, main.path)
    return True


def move_from_main(sweep: SweepDir, folder: CopyDir, main: RunDir, attempt: int) -> None:
    """Move a run out of the main tree that its source trains again, so that no worker here continues it.

    ``attempt``: its newest attempt, as on record in the ledger.
    """
    if copy_of(sweep) is None:
        sweep.add_to_ledger(LostEntry(runs={main.run_id: attempt}))
    own = folder.run(main.run_id)
    shutil.rmtree(own.path, ignore_errors=True)
    own.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(main.path, own.path)


def _move_aside(sweep: SweepDir, folder: CopyDir, main: RunDir) -> bool:
    """Move an unfinished version aside for that in ``folder``; ``False`` if a worker here may be active in
    it.
    """
    aside = _aside_folder(sweep, main)
    if aside is None or aside.path == folder.path:
        return False
    to, attempt = aside.run(main.run_id), main.newest_attempt()
    older = to.path.exists() or to.path.is_symlink()
    if older and (to.path.is_symlink() or to.result_path.exists() or aside.path.name == HERE):
        return False
    shutil.rmtree(to.path, ignore_errors=True)
    to.path.parent.mkdir(parents=True, exist_ok=True)
    os.rename(main.path, to.path)
    if copy_of(sweep) is None and to.newest_attempt() != attempt:  # a worker began an attempt meanwhile
        os.rename(to.path, main.path)
        return False
    state = aside.state()
    if main.run_id in state.placed:
        state.placed.discard(main.run_id)
        aside.remember(state)
    return True


def _aside_folder(sweep: SweepDir, main: RunDir) -> CopyDir | None:
    """Return the folder for an unfinished version to move aside; ``None`` for one that must stay."""
    copy, origin = copy_of(sweep), origin_of(main.path)
    attempts = main.attempts()
    if copy is None and main.retired:  # to be trained again here
        return None
    if origin is not None and main.newest_attempt() <= origin.attempts:
        for folder, other in further_copies(sweep):
            if other.source == origin.source:
                return folder
    if copy is not None:
        return further_copy(sweep, copy.name)
    try:
        ended = all(map(attempt_ended, attempts[-1:]))
    except DamagedFileError:  # no proof
        ended = False
    return further_copy(sweep, HERE) if ended else None


def _move_in(run: RunDir, main: RunDir, source: str) -> bool:
    """Move a run's files into a folder with its description only; fails if a worker here has begun it.

    The attempts' origin is marked first, so that they never count as this tree's own.
    """
    mark_origin(main.path, source, run.newest_attempt())
    try:
        os.rename(run.path / ATTEMPTS, main.path / ATTEMPTS)
    except OSError:  # it has its own attempts
        forget_origin(main.path)
        return False
    _move_rest(run, main)
    return True


def _move_rest(run: RunDir, main: RunDir) -> None:
    """Move the files beside a run's attempts, a result last.

    A file with the same content is replaced too: with its time at the source it is not fetched again.
    """
    for name in sorted(listdir(run.path), key=run.result_path.name.__eq__):
        file, target = run.path / name, main.path / name
        if not target.exists() or (file.is_file() and target.is_file() and same_content(file, target)):
            os.replace(file, target)
    shutil.rmtree(run.path, ignore_errors=True)


def record_results(sweep: SweepDir, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Add fetched results to the ledger of a sweep of this tree's own."""
    if results:
        runs = {run_id: FoundResult.of(result) for run_id, result in results.items()}
        sweep.add_to_ledger(FoundEntry(runs=runs))


def compare(ours: RunDir, theirs: RunDir) -> str:
    """Describe whether two versions of a finished run have the same metrics."""
    try:
        mine, other = _metrics(ours), _metrics(theirs)
    except (OrchestrateError, OSError):
        return "metrics cannot be compared"
    return "with the same metrics" if mine == other else "with other metrics"


def _metrics(run: RunDir) -> list[tuple[int, int, tuple[tuple[str, str], ...]]]:
    result = run.result()
    rows = run.history(result["attempt"] if result else None)
    return [
        (
            row.iteration,
            row.frames,
            tuple((name, repr(value)) for name, value in row.metrics.items() if not depends_on_time(name)),
        )
        for row in rows
    ]


def write_index(sweep: SweepDir, folder: CopyDir) -> None:
    """Write the index of a copy: its source's, followed by the rows of further sources."""
    if not folder.index.exists():
        return
    main = folder.path == sweep.path
    target = folder.path / sweep.index_path.name
    own = read_rows(folder.index)
    known = {row.run_id for row in own}
    more: dict[str, IndexRow] = {}
    for other, _ in further_copies(sweep) if main else ():
        more |= {row.run_id: row for row in read_rows(other.index) if row.run_id not in known}
    if more:
        if list(SweepDir(sweep.results, sweep.name).read_index()) != [*own, *more.values()]:
            sweep.write_index([*own, *more.values()])
    elif not _same(folder.index, target):
        temporary = folder.incoming / target.name
        shutil.copy2(folder.index, temporary)
        os.replace(temporary, target)


def read_rows(index: Path) -> Sequence[IndexRow]:
    """Return the rows of an index; none if it is damaged."""
    try:
        return index_rows(index)
    except DamagedFileError:
        return []


def index_rows(index: Path) -> Sequence[IndexRow]:
    """Return the rows of an index. Raises :class:`DamagedFileError`."""
    reader = SweepDir(index.parent, "index")
    reader.index_path = index
    return reader.read_index()


def _same(one: Path, other: Path) -> bool:
    try:
        a, b = one.stat(), other.stat()
    except FileNotFoundError:
        return False
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def drop_pruned(run: RunDir, there: Iterable[str]) -> None:
    """Remove checkpoints that no longer exist at an unfinished run's source, if a newer one is here."""
    names = set(there)
    found = run.checkpoints()
    newest = max((one.frames for one in found if _inside(run, one.path) in names), default=0)
    for one in found:
        if _inside(run, one.path) not in names and one.frames < newest:
            one.path.unlink(missing_ok=True)


def _inside(run: RunDir, path: Path) -> str:
    return path.relative_to(run.path).as_posix()

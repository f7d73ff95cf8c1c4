"""One sweep of one source comes home.

In this order, so that a result here is always whole: which results there are; everything else of their runs
and of all others; then those results, checked against the files; only then their names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.config.code.snapshot import is_whole
from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import CodeDir, RunDir, SweepDir
from orchestrator.rundir.atomic import storage_errors
from orchestrator.rundir.copy_origin import Copy
from orchestrator.rundir.plain_files import same_content
from orchestrator.rundir.synced import (
    CODE,
    INDEX,
    RESULT,
    RUNS,
    copy_of,
    kind_of,
    plain_size,
    sync_lock,
)
from orchestrator.sync import merge
from orchestrator.sync.file_selection import ChosenFiles, choose, run_of
from orchestrator.sync.identical_files import acquit, find_alike, link, redate
from orchestrator.sync.job import SweepSync, sweep_sync_of
from orchestrator.sync.precedence import came_from, promote, settle_places
from orchestrator.sync.publish import finish, follow_retries, refused
from orchestrator.sync.request import SyncProgress, SyncReport
from orchestrator.sync.rsync import ListedFile, Listing, brief, size_of, stamp_of
from orchestrator.sync.space_needed import lack_for
from orchestrator.sync.wanted import fitting

# Results are checked and published after so many bytes, or runs: what is here by then stays whatever happens.
_BATCH_BYTES, _BATCH_RUNS = 256 << 20, 2000
_NAMED = 5
# All runs are listed where one in so many is to be looked at.
_MANY = 7


def bring(task: SweepSync, screen: SyncProgress, *, dry: bool = False) -> SyncReport:
    """Bring what is new of a sweep; with ``dry`` only count it, and write nothing."""
    if dry:
        with tempfile.TemporaryDirectory() as temporary:
            _adopt(task, Path(temporary))
            visited = _visited(task, _index(task, Path(temporary)))
            aside = dict(_retried(task, visited))
            task.brought.put_aside = len(aside)
            chosen = _plan(task, visited, Path(temporary), aside)
            _count(task, chosen)
            task.brought.lack = lack_for(task, chosen)
        return task.brought
    with storage_errors(task.sweep.path), sync_lock(task.sweep) as keep:
        # Another sync may have been at work until now.
        rsync = replace(task.rsync, keep=keep)
        task = sweep_sync_of(rsync, task.there, task.began, task.sweep.results, task.wish)
        with task.folder.work():
            _bring_as_copy(task, screen)
    task.brought.summarise()
    return task.brought


def _bring_as_copy(task: SweepSync, screen: SyncProgress) -> None:
    """Bring it, and say of what it is a copy: from the beginning, so that a cut leaves no doubt."""
    folder, before = task.folder, task.folder.copy()
    folder.mark(Copy(task.source, task.rsync.source.name, before.time if before else None))
    _bring(task, screen)
    folder.mark(Copy(task.source, task.rsync.source.name, task.began))


def _bring(task: SweepSync, screen: SyncProgress) -> None:
    if (adopted := _adopt(task, task.folder.staged)) and copy_of(task.sweep) is None:
        with task.sweep.lock():
            merge.put_on_record(task.sweep, adopted)
    visited = _visited(task, _index(task, task.folder.index.parent))
    visited = settle_places(task, visited)
    follow_retries(task, visited)
    screen.begin(f"{task.there.name}: comparing {len(visited)} runs with what is here")
    chosen = _plan(task, visited, task.folder.staged)
    redate(chosen)
    _count(task, chosen)
    if (lack := lack_for(task, chosen)) is not None:
        raise lack
    screen.expect(task.there.name, task.brought.files, task.brought.size)
    done = 0
    for batch in _batches(chosen):
        problems = _fetch(task, batch, partial(_came, screen, done))
        task.brought.problems += [line for line in problems if line not in task.brought.problems]
        done += sum(one.size for one in batch)
        screen.came(done)
        screen.begin(f"{task.there.name}: checking {len(batch)} runs")
        finish(task, batch, clean=not problems)
        task.folder.remember(task.state)
    promote(task)
    task.folder.remember(task.state)
    task.folder.refuse(refused(task))
    merge.write_index(task.sweep, task.folder)


def _index(task: SweepSync, here: Path) -> Path:
    """The source's index, in the folder ``here``, brought if it changed."""
    known = task.folder.index
    if not task.there.index or (known.exists() and task.state.index == task.there.index):
        return known
    task.rsync.fetch(task.there.name, here, [INDEX], here)
    task.state.index = task.there.index
    task.brought.files += 1
    task.brought.size += size_of(task.there.index)
    return here / INDEX


def _adopt(task: SweepSync, staged: Path) -> dict[str, dict[str, Any]]:
    """Recognise runs of this source in the main tree, whichever way they came, by their results: those."""
    found: dict[str, dict[str, Any]] = {}
    if task.main:
        return found
    known = task.state.placed | task.state.adopted
    alike = [
        run_id
        for run_id, run in task.there.runs.items()
        if run.result
        and run_id not in known
        and plain_size(task.sweep.path, f"{RUNS}/{run_id}/{RESULT}") == size_of(run.result)
        and not task.folder.run(run_id).result_path.exists()
    ]
    if alike:
        task.rsync.fetch(task.there.name, staged, [f"{RUNS}/{run_id}/{RESULT}" for run_id in alike], staged)
    for run_id in alike:
        theirs, ours = RunDir(staged / RUNS / run_id), task.sweep.run(run_id)
        same = theirs.result_path.exists() and same_content(theirs.result_path, ours.result_path)
        if same and (result := ours.result()) is not None:
            (task.state.placed if came_from(task, run_id) else task.state.adopted).add(run_id)
            found[run_id] = result
    return found


def selected(task: SweepSync, index: Path) -> list[str]:
    """Runs there that are wanted; ``index`` says what their keys are."""
    runs = list(task.there.runs)
    if not task.wish.runs:
        return runs
    found = fitting(index, task.wish.runs)
    task.brought.fitting |= {selector for selector, run_ids in found.items() if run_ids}
    wanted = set().union(*found.values())
    return [run_id for run_id in runs if run_id in wanted]


def _check_index(task: SweepSync, index: Path) -> None:
    """Name an index that cannot be read: no command here knows the runs' keys then."""
    reader = SweepDir(index.parent, "index")
    reader.index_path = index
    try:
        reader.read_index()
    except DamagedFileError as error:
        found = brief(str(error).removeprefix(f"{index}: "))
        task.brought.problems.append(f"{INDEX} there: {found}; sync again once it is repaired")


def _retried(task: SweepSync, visited: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Runs whose result here was put aside there, and the name that it has there now."""
    for run_id in visited:
        there, stamp = task.there.runs[run_id], stamp_of(task.run(run_id).result_path)
        names = [name for name, one in there.retired.items() if one == stamp != there.result]
        if names:
            yield run_id, names[0]


def _visited(task: SweepSync, index: Path) -> list[str]:
    """Runs that are wanted and are not, as far as one can see without opening anything, as they were left."""
    _check_index(task, index)
    settled = task.state.settled

    def is_settled(run_id: str) -> bool:
        there = task.there.runs[run_id]
        if there.result is None or settled.get(run_id) not in (there.token, task.token(run_id)):
            return False
        if task.state.is_as_left(run_id, f"{task.where(run_id)}/{RUNS}/{run_id}"):
            return True
        task.suspect.add(run_id)
        return False

    wanted = selected(task, index)
    if task.wish.verify:
        task.suspect.update(run_id for run_id in wanted if task.there.runs[run_id].result)
        return wanted
    return [run_id for run_id in wanted if not is_settled(run_id)]


def _plan(
    task: SweepSync, visited: Sequence[str], staged: Path, aside: Mapping[str, str] | None = None
) -> list[ChosenFiles]:
    """All that is to come, in the order it comes: what describes the sweep, then its runs.

    ``staged`` is a folder for results that nobody is to see yet. ``aside``: runs whose result here is first
    to get the name that it has there.
    """
    folders: dict[Path, list[str]] = {task.folder.path: []}
    for run_id in visited:
        folders.setdefault(task.where(run_id), []).append(run_id)
    chosen: list[ChosenFiles] = []
    for here, runs in folders.items():
        listing = _list(task, here, runs)
        found = choose(listing, here, task.wish, task.adopted)
        acquit(task, here, found)
        chosen += found
        task.brought.problems += listing.problems
        _note(task, "no plain file", "left there", [name for name in listing.special if not _of_wandb(name)])
    for one in chosen:
        _expect_result(task, one, (aside or {}).get(one.run_id))
    find_alike(task, chosen, staged)
    return chosen


def _expect_result(task: SweepSync, one: ChosenFiles, aside: str | None) -> None:
    """Count a result that is to come; what only changes its name here to ``aside`` is none."""
    there = task.there.runs.get(one.run_id)
    if there is None:
        return
    name = f"{RUNS}/{one.run_id}/{aside}"
    if aside and name in one.names:
        one.names.remove(name)
        one.files -= 1
        one.size -= size_of(there.retired[aside])
    if there.result and (aside or not task.run(one.run_id).result_path.exists()):
        one.files += 1
        one.size += size_of(there.result)
        task.brought.due += 1


def _list(task: SweepSync, here: Path, runs: Sequence[str]) -> Listing:
    """What there is of these runs, against what is ``here``; in the source's own folder also of the sweep."""
    own = task.there.entries if here == task.folder.path else []
    codes = task.there.codes if own and task.wish.only is None else []
    new = [code for code in codes if not _is_code_here(task, here / CODE / code)]
    rules, names = None, [*own, *(f"{CODE}/{code}" for code in new), *(f"{RUNS}/{run_id}" for run_id in runs)]
    patterns = any(sign in name for name in own for sign in "*?[\\")
    if len(runs) * _MANY > len(task.there.runs) and not patterns:
        # rsync takes a millisecond for each name that it is given; to walk through the folder is quicker.
        rules = [f"- /{CODE}/{code}/" for code in task.there.codes if code not in new]
        rules += [f"+ /{CODE}/"] * bool(new) + [f"+ /{top}" for top in own] + [f"+ /{RUNS}/", "- /*"]
    with tempfile.TemporaryDirectory() as nothing:
        against = here if here.is_dir() else Path(nothing)
        listing = task.rsync.list(task.there.name, against, rules=rules or (), names=None if rules else names)
    wanted = {"", *runs}
    listing.entries = [entry for entry in listing.entries if run_of(entry.path) in wanted]
    if task.wish.verify and new:
        listing.entries = _compared(task, here, listing.entries)
    return listing


def _is_code_here(task: SweepSync, folder: Path) -> bool:
    """Whether a frozen code is in its folder as it was left; with ``--verify``, by its content."""
    as_left = task.state.is_code_as_left(folder.name, str(folder))
    return as_left and (not task.wish.verify or is_whole(CodeDir(folder)))


def _compared(task: SweepSync, here: Path, entries: Sequence[ListedFile]) -> list[ListedFile]:
    """The entries, with files of frozen code marked as new that only seem to be the same here."""
    top = f"{CODE}/"
    seem = {one.path for one in entries if one.path.startswith(top) and not one.folder and not one.new}
    other = seem - task.rsync.alike(task.there.name, here, seem)
    return [replace(one, new=True) if one.path in other else one for one in entries]


def _count(task: SweepSync, chosen: Iterable[ChosenFiles]) -> None:
    for one in chosen:
        task.brought.files += one.files
        task.brought.size += one.size
        _note(task, "a name that could do harm, or is too long", "left there", one.refused)
        for name in one.misplaced:
            text = "is a folder where a run has a file, or the other way round; left there"
            task.brought.problems.append(f"run {one.run_id}: {brief(name)} {text}")
        if one.kept:
            text = "other than what was verified here before, which stays"
            names = [brief(entry.path) for entry in one.kept[:_NAMED]]
            task.brought.problems.append(f"{', '.join(names)}: {text}")


def _note(task: SweepSync, what: str, done: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        task.brought.notes.append(f"{done} ({what}): {', '.join(map(brief, names[:_NAMED]))}{more}")


def _of_wandb(name: str) -> bool:
    """Whether a link is one of those that W&B makes to its own logs, which nobody misses."""
    top, *inside = PurePosixPath(name).parts
    return top == RUNS and kind_of(PurePosixPath(*inside[1:])) == "wandb"


def _batches(chosen: Iterable[ChosenFiles]) -> Iterator[list[ChosenFiles]]:
    """Parts of the whole that are brought and checked one after the other, each into one folder."""
    batch: list[ChosenFiles] = []
    size = 0
    for one in chosen:
        full = len(batch) >= _BATCH_RUNS or size + one.size > _BATCH_BYTES
        if batch and (full or batch[-1].here != one.here):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _fetch(task: SweepSync, batch: Sequence[ChosenFiles], progress: Callable[[int], None]) -> tuple[str, ...]:
    """Bring what a batch lacks; what could not be read there."""
    here = batch[0].here
    here.mkdir(parents=True, exist_ok=True)
    for one in batch:
        link(one)
    names = [name for one in batch for name in one.names]
    if not names:
        return ()
    verify = task.wish.verify
    return task.rsync.fetch(task.there.name, here, names, task.folder.incoming, progress, by_content=verify)


def _came(screen: SyncProgress, before: int, size: int) -> None:
    screen.came(before + size)

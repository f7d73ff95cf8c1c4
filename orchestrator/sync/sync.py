"""Sync a source: fetch its results, sweep by sweep.

Of a sweep, results are listed first, then their files are fetched, then the results themselves; each result
is checked against its files and published last. So a published result is always complete.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from orchestrator.config.code.snapshot import is_whole
from orchestrator.core.errors import DamagedFileError, StorageError
from orchestrator.core.formatting import count, listed, printable
from orchestrator.core.machine.free_space import no_space_error, on_one_disk
from orchestrator.core.machine.s3 import Address
from orchestrator.rundir import CodeDir
from orchestrator.rundir.copies.synced import CODE, INDEX, RUNS, kind_of, sync_lock
from orchestrator.rundir.copy_origin import Copy, read_copy, write_copy
from orchestrator.rundir.files.atomic import storage_errors
from orchestrator.rundir.index import index_rows
from orchestrator.rundir.run import WORK
from orchestrator.sync.bucket_mirror import MirrorOptions
from orchestrator.sync.file_selection import ChosenFiles, choose, run_of
from orchestrator.sync.listing import SweepSync, list_tree, sweep_sync_of
from orchestrator.sync.publish import finish_batch, follow_retries, record_results, refused_runs
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport, matching_runs
from orchestrator.sync.rsync import ListedFile, Listing, Rsync, brief, size_of, stamp_of
from orchestrator.sync.source import Source, refuse_own

# Bytes or runs after which results are checked and published: a later failure does not affect them.
_BATCH_BYTES, _BATCH_RUNS = 256 << 20, 2000
_NAMED = 5
# If more than one run in this many is to be checked, all are listed.
_MANY = 7


def sync(
    source: Source, results: Path, options: SyncOptions, screen: SyncProgress, *, dry: bool = False
) -> list[SyncReport]:
    """Fetch new results; with ``dry`` only count them.

    Raises :class:`OrchestrateError`; :class:`UnreachableError` after a lost connection: fetched files are
    kept, and the same call continues from there.
    """
    refused = source.connect(MirrorOptions(options, dry, screen))
    if not dry or source.host is None:
        refuse_own(source, results)
    rsync = Rsync(source)
    began = time.time()
    screen.begin(f"listing {source.text}")
    tree = list_tree(rsync, options.sweeps)
    here = results.absolute()
    sweeps = (sweep_sync_of(rsync, there, began, here, options) for there in tree.sweeps.values())
    reports: list[SyncReport] = []
    for one in sweeps:
        reports.append(_count_sweep(one, reports) if dry else _sync_sweep(one, screen))
    if refused := [*refused, *tree.refused]:
        names = ", ".join(map(printable, sorted(refused)[:5]))
        reports[0].notes.append(f"not fetched (no sweep, run or plain file): {names}")
    _name_failed(source, reports)
    if source.mirror is not None and dry:
        reports[0].lack = source.mirror.lack or reports[0].lack
    if not dry:
        source.leave()
    return reports


def _name_failed(source: Source, reports: Iterable[SyncReport]) -> None:
    """Report the objects of a bucket that could not be read."""
    if source.mirror is None:
        return
    for one in reports:
        for name, why in source.mirror.failed.items():
            if name.partition("/")[0] == one.sweep:
                one.problems.append(_failed(source.mirror.address, name, why))


def _failed(address: Address, name: str, why: str) -> str:
    """Describe an unreadable object, its effect, and the fix."""
    stays = "; its run is not updated here" if f"/{RUNS}/" in name else ""
    key = shlex.quote(printable(address.prefix + name))
    command = f"aws s3api head-object --bucket {address.bucket} --key {key}"
    return f"{address.text}/{brief(name)}: {why}{stays}. Sync again; if that does not help, see: {command}"


def _count_sweep(sync: SweepSync, before: Sequence[SyncReport]) -> SyncReport:
    """Count the new files of a sweep, and write nothing. ``before``: sweeps that would be fetched first."""
    with tempfile.TemporaryDirectory() as temporary:
        visited = _runs_to_check(sync, _fetch_index(sync, Path(temporary), Path(temporary)))
    aside = dict(_retried(sync, visited))
    sync.report.put_aside = len(aside)
    chosen = _plan(sync, visited, aside)
    _count(sync, chosen)
    sync.report.lack = _lack_of_space(sync, chosen, before)
    return sync.report


def _sync_sweep(sync: SweepSync, screen: SyncProgress) -> SyncReport:
    """Fetch the new files of a sweep."""
    with storage_errors(sync.sweep.path), sync_lock(sync.sweep) as keep:
        # Another sync may have held the lock until now.
        rsync = replace(sync.rsync, keep=keep)
        sync = sweep_sync_of(rsync, sync.listed, sync.began, sync.sweep.results, sync.options)
        with sync.folder.work():
            _fetch_marked(sync, screen)
    sync.report.summarise()
    return sync.report


def _fetch_marked(sync: SweepSync, screen: SyncProgress) -> None:
    """Fetch a sweep, with its source recorded first, so that a cut leaves no doubt."""
    folder, before = sync.folder.path, read_copy(sync.folder.path)
    since, last = (before.since, before.time) if before else (sync.began, None)
    write_copy(folder, Copy(sync.source, sync.rsync.source.name, since, last))
    _fetch_new(sync, screen)
    write_copy(folder, Copy(sync.source, sync.rsync.source.name, since, sync.began))


def _fetch_new(sync: SweepSync, screen: SyncProgress) -> None:
    visited = _without_links(sync, _runs_to_check(sync, _take_index(sync)))
    follow_retries(sync, visited)
    screen.begin(f"{sync.listed.name}: comparing {count(len(visited), 'run')}")
    chosen = _plan(sync, visited)
    _copy_times(chosen)
    _count(sync, chosen)
    if (lack := _lack_of_space(sync, chosen)) is not None:
        raise lack
    screen.expect(sync.listed.name, sync.report.files, sync.report.size)
    done = 0
    for batch in _batches(chosen):
        problems = _fetch(sync, batch, partial(_report_progress, screen, done))
        sync.report.problems += [line for line in problems if line not in sync.report.problems]
        done += sum(one.size for one in batch)
        screen.came(done)
        screen.begin(f"{sync.listed.name}: checking {count(len(batch), 'run')}")
        finish_batch(sync, batch, clean=not problems)
        sync.folder.remember(sync.state)
    record_results(sync)
    sync.folder.refuse(refused_runs(sync))


def _fetch_index(sync: SweepSync, aside: Path, temporary: Path) -> Path:
    """Return the path of the source's index, fetched to the folder ``aside`` if it changed."""
    known = sync.folder.index
    if not sync.listed.index or stamp_of(known) == sync.listed.index:
        return known
    sync.rsync.fetch(sync.listed.name, aside, [INDEX], temporary)
    sync.report.files += 1
    sync.report.size += size_of(sync.listed.index)
    return aside / INDEX


def _take_index(sync: SweepSync) -> Path:
    """Fetch the source's index if it changed. A damaged one does not replace one that can be read."""
    known, fetched = sync.folder.index, _fetch_index(sync, sync.folder.staged, sync.folder.incoming)
    if fetched == known or not fetched.exists():
        return known
    if known.exists() and _index_problem(fetched) and not _index_problem(known):
        return fetched
    os.replace(fetched, known)
    return known


def _without_links(sync: SweepSync, visited: Iterable[str]) -> list[str]:
    """Return the runs without a link in place of their folder here; report the others."""
    fine = []
    for run_id in visited:
        if sync.run(run_id).path.is_symlink():
            text = f"{sync.run(run_id).path}: is a link, expected a folder; left as it is"
            sync.report.problems.append(f"run {run_id}: {text}")
        else:
            fine.append(run_id)
    return fine


def selected(sync: SweepSync, index: Path) -> list[str]:
    """Return the selected runs at the source; ``index`` has their keys."""
    runs = list(sync.listed.runs)
    if not sync.options.runs:
        return runs
    found = matching_runs(index, sync.options.runs)
    sync.report.fitting |= {selector for selector, run_ids in found.items() if run_ids}
    wanted = set().union(*found.values())
    return [run_id for run_id in runs if run_id in wanted]


def _index_problem(index: Path) -> str | None:
    """Return why an index is unreadable; None for a readable one."""
    try:
        index_rows(index)
    except DamagedFileError as error:
        return brief(str(error).removeprefix(f"{index}: "))
    return None


def _retried(sync: SweepSync, visited: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield runs with a result here that was put aside at the source, and its new name there."""
    for run_id in visited:
        there, stamp = sync.listed.runs[run_id], stamp_of(sync.run(run_id).result_path)
        names = [name for name, one in there.retired.items() if one == stamp != there.result]
        if names:
            yield run_id, names[0]


def _runs_to_check(sync: SweepSync, index: Path) -> list[str]:
    """Return the selected runs that may have changed since the last sync, without opening files."""
    if found := _index_problem(index):  # without it the runs' keys are unknown
        sync.report.problems.append(f"{INDEX} at the source: {found}; sync again once it is repaired")
    settled = sync.state.settled

    def is_settled(run_id: str) -> bool:
        there = sync.listed.runs[run_id]
        if there.result is None or settled.get(run_id) not in (there.token, sync.token(run_id)):
            return False
        if sync.state.is_as_left(run_id, f"{sync.folder.path}/{RUNS}/{run_id}"):
            return True
        sync.suspect.add(run_id)
        return False

    wanted = selected(sync, index)
    if sync.options.verify:
        sync.suspect.update(run_id for run_id in wanted if sync.listed.runs[run_id].result)
        return wanted
    return [run_id for run_id in wanted if not is_settled(run_id)]


def _plan(
    sync: SweepSync, visited: Sequence[str], aside: Mapping[str, str] | None = None
) -> list[ChosenFiles]:
    """Return all files to fetch, in order: the sweep's own first, then its runs'.

    ``aside``: runs with a result here that gets this name first.
    """
    listing = _list(sync, visited)
    chosen = choose(listing, sync.folder.path, sync.options)
    _find_unchanged(sync, chosen)
    sync.report.problems += listing.problems
    _note(sync, "no plain file", "not fetched", [name for name in listing.special if not _is_usual(name)])
    for one in chosen:
        _expect_result(sync, one, (aside or {}).get(one.run_id))
    return chosen


def _find_unchanged(sync: SweepSync, chosen: Iterable[ChosenFiles]) -> None:
    """Find verified files that only have another time at the source, as after a plain copy."""
    here = sync.folder.path
    for one in chosen:
        alike = {entry.path for entry in one.kept if (here / entry.path).stat().st_size == entry.size}
        if alike:
            alike = sync.rsync.alike(sync.listed.name, here, alike)
        one.same = [entry for entry in one.kept if entry.path in alike]
        one.kept = [entry for entry in one.kept if entry.path not in alike]


def _copy_times(chosen: Iterable[ChosenFiles]) -> None:
    """Give unchanged files their time at the source, so that listings show them as equal."""
    for one in chosen:
        for path, entry in ((one.here / entry.path, entry) for entry in one.same):
            os.utime(path, (path.stat().st_atime, entry.time))


def _lack_of_space(
    sync: SweepSync, chosen: Sequence[ChosenFiles], before: Sequence[SyncReport] = ()
) -> StorageError | None:
    """Return the error if the chosen files do not fit. Files of a bucket's mirror may be links to it.

    ``before``: sweeps to be fetched first, which are not here yet.
    """
    here = sync.folder.path
    if sync.rsync.source.mirror is not None and on_one_disk(here, sync.sweep.results):
        return None
    names = [Path(name) for one in chosen for name in one.names]
    paths = {here / path for name in names for path in (name, *name.parents)}
    new = sync.report.due + sum(not os.path.lexists(path) for path in paths)
    size, what = sum(one.size for one in chosen), f"what is new of {sync.listed.name}"
    if first := [one for one in before if on_one_disk(sync.sweep.results / one.sweep, here)]:
        size, new = size + sum(one.size for one in first), new + sum(one.files for one in first)
        what += f" and of {count(len(first), 'sweep')} before it"
    return no_space_error(here, size, new, what)


def _expect_result(sync: SweepSync, one: ChosenFiles, aside: str | None) -> None:
    """Count a result to fetch; one that is only renamed here to ``aside`` does not count."""
    there = sync.listed.runs.get(one.run_id)
    if there is None:
        return
    name = f"{RUNS}/{one.run_id}/{aside}"
    if aside and name in one.names:
        one.names.remove(name)
        one.files -= 1
        one.size -= size_of(there.retired[aside])
    if there.result and (aside or not sync.run(one.run_id).result_path.exists()):
        one.files += 1
        one.size += size_of(there.result)
        sync.report.due += 1


def _list(sync: SweepSync, runs: Sequence[str]) -> Listing:
    """List the sweep's files and these runs at the source, compared with the copy here."""
    here, own = sync.folder.path, sync.listed.entries
    codes = sync.listed.codes if sync.options.only is None else []
    new = [code for code in codes if not _is_code_here(sync, here / CODE / code)]
    rules, names = None, [*own, *(f"{CODE}/{code}" for code in new), *(f"{RUNS}/{run_id}" for run_id in runs)]
    patterns = any(sign in name for name in own for sign in "*?[\\")
    if len(runs) * _MANY > len(sync.listed.runs) and not patterns:
        # rsync needs a millisecond per given name: listing the whole folder is faster.
        rules = [f"- /{CODE}/{code}/" for code in sync.listed.codes if code not in new]
        rules += [f"+ /{CODE}/"] * bool(new) + [f"+ /{top}" for top in own] + [f"+ /{RUNS}/", "- /*"]
    with tempfile.TemporaryDirectory() as nothing:
        against = here if here.is_dir() else Path(nothing)
        listing = sync.rsync.list(
            sync.listed.name, against, rules=rules or (), names=None if rules else names
        )
    wanted = {"", *runs}
    listing.entries = [entry for entry in listing.entries if run_of(entry.path) in wanted]
    if sync.options.verify and new:
        listing.entries = _compared(sync, here, listing.entries)
    return listing


def _is_code_here(sync: SweepSync, folder: Path) -> bool:
    """Return whether a frozen code is unchanged in its folder; with ``--verify``, by content."""
    as_left = sync.state.is_code_as_left(folder.name, str(folder))
    return as_left and (not sync.options.verify or is_whole(CodeDir(folder)))


def _compared(sync: SweepSync, here: Path, entries: Sequence[ListedFile]) -> list[ListedFile]:
    """Mark files of frozen code as new if only their size and time are equal here."""
    top = f"{CODE}/"
    seem = {one.path for one in entries if one.path.startswith(top) and not one.folder and not one.new}
    other = seem - sync.rsync.alike(sync.listed.name, here, seem)
    return [replace(one, new=True) if one.path in other else one for one in entries]


def _count(sync: SweepSync, chosen: Iterable[ChosenFiles]) -> None:
    for one in chosen:
        sync.report.files += one.files
        sync.report.size += one.size
        _note(sync, "an unsafe or too long name", "not fetched", one.refused)
        for name in one.misplaced:
            text = "is a folder where a run has a file, or the other way round; not fetched"
            sync.report.problems.append(f"run {one.run_id}: {brief(name)} {text}")
        if one.kept:
            text = "differ from the files verified here before, which are kept"
            names = [brief(entry.path) for entry in one.kept[:_NAMED]]
            sync.report.problems.append(f"{', '.join(names)}: {text}")


def _note(sync: SweepSync, what: str, done: str, names: Sequence[str]) -> None:
    if names:
        sync.report.notes.append(f"{done} ({what}): {listed(list(map(brief, names)), _NAMED)}")


def _is_usual(name: str) -> bool:
    """Return whether a link is left by intention: of code, of a working folder, or by W&B to its own logs."""
    top, *inside = PurePosixPath(name).parts
    of_program = top == RUNS and inside[1:2] == [WORK]
    return top == CODE or of_program or (top == RUNS and kind_of(PurePosixPath(*inside[1:])) == "wandb")


def _batches(chosen: Iterable[ChosenFiles]) -> Iterator[list[ChosenFiles]]:
    """Split the files into batches to fetch and check one by one."""
    batch: list[ChosenFiles] = []
    size = 0
    for one in chosen:
        if batch and (len(batch) >= _BATCH_RUNS or size + one.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _fetch(sync: SweepSync, batch: Sequence[ChosenFiles], progress: Callable[[int], None]) -> tuple[str, ...]:
    """Fetch the missing files of a batch; return the errors of unreadable ones."""
    here, verify = sync.folder.path, sync.options.verify
    here.mkdir(parents=True, exist_ok=True)
    names = [name for one in batch for name in one.names]
    if not names:
        return ()
    return sync.rsync.fetch(sync.listed.name, here, names, sync.folder.incoming, progress, by_content=verify)


def _report_progress(screen: SyncProgress, before: int, size: int) -> None:
    screen.came(before + size)

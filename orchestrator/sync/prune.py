"""Free space at a source: delete files of finished runs there that are verified here.

A mark that lists the files is written first, so that the source never treats a run as damaged and trains it
again.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import HostError, OrchestrateError
from orchestrator.core.formatting import printable
from orchestrator.rundir import RunDir
from orchestrator.rundir.attempts.absent_files import MARK, mark_absent, read_absent
from orchestrator.rundir.copies.synced import RESULT, RUNS
from orchestrator.rundir.files.plain_files import same_content
from orchestrator.sync.listing import SweepSync, list_tree, sweep_sync_of
from orchestrator.sync.request import SyncOptions
from orchestrator.sync.rsync import Rsync
from orchestrator.sync.source import Source, refuse_own
from orchestrator.sync.sync import selected
from orchestrator.sync.verify import check_all

_DELETE = 'cd -- "$1" && exec xargs -0 rm -f --'


@dataclass(frozen=True)
class Dispensable:
    """Files of a sweep's finished runs (run → paths in its folder) that are intact here."""

    sync: SweepSync
    files: dict[str, tuple[str, ...]]
    size: int

    @property
    def count(self) -> int:
        """Number of files."""
        return sum(map(len, self.files.values()))


def prune(
    source: Source, results: Path, options: SyncOptions, agreed: Callable[[Dispensable], bool]
) -> list[Dispensable]:
    """Delete verified files at the source, sweep by sweep, if ``agreed``; return what was deleted.

    Raises :class:`OrchestrateError`; only marked files are deleted before.
    """
    if source.mirror is not None:
        raise OrchestrateError(
            f"{source.text}: deleting in a bucket is not supported",
            hint="set lifecycle rules of the bucket, or use: aws s3 rm",
        )
    source.connect()
    rsync, began = Rsync(source), time.time()
    done = []
    refuse_own(source, results)
    for there in list_tree(rsync, options.sweeps).sweeps.values():
        refuse_own(Source(f"{source.root}/{there.name}", source.host), results / there.name)
        found = _dispensable(sweep_sync_of(rsync, there, began, results.absolute(), options))
        if found.files and agreed(found):
            _mark(found)
            _delete(found)
            done.append(found)
    return done


def _dispensable(sync: SweepSync) -> Dispensable:
    """Hash every file here again: an earlier check is no reason to delete the only other copy."""
    alike = [one for one in _same_results(sync) if not read_absent(one.path).files]
    still = _left(sync, [run.run_id for run in alike if sync.listed.runs[run.run_id].pruned])
    files: dict[str, tuple[str, ...]] = {}
    size = 0
    listed = [(run, run.manifest()) for run in alike]
    for (run, manifest), found in zip(listed, check_all(listed), strict=True):
        if not found.void:
            amiss = {*found.wrong, *found.absent}
            whole = [
                item
                for item in manifest
                if item.path not in amiss and _is_there(still, run.run_id, item.path)
            ]
            files[run.run_id] = tuple(item.path for item in whole)
            size += sum(item.bytes for item in whole)
    os.sync()  # the files just read may not be on disk yet
    return Dispensable(sync, {run_id: names for run_id, names in files.items() if names}, size)


def _left(sync: SweepSync, marked: Sequence[str]) -> dict[str, set[str]]:
    """Return files of runs marked before that still exist: an earlier deletion was interrupted."""
    left: dict[str, set[str]] = {run_id: set() for run_id in marked}
    if marked:
        with tempfile.TemporaryDirectory() as nothing:
            names = [f"{RUNS}/{run_id}" for run_id in marked]
            listing = sync.rsync.list(sync.listed.name, Path(nothing), names=names)
        for entry in listing.entries:
            if entry.plain and not entry.folder:
                _, run_id, name = entry.path.split("/", 2)
                left[run_id].add(name)
    return left


def _is_there(still: Mapping[str, set[str]], run_id: str, name: str) -> bool:
    return run_id not in still or name in still[run_id]


def _same_results(sync: SweepSync) -> list[RunDir]:
    """Return the runs with equal results here and at the source, byte for byte."""
    runs = [
        run
        for run_id in selected(sync, sync.folder.index)
        if sync.listed.runs[run_id].result
        if (run := sync.run(run_id)).result_path.exists()
    ]
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{RUNS}/{run.run_id}/{RESULT}" for run in runs]
        if names:
            sync.rsync.fetch(sync.listed.name, Path(folder), names, Path(folder))
        theirs = [RunDir(Path(folder) / RUNS / run.run_id).result_path for run in runs]
        return [
            run
            for run, path in zip(runs, theirs, strict=True)
            if path.exists() and same_content(path, run.result_path)
        ]


def _mark(found: Dispensable) -> None:
    """Mark the files at the source as deleted, with their location, in addition to earlier ones."""
    sync = found.sync
    with tempfile.TemporaryDirectory() as folder:
        before = [f"{RUNS}/{run_id}/{MARK}" for run_id in found.files if sync.listed.runs[run_id].pruned]
        if before:
            sync.rsync.fetch(sync.listed.name, Path(folder), before, Path(folder))
        for run_id, names in found.files.items():
            run = RunDir(Path(folder) / RUNS / run_id)
            run.path.mkdir(parents=True, exist_ok=True)
            gone = read_absent(run.path).files
            mark_absent(run.path, f"{socket.gethostname()}:{sync.run(run_id).path}", {*gone, *names})
        marks = [f"{RUNS}/{run_id}/{MARK}" for run_id in found.files]
        sync.rsync.push(Path(folder), sync.listed.name, marks)


def _delete(found: Dispensable) -> None:
    """Delete the marked files of runs that still have the same result."""
    sync = found.sync
    now = list_tree(sync.rsync, [sync.listed.name]).sweeps[sync.listed.name].runs
    same = [
        run_id
        for run_id in found.files
        if run_id in now and now[run_id].result == sync.listed.runs[run_id].result and now[run_id].pruned
    ]
    names = [f"{RUNS}/{run_id}/{name}" for run_id in same for name in found.files[run_id]]
    source = sync.rsync.source
    answer = source.run(["sh", "-c", _DELETE, "sh", f"{source.root}/{sync.listed.name}"], names)
    if answer.code:
        line = next(
            (line for line in answer.errors.splitlines() if line.strip()), f"rm ended with {answer.code}"
        )
        raise HostError(
            f"{source.text}: not everything could be deleted ({printable(line)})",
            hint="the remaining files do no harm; check their permissions, then delete them by hand",
        )

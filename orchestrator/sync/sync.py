"""Sync a source: fetch its results, sweep by sweep."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from pathlib import Path

from orchestrator.core.formatting import plain
from orchestrator.core.s3 import Address
from orchestrator.rundir.synced import RUNS
from orchestrator.sync.bucket_mirror import MirrorOptions
from orchestrator.sync.fetch_sweep import fetch_sweep
from orchestrator.sync.listing import list_tree
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.rsync import Rsync, brief
from orchestrator.sync.source import Source, refuse_own
from orchestrator.sync.sweep_sync import sweep_sync_of


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
    reports = [fetch_sweep(one, screen, dry=dry) for one in sweeps]
    if refused := [*refused, *tree.refused]:
        names = ", ".join(map(plain, sorted(refused)[:5]))
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
    key = shlex.quote(plain(address.prefix + name))
    command = f"aws s3api head-object --bucket {address.bucket} --key {key}"
    return f"{address.text}/{brief(name)}: {why}{stays}. Sync again; if that does not help, see: {command}"

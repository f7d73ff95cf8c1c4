"""Results come home: sweep by sweep, from one source."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from pathlib import Path

from orchestrator.core.formatting import plain
from orchestrator.core.s3 import Address
from orchestrator.rundir.synced import RUNS
from orchestrator.sync.bucket_mirror import MirrorOptions
from orchestrator.sync.fetch_sweep import bring
from orchestrator.sync.job import sweep_sync_of
from orchestrator.sync.listing import look_there
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.rsync import Rsync, brief
from orchestrator.sync.source import Source, refuse_own


def sync(
    source: Source, results: Path, wish: SyncOptions, screen: SyncProgress, *, dry: bool = False
) -> list[SyncReport]:
    """Bring what is new there and wanted; with ``dry`` say what that would be.

    Raises :class:`OrchestrateError`; :class:`UnreachableError` where the connection ended: what came is kept,
    and the same call goes on from there.
    """
    refused = source.connect(MirrorOptions(wish, dry, screen))
    if not dry or source.host is None:
        refuse_own(source, results)
    rsync = Rsync(source)
    began = time.time()
    screen.begin(f"listing {source.text}")
    tree = look_there(rsync, wish.sweeps)
    here = results.absolute()
    tasks = (sweep_sync_of(rsync, there, began, here, wish) for there in tree.sweeps.values())
    brought = [bring(task, screen, dry=dry) for task in tasks]
    if refused := [*refused, *tree.refused]:
        names = ", ".join(map(plain, sorted(refused)[:5]))
        brought[0].notes.append(f"left there (no sweep, run or plain file): {names}")
    _name_failed(source, brought)
    if source.mirror is not None and dry:
        brought[0].lack = source.mirror.lack or brought[0].lack
    if not dry:
        source.leave()
    return brought


def _name_failed(source: Source, brought: Iterable[SyncReport]) -> None:
    """Say which objects of a bucket could not be read, and what that means."""
    if source.mirror is None:
        return
    for one in brought:
        for name, why in source.mirror.failed.items():
            if name.partition("/")[0] == one.sweep:
                one.problems.append(_failed(source.mirror.address, name, why))


def _failed(address: Address, name: str, why: str) -> str:
    """What could not be read, what that means, and what to do."""
    stays = "; its run stays as it is here" if f"/{RUNS}/" in name else ""
    key = shlex.quote(plain(address.prefix + name))
    command = f"aws s3api head-object --bucket {address.bucket} --key {key}"
    return f"{address.text}/{brief(name)}: {why}{stays}. Sync again; if it stays so, see: {command}"

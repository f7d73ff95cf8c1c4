"""Compute the state of a sweep's copy from its own files as of the last sync. Queries nothing.

A copy's ledger and journals come from another machine. Its process numbers may match this machine's
processes, its job ids this machine's jobs: nothing here uses them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import IndexRow, SweepDir, lease_seconds
from orchestrator.rundir.copy_origin import Copy
from orchestrator.rundir.synced import CopyDir, further_copies
from orchestrator.status.survey import RunStatus, Survey, survey


def look_at_copy(sweep_dir: SweepDir, copy: Copy, rows: Sequence[IndexRow] | None = None) -> Survey:
    """Survey a copy; a run done at another source has its state there."""
    seen = _as_recorded(sweep_dir, copy, rows)
    statuses = dict(seen.statuses)
    for folder, other in further_copies(sweep_dir):
        theirs = _as_recorded(SweepDir(folder.path.parent, folder.path.name), other, None)
        for run_id, status in theirs.statuses.items():
            if run_id in statuses and _is_further(status, statuses[run_id]):
                statuses[run_id] = status
    # Tokens of another source's jobs are valid only there.
    targets = seen.targets if statuses == seen.statuses else {}
    return Survey(seen.rows, statuses, seen.live, seen.damaged, targets=targets)


def _as_recorded(sweep_dir: SweepDir, copy: Copy, rows: Sequence[IndexRow] | None) -> Survey:
    seen = survey(
        sweep_dir.read_index() if rows is None else rows,
        sweep_dir.read_ledger(),
        sweep_dir.read_journals(),
        alive=lambda _: True,  # until its journal records its exit
        now=time.time() if copy.time is None else copy.time,
        lease=lease_seconds(),
    )
    refused = CopyDir(sweep_dir.path).refused()
    return replace(seen, statuses=dict(_without(seen.statuses, refused))) if refused else seen


def _without(
    statuses: Mapping[str, RunStatus], refused: Mapping[str, str]
) -> Iterator[tuple[str, RunStatus]]:
    """Yield the states, with refused results as failures."""
    for run_id, status in statuses.items():
        why = refused.get(run_id)
        if why is not None and status.state is RunState.DONE:
            status = replace(status, state=RunState.FAILED, reason=Reason.DAMAGED, message=why)
        yield run_id, status


def _is_further(one: RunStatus, other: RunStatus) -> bool:
    if other.state is RunState.DONE:
        return False
    return one.state is RunState.DONE or (one.attempt > 0 and other.attempt == 0)

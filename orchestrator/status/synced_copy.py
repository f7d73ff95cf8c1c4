"""Compute the state of a sweep's copy from its own files as of the last sync. Queries nothing.

A copy's ledger and journals come from another machine. Its process numbers may match this machine's
processes, its job ids this machine's jobs: nothing here uses them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import IndexRow, SweepDir, lease_seconds
from orchestrator.rundir.copies.synced import CopyDir
from orchestrator.rundir.copy_origin import Copy, read_copy
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import RunStatus, Survey, survey


def look_at_copy(sweep_dir: SweepDir, copy: Copy, rows: Sequence[IndexRow] | None = None) -> Survey:
    """Survey a copy; each run has its state at the source of the version that counts."""
    seen, others = _as_recorded(sweep_dir, copy, rows), sweep_dir.copies()
    if not others:
        return seen
    statuses, notes = dict(seen.statuses), list(seen.notes)
    counting = {run_id: sweep_dir.run_to_read(run_id).path for run_id in statuses}
    for other in others:
        theirs = _as_recorded(other, read_copy(other.path) or copy, seen.rows).statuses
        for run_id in statuses:
            if counting[run_id] == other.run(run_id).path:
                # Tokens of another source's jobs are valid only there.
                statuses[run_id] = replace(theirs[run_id], token=None)
        try:
            other.read_index()
        except DamagedFileError as error:
            notes.append(f"{error}; its runs that only it names are not shown")
    return replace(seen, statuses=statuses, notes=tuple(notes))


def _as_recorded(sweep_dir: SweepDir, copy: Copy, rows: Sequence[IndexRow] | None) -> Survey:
    seen = survey(
        sweep_dir.read_index() if rows is None else rows,
        sweep_dir.read_ledger(),
        sweep_dir.read_journals(),
        Moment(
            lambda _: True,  # until its journal records its exit
            time.time() if copy.time is None else copy.time,
            lease_seconds(),
        ),
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

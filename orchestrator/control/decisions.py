"""What a person decides on a sweep after its submission: stop, cancel, retry."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence

from orchestrator.backends.registry import AllBackends
from orchestrator.control.poll import idle_jobs, poll_sweep, settle_submissions
from orchestrator.control.staleness import Staleness
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine.permissions import user_name
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.copies.parcel import condemn, unpacked
from orchestrator.rundir.copies.synced import require_own
from orchestrator.rundir.records.ledger_entries import AcceptEntry, CancelEntry, RetryEntry
from orchestrator.status.disk_check import correct, inspect
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import Survey


def stop_workers(sweep_dir: SweepDir, targets: Collection[str] | None = None) -> list[str]:
    """Have the sweep's live jobs, or those of these ``targets``, save and leave; return their tokens.

    A job without a recorded id, after the death of its command line, is signalled through the process in its
    journal.
    """
    require_own(sweep_dir)
    seen = poll_sweep(sweep_dir)
    live = {token for token in seen.live if targets is None or seen.targets.get(token) in targets}
    ids = job_ids(sweep_dir.read_ledger())
    AllBackends().cancel([ids[token] for token in sorted(live) if token in ids])
    for log in sweep_dir.read_journals():
        if log.token in live and log.token not in ids and log.holder is not None:
            log.holder.signal(signal.SIGTERM)
    return sorted(live)


def unchecked() -> None:
    """Accept a decision of this tree."""


def poll_named(sweep_dir: SweepDir, run_ids: Iterable[str]) -> Survey:
    """The sweep's state, with these runs: a submission that another tree assigns may yet list some."""
    rows = sweep_dir.read_index()
    unlisted = dict.fromkeys(run_ids).keys() - {row.run_id for row in rows}
    return poll_sweep(sweep_dir, [*rows, *(IndexRow(run_id, True, {}) for run_id in sorted(unlisted))])


def cancel_runs(
    sweep_dir: SweepDir, run_ids: Sequence[str], check: Callable[[], None] = unchecked
) -> list[str]:
    """Take runs out of the sweep until a retry; return those that this changed.

    ``check`` is called under the lock and raises if another tree's decision is outdated.
    """
    require_own(sweep_dir)
    with sweep_dir.lock():
        check()
        statuses = poll_named(sweep_dir, run_ids).statuses
        concerned = [run_id for run_id in run_ids if not statuses[run_id].state.final]
        if concerned:
            runs = {run_id: sweep_dir.run(run_id).newest_attempt() for run_id in concerned}
            sweep_dir.add_to_ledger(CancelEntry(runs=runs))
    return concerned


def withdraw(sweep_dir: SweepDir, *, rented: bool = False) -> list[OrchestrateError]:
    """Cancel jobs that have not begun and have nothing left to do; what was in the way.

    A machine that was rented for one is put on record as to be taken down, which an exchange with it does: a
    cloud may not answer now. ``rented``: only those.
    """
    require_own(sweep_dir)
    problems: list[OrchestrateError] = []
    with sweep_dir.lock():
        sent = set(unpacked(sweep_dir))
        try:
            if sent - job_ids(sweep_dir.read_ledger()).keys():
                settle_submissions(sweep_dir)  # one whose id was lost is found by its name
        except OrchestrateError as error:
            problems.append(error)
        idle = idle_jobs(sweep_dir) if sent or not rented else {}
        for token in sent & idle.keys():
            condemn(sweep_dir, token)
        try:
            if not rented:
                AllBackends().cancel([job_id for token, job_id in idle.items() if token not in sent])
        except OrchestrateError as error:
            problems.append(error)
    return problems


def retry_runs(
    sweep_dir: SweepDir, run_ids: Sequence[str], check: Callable[[], None] = unchecked
) -> list[str]:
    """Make finished, failed, stale, skipped or cancelled runs pending again; those it concerned.

    The old result of a run stays in its folder under another name. ``check`` as for :func:`cancel_runs`.
    """
    require_own(sweep_dir)
    with sweep_dir.lock():
        check()
        seen = poll_named(sweep_dir, run_ids)
        statuses = correct(seen, inspect(sweep_dir, run_ids), sweep_dir).statuses
        concerned = [run_id for run_id in run_ids if statuses[run_id].state.final]
        if concerned:
            runs = {run_id: _newest_attempt(sweep_dir, run_id) for run_id in concerned}  # none counts again
            # Retire results before the entry: a crash in between leaves runs without a result, to be trained.
            for run_id in concerned:
                run, counting = sweep_dir.run(run_id), sweep_dir.run_to_read(run_id)
                if counting.path == run.path:
                    run.retire_result(after=runs[run_id])
                else:
                    run.begin_anew(f"retried here: {counting.path}", after=runs[run_id])
                # Failed, and not for a reason of the run's: something it builds on is damaged.
                if statuses[run_id].state is RunState.FAILED and statuses[run_id].reason is None:
                    run.begin_anew()
            sweep_dir.add_to_ledger(RetryEntry(runs=runs))
    return concerned


def accept_changes(sweep_dir: SweepDir, run_ids: Collection[str]) -> AcceptEntry | None:
    """Record that the code changed since these runs does not change their results; ``None`` if none is stale.

    A later change makes them stale again. Raises :class:`OrchestrateError` if the changes are unknown.
    """
    require_own(sweep_dir)
    with sweep_dir.lock():
        seen, today = poll_sweep(sweep_dir), Staleness(sweep_dir)
        if today.unknown is not None:
            why = today.unknown or "the code of today is not here"
            raise OrchestrateError(f"{sweep_dir.name}: which runs are stale is unknown: {why}")
        statuses = {
            row.run_id: (row, seen.statuses[row.run_id]) for row in seen.rows if row.run_id in run_ids
        }
        stale = {
            run_id: found
            for run_id, (row, status) in statuses.items()
            if status.state is RunState.DONE and (found := today.differences(row, status))
        }
        if not stale:
            return None
        changes = sorted({one for found in stale.values() for one in found}, key=str)
        entry = AcceptEntry(run_ids=frozenset(stale), changes=tuple(changes), by=user_name(os.geteuid()))
        sweep_dir.add_to_ledger(entry)
    return entry


def _newest_attempt(sweep_dir: SweepDir, run_id: str) -> int:
    return max(run.newest_attempt() for run in sweep_dir.versions(run_id))

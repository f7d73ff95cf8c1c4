"""Read submissions and results from a sweep's ledger."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.formatting import count
from orchestrator.core.types import PluginSource, RunState
from orchestrator.rundir import LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.journal import ENDED
from orchestrator.rundir.ledger_entries import (
    DamagedEntry,
    FoundEntry,
    LostEntry,
    RetryEntry,
    jobs_of,
    submissions,
)

# The most damaged files that a message names.
_NAMED = 3


def job_ids(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    """Return the backend's id of each job that has one, by token."""
    ids: dict[str, str] = {}
    for entry in submissions(ledger):
        ids |= entry.job_ids
    return ids


def finished_attempts(ledger: Iterable[LedgerEntry], logs: Iterable[WorkerLog]) -> dict[str, int]:
    """Return the attempt that finished each run, unless the run was retried or lost its result since.

    No later attempt counts: one can begin where the result was not seen yet.
    """
    over: dict[str, int] = {}
    for log in logs:
        for event in log.events:
            if event.kind == ENDED and event.run_id and event.data["outcome"] == RunState.DONE.value:
                over[event.run_id] = max(event.attempt or 0, over.get(event.run_id, 0))
    found: dict[str, int] = {}
    for entry in ledger:
        if isinstance(entry, FoundEntry):
            found |= {run_id: about.attempt for run_id, about in entry.runs.items()}
        elif isinstance(entry, RetryEntry | LostEntry):
            for run_id, attempt in entry.runs.items():
                found.pop(run_id, None)
                if over.get(run_id, attempt + 1) <= attempt:
                    del over[run_id]
    return over | found


def lost_results(ledger: Iterable[LedgerEntry]) -> dict[str, int]:
    """Return the newest attempt of each run that lost its result, at that time."""
    lost: dict[str, int] = {}
    for entry in ledger:
        if isinstance(entry, LostEntry):
            lost |= entry.runs
    return lost


def submitted_plugins(sweep_dir: SweepDir) -> tuple[PluginSource, ...]:
    """Return the plug-ins of the latest submission with jobs, with their paths at that time."""
    for entry in reversed(submissions(sweep_dir.read_ledger())):
        if entry.jobs:
            return entry.jobs[0].plugins  # all have the same
    return ()


def unreadable_files(ledger: Iterable[LedgerEntry], logs: Iterable[WorkerLog]) -> tuple[str, ...]:
    """List unreadable ledger entries and journals in one line; empty if there are none."""
    found = [f"ledger entry {entry.problem}" for entry in ledger if isinstance(entry, DamagedEntry)]
    for log in logs:
        if log.damaged:
            journal = f"{'compacted' if log.compacted else log.token}.jsonl"
            found.append(f"{count(log.damaged, 'line')} of journal {journal}")
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (f"passed over: {'; '.join(found[:_NAMED])}{more}",) if found else ()


def targets_of(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    """Return the target of each job, by token."""
    return {job.token: job.target for _, job in jobs_of(ledger)}

"""Read submissions and results from a sweep's ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable

from orchestrator.core.formatting import count, printable
from orchestrator.core.types import PluginSource
from orchestrator.rundir import LedgerEntry, SweepDir, WorkerLog
from orchestrator.rundir.records.ledger_entries import (
    AcceptEntry,
    DamagedEntry,
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


def accepted_changes(ledger: Iterable[LedgerEntry]) -> list[str]:
    """Return a line for each decision that changed code does not make runs stale."""
    lines = []
    for entry in ledger:
        if isinstance(entry, AcceptEntry):
            # A whole code without files is a trainer's.
            names = sorted({printable(name) for name, *_ in entry.changes if name}) or ["the trainer's code"]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            date = time.strftime("%Y-%m-%d", time.localtime(entry.time))
            changes = f"{count(len(names), 'change')} accepted: {', '.join(names[:3])}{more}"
            lines.append(
                f"{changes}, for {count(len(entry.run_ids), 'run')}, by {printable(entry.by)} on {date}"
            )
    return lines


def accepted_codes(ledger: Iterable[LedgerEntry]) -> dict[tuple[str, str], str]:
    """Map a run and the code that trained it to the code that it counts as, by what was accepted."""
    return {
        (run_id, change.was): change.now
        for entry in ledger
        if isinstance(entry, AcceptEntry)
        for change in entry.changes
        if not change.name and change.was is not None and change.now is not None
        for run_id in entry.run_ids
    }

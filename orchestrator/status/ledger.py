"""Read submissions from a sweep's ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.core.types import Job, PluginSource
from orchestrator.rundir import DAMAGED, LedgerEntry, SweepDir, WorkerLog

# The most damaged files that a message names.
_NAMED = 3


def jobs_of(ledger: Iterable[LedgerEntry]) -> Iterator[tuple[LedgerEntry, Mapping[str, Any]]]:
    """Yield every job ever submitted, with its submission."""
    for entry in ledger:
        if entry.kind == "submission":
            for job in entry.data["jobs"]:
                yield entry, job


def job_ids(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    """Return the backend's id of each job that has one, by token."""
    ids: dict[str, str] = {}
    for entry in ledger:
        if entry.kind == "submission":
            ids |= entry.data["job_ids"]
    return ids


def submitted_plugins(sweep_dir: SweepDir) -> tuple[PluginSource, ...]:
    """Return the plug-ins of the latest submission with jobs, with their paths at that time."""
    for entry in reversed(sweep_dir.read_ledger()):
        if entry.kind == "submission" and entry.data["jobs"]:
            return Job.from_json(entry.data["jobs"][0]).plugins  # all have the same
    return ()


def unreadable_files(ledger: Iterable[LedgerEntry], logs: Iterable[WorkerLog]) -> tuple[str, ...]:
    """List unreadable ledger entries and journals in one line; empty if there are none."""
    found = [f"ledger entry {entry.data['problem']}" for entry in ledger if entry.kind == DAMAGED]
    for log in logs:
        if log.damaged:
            lines = "1 line" if log.damaged == 1 else f"{log.damaged} lines"
            found.append(f"{lines} of journal {'compacted' if log.compacted else log.token}.jsonl")
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (f"passed over: {'; '.join(found[:_NAMED])}{more}",) if found else ()


def targets_of(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    """Return the target of each job, by token."""
    submissions = [entry.data for entry in ledger if entry.kind == "submission"]
    return {job["token"]: job.get("target", "local") for data in submissions for job in data["jobs"]}

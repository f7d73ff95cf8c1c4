"""Read what a sweep's ledger says of its submissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.core.types import Job, PluginSource
from orchestrator.rundir import LedgerEntry, SweepDir


def jobs_of(ledger: Iterable[LedgerEntry]) -> Iterator[tuple[LedgerEntry, Mapping[str, Any]]]:
    """Every job that was ever submitted, with its submission."""
    for entry in ledger:
        if entry.kind == "submission":
            for job in entry.data["jobs"]:
                yield entry, job


def job_ids(ledger: Iterable[LedgerEntry]) -> dict[str, str]:
    """The backends' ids of all jobs that have one on record, by token."""
    ids: dict[str, str] = {}
    for entry in ledger:
        if entry.kind == "submission":
            ids |= entry.data["job_ids"]
    return ids


def submitted_plugins(sweep_dir: SweepDir) -> tuple[PluginSource, ...]:
    """The plug-ins of the latest submission that has jobs. They are where they were then."""
    for entry in reversed(sweep_dir.read_ledger()):
        if entry.kind == "submission" and entry.data["jobs"]:
            return Job.from_json(entry.data["jobs"][0]).plugins  # all have the same
    return ()

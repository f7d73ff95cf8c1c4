"""The last submission of a sweep: a later one without other options repeats its target and options."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import find_target
from orchestrator.core.types import TargetAssignment
from orchestrator.rundir import FrozenCode, SweepDir
from orchestrator.rundir.records.ledger_entries import submissions


@dataclass(frozen=True)
class LastSubmission:
    """A submission: its target and options, and its runs if it was one of several."""

    backend: Backend
    slots: int | None
    canary: bool
    assignment: TargetAssignment | None


def latest_target(sweep_dir: SweepDir, job: str | None = None) -> LastSubmission | None:
    """The latest submission of all, or of those to the target that ``job`` (a token) was submitted to.

    ``None`` before the first.
    """
    made = submissions(sweep_dir.read_ledger())
    own = next((entry for entry in made if job in {one.token for one in entry.jobs}), None)
    for entry in reversed(made):
        if own is None or entry.on == own.on:
            backend = find_target(entry.on, entry.options)
            assignment = None if entry.dealt is None else TargetAssignment(entry.dealt)
            return LastSubmission(backend, entry.slots, entry.canary, assignment)
    return None


def submitted_code(sweep_dir: SweepDir) -> FrozenCode | None:
    """The code of the latest submission, if it is still there."""
    codes = [entry.code for entry in submissions(sweep_dir.read_ledger()) if entry.code is not None]
    return codes[-1] if codes and codes[-1].path.is_dir() else None

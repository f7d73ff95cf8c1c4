"""The last submission of a sweep: a later one without other options repeats its target and options."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import find_target
from orchestrator.config.code.snapshot import FrozenCode
from orchestrator.core.types import TargetAssignment
from orchestrator.rundir import SweepDir


@dataclass(frozen=True)
class LastSubmission:
    """A submission: its target and options, and its runs if it was one of several."""

    backend: Backend
    slots: int | None
    canary: bool
    deal: TargetAssignment | None


def latest_target(sweep_dir: SweepDir, job: str | None = None) -> LastSubmission | None:
    """The latest submission of all, or of those to the target that ``job`` (a token) was submitted to.

    ``None`` before the first.
    """
    made = [entry.data for entry in sweep_dir.read_ledger() if entry.kind == "submission"]
    own = next((data for data in made if job in {one["token"] for one in data["jobs"]}), None)
    for data in reversed(made):
        if own is None or data.get("on") == own.get("on"):
            backend = find_target(data.get("on", "local"), data.get("options", ()))
            deal = TargetAssignment(frozenset(data["dealt"])) if "dealt" in data else None
            return LastSubmission(backend, data.get("slots"), data.get("canary", False), deal)
    return None


def submitted_code(sweep_dir: SweepDir) -> FrozenCode | None:
    """The code of the latest submission, if it is still there."""
    for entry in reversed(sweep_dir.read_ledger()):
        if entry.kind == "submission" and "code" in entry.data:
            code = FrozenCode.from_json(entry.data["code"])
            return code if code.path.is_dir() else None
    return None

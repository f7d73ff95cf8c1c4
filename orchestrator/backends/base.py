"""What every backend offers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.plan import Capacity
from orchestrator.types import Job


class JobState(enum.Enum):
    """Where a job stands with its backend. UNKNOWN is no news: it never counts as an end."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        return self is JobState.ENDED


@dataclass(frozen=True)
class JobStatus:
    """A backend's answer about one job; ``text`` is what it said in its own words."""

    state: JobState
    text: str = ""


class Backend(Protocol):
    """Starts jobs and says what became of them. It never decides what is to run."""

    def capacity(self) -> Capacity:
        """What one job can have here."""
        ...

    def submit(self, job: Job, argv: Sequence[str], output: Path) -> str:
        """Start the job; its id with this backend. What it prints goes to ``output``.

        Raises ``BackendUnavailableError`` if no job can be started here.
        """
        ...

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The status of every job asked for."""
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask jobs to save and leave. Those that left already are passed over."""
        ...

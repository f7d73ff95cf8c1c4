"""The interface of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from orchestrator.backends.script import Script, Setting
from orchestrator.core.types import Array, Capacity, Concern, JobStatus, Plan
from orchestrator.rundir import SweepDir


class Backend(Protocol):
    """Starts jobs and reports their states. It never decides which runs to train.

    ``kind``: its name in profiles and ledgers. ``queues``: whether jobs continue without the submitting
    process. ``leaves``: whether a command exits after submission by default. ``address``, with ``options``:
    how :func:`~orchestrator.backends.registry.find_target` finds it again.
    """

    kind: ClassVar[str]
    address: str
    options: Sequence[str]
    queues: ClassVar[bool]
    leaves: ClassVar[bool]

    def capacity(self, ask: bool = True) -> Capacity:
        """Return the resources of one job, and how many more jobs the queue accepts.

        Without ``ask`` no cluster is contacted, and limits are Slurm's defaults.
        """
        ...

    def render(self, array: Array, setting: Setting) -> str:
        """Return the exact text for :meth:`submit`, as printed by a dry run."""
        ...

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """Return warnings about what the plan's jobs request in vain; with ``ask`` also about limits of the
        cluster.
        """
        ...

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Start the array's jobs; return the backend's id of each, by token.

        ``after``: ids of jobs that must end successfully before. Raises ``BackendUnavailableError`` if the
        jobs cannot be started here.
        """
        ...

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Return the ids, by token, of jobs submitted with a lost reply; empty if none are found."""
        ...

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """Return the status of each of these jobs."""
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """Request that jobs save and stop. Ended jobs are ignored."""
        ...

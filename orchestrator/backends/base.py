"""What every backend offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from orchestrator.backends.script import Script, Setting
from orchestrator.core.types import Array, Capacity, Concern, JobStatus, Plan
from orchestrator.rundir import SweepDir


class Backend(Protocol):
    """Starts jobs and says what became of them. It never decides what is to run.

    ``kind`` is the backend's name in profiles and ledgers; ``queues`` is true where jobs go on whatever
    becomes of whoever submitted them, ``leaves`` where a submission leaves them to it unless told otherwise.
    ``address`` is by what :func:`~orchestrator.backends.registry.find_target` finds it, with ``options``.
    """

    kind: ClassVar[str]
    address: str
    options: Sequence[str]
    queues: ClassVar[bool]
    leaves: ClassVar[bool]

    def capacity(self, ask: bool = True) -> Capacity:
        """What one job can have here, and how many the queue still takes.

        Without ``ask`` no cluster is asked, and its limits are those that Slurm has by default.
        """
        ...

    def render(self, array: Array, setting: Setting) -> str:
        """The exact text that :meth:`submit` is given: what a dry run prints."""
        ...

    def concerns(self, plan: Plan, ask: bool = True) -> tuple[Concern, ...]:
        """What jobs of the plan would ask for in vain; with ``ask`` also what only the cluster knows."""
        ...

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        """Start the array's jobs; the id of each with this backend, by token.

        ``after`` are the ids of the jobs that must have ended well before. Raises ``BackendUnavailableError``
        if they cannot be started here.
        """
        ...

    def find(self, array: Array, sweep_dir: SweepDir) -> Mapping[str, str]:
        """Ids, by token, of jobs of a submission whose answer was lost; empty if it shows nowhere."""
        ...

    def poll(self, ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The status of every job asked for."""
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask jobs to save and leave. Those that left already are passed over."""
        ...

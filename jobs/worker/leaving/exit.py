"""Why a worker leaves, whether its job comes back, and with which exit code."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.worker.assignment import Assignment
from jobs.worker.leaving.shutdown import Shutdown
from orchestrator.core.types import Reason

TOO_SHORT = (
    "its end came near before it could begin a run, and would again: give the profile more `time`, "
    "or a shorter warning (`signal`)"
)

# Exit codes of the worker, as those of the commands.
DONE, SOME_FAILED, NO_STORAGE, INTERRUPTED = 0, 1, 3, 130
# To the job's script: requeue the job, there is more to do.
AGAIN = 75


@dataclass
class Exit:
    """The decision to leave, from what the worker recorded, its shutdown and its assignment.

    ``began``: an attempt of any run; ``interrupted``, ``failed``: numbers of runs; ``wants_more``: a run
    failed that another job could finish. ``storage_error``: the tree takes no writes; ``no_process``: why the
    last start of a process failed; ``no_agents``: why no run on several nodes can begin.
    """

    shutdown: Shutdown
    assignment: Assignment
    began: bool = False
    interrupted: int = 0
    failed: int = 0
    wants_more: bool = False
    storage_error: str | None = None
    no_process: str | None = None
    no_agents: str | None = None

    @property
    def takes_runs(self) -> bool:
        """Whether the worker may begin another run."""
        return not self.shutdown.why and self.storage_error is None and self.no_agents is None

    def is_due(self, at_work: int) -> bool:
        """Whether the worker leaves now; it waits for the runs ``at_work``."""
        return not at_work and (not self.takes_runs or self.assignment.over)

    @property
    def runs_left(self) -> bool:
        return bool(self.interrupted or self.assignment.waiting)

    @property
    def too_short(self) -> bool:
        """Whether the job's end came near before any run began: another try would be no better."""
        return not self.began and self.runs_left and self.shutdown.out_of_time

    @property
    def comes_back(self) -> bool:
        """Whether the job is to be requeued: it was warned, and runs are left."""
        return self.shutdown.warned and not self.storage_error and self.runs_left and not self.too_short

    @property
    def may_submit_rest(self) -> bool:
        """Whether the job is to submit the rest.

        Not if a person ended it, if it was too short, or while it comes back itself.
        """
        if self.shutdown.stopped or self.too_short or self.no_agents:
            return False
        return not self.comes_back or self.shutdown.for_good

    @property
    def found_nothing_more(self) -> bool:
        """Whether all runs left are held by other workers."""
        return self.takes_runs and not self.assignment.waiting

    @property
    def obstacle(self) -> str | None:
        """What a person has to change before the runs can go on."""
        return self.storage_error or self.no_agents or (TOO_SHORT if self.too_short else None)

    @property
    def why(self) -> str:
        if said := self.obstacle or self.shutdown.why or self.no_process:
            return said
        if held := len(self.assignment.held):
            return f"{held} of its runs are held by other workers, nothing else is left"
        return "nothing is left to do"

    @property
    def cause(self) -> Reason | None:
        """The class of cause of an exit that leaves runs, where a command reacts to it."""
        if self.storage_error:
            return Reason.STORAGE
        if self.no_agents:
            return Reason.SETUP
        return Reason.BUDGET if self.shutdown.unpaid else None

    @property
    def code(self) -> int:
        if self.storage_error:
            return NO_STORAGE
        if self.comes_back:
            return AGAIN
        if self.no_agents or self.too_short or (self.shutdown.why and not self.shutdown.warned):
            return INTERRUPTED
        return SOME_FAILED if self.failed else DONE

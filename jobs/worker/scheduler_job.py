"""The scheduler's job around a worker: its id, its end, and signals that reach only its script."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from jobs.training.records.provenance import NODE_VARIABLE
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Reason, index_of
from orchestrator.rundir.attempts.holder import JOB_VARIABLE
from orchestrator.rundir.files.plain_files import read_plain

# Set by the job's script: epoch seconds of the job's end, seconds of warning before it, and a file with the
# names of the signals that the script got.
ENDS_VARIABLE, WARNING_VARIABLE, MAILBOX_VARIABLE = (
    "ORCHESTRATE_ENDS",
    "ORCHESTRATE_WARNING",
    "ORCHESTRATE_MAILBOX",
)
# Set by the job's script: "module:class" of a scheduler that a plug-in brings.
SCHEDULER_VARIABLE = "ORCHESTRATE_SCHEDULER"
_PATIENCE_S = 10.0

# Slurm checks its jobs' ends once in 30 s, and warns up to a minute early.
_EARLY_S = 90.0


class Step(NamedTuple):
    """A process's ``node``, the step's numbers of ``nodes`` and ``processes``, and a ``name`` of its own."""

    node: int
    nodes: int
    processes: int
    name: str


@dataclass(frozen=True)
class SchedulerJob:
    """A job as its scheduler describes it; all defaults if no scheduler started it.

    ``job_id`` is the scheduler's, ``123_4`` for an array's element; ``restarts`` grows with every requeue.
    ``ends`` is in epoch seconds, ``warning`` in seconds before it. ``cores``: granted to the job; ``node``:
    its machine as the scheduler names it. A scheduler is a class of this kind, named in ``_SCHEDULERS`` or,
    by a plug-in, in its :class:`~orchestrator.config.backends.BackendSpec`; ``kind`` is its backend.
    """

    job_id: str | None = None
    restarts: int = 0
    ends: float | None = None
    warning: float = 0.0
    mailbox: Path | None = None

    cores: int | None = None
    node: str | None = None
    kind: ClassVar[str] = "local"

    @classmethod
    def from_environment(cls) -> Self:
        """Return the job that the variables of this process describe."""
        return cls(mailbox=_mailbox())

    @classmethod
    def of_script(
        cls,
        job_id: str,
        restarts: int,
        cores: int | None = None,
        node: str | None = None,
        ends: float | None = None,
    ) -> Self:
        """Return a job of a scheduler, with what its script set beside."""
        ends, warning = ends or number_in(ENDS_VARIABLE), number_in(WARNING_VARIABLE) or 0.0
        return cls(job_id, restarts, ends, warning, _mailbox(), cores, node)

    @staticmethod
    def current() -> SchedulerJob:
        """Return the job of this process, and name it in the environment of its children."""
        job = _class_here().from_environment()
        if job.job_id is not None:
            os.environ[JOB_VARIABLE] = f"{job.job_id}:{job.restarts}"
        if job.node is not None:
            os.environ[NODE_VARIABLE] = job.node
        return job

    @property
    def first_node(self) -> str | None:
        """The address of the job's first node, in a process that the scheduler started on another one."""
        return None

    def begin(self) -> None:
        """Show that the worker began: the job's script looks when the journal may be compacted already."""
        if self.mailbox is not None:
            with contextlib.suppress(OSError):
                self.mailbox.touch()

    def has_time_for(self, seconds: float) -> bool:
        """Whether this many seconds of work fit in before the warning."""
        return self.ends is None or time.time() + seconds < self.ends - self.warning

    def letters(self) -> list[int]:
        """Return all signals that the job's script got so far, in order."""
        if self.mailbox is None:
            return []
        try:
            names = read_plain(self.mailbox).decode("ascii", errors="replace").split("\n")[:-1]
        except (DamagedFileError, OSError):
            return []
        known = {one.name.removeprefix("SIG"): one.value for one in signal.Signals}
        return [known[name] for name in names if name in known]

    def nears_end(self) -> bool:
        """Whether a warning that comes now can be the one before the end; otherwise the job is preempted."""
        return self.ends is None or not self.has_time_for(_EARLY_S)

    def ended_by_scheduler(self) -> Reason | None:
        """Return why the scheduler ends the job: ``PREEMPTED``, back in the queue, or ``TIME_LIMIT``.

        ``None`` if a person ends it, or if the scheduler does not answer.
        """
        return None

    def ends_for_good(self) -> bool:
        """Whether the scheduler refuses to requeue the job."""
        return False

    def requeued(self) -> list[str]:
        """Return ids of this user's array elements that were requeued and wait."""
        return []

    def mates(self, tokens: Iterable[str]) -> list[str]:  # noqa: ARG002
        """Return the scheduler's ids of elements of this array."""
        return []

    def dismiss(self, job_ids: Iterable[str]) -> None:
        """Remove pending array elements without work from the queue."""

    @property
    def step(self) -> Step | None:
        """This process's place in a step of the job; None if its script started it."""
        return None


class SlurmJob(SchedulerJob):
    """A job of Slurm."""

    kind = "slurm"

    @classmethod
    def from_environment(cls) -> Self:
        from submitit.slurm.slurm import SlurmJobEnvironment

        return cls.of_script(
            SlurmJobEnvironment().job_id,
            restarts=int(os.environ.get("SLURM_RESTART_COUNT", 0)),
            ends=number_in("SLURM_JOB_END_TIME"),
            cores=int(number_in("SLURM_CPUS_PER_TASK") or 0) or None,
            node=os.environ.get("SLURMD_NODENAME"),
        )

    @property
    def first_node(self) -> str | None:
        return os.environ.get("SLURM_LAUNCH_NODE_IPADDR")

    @property
    def step(self) -> Step | None:
        if "SLURM_STEP_NUM_NODES" not in os.environ:
            return None
        node, nodes, processes, number = (
            int(os.environ[f"SLURM_{name}"])
            for name in ("NODEID", "STEP_NUM_NODES", "STEP_NUM_TASKS", "STEP_ID")
        )
        return Step(node, nodes, processes, f"{self.job_id}-{self.restarts}-{number}")

    def ended_by_scheduler(self) -> Reason | None:
        known = self._as_known()
        restarts = re.search(r"\bRestarts=(\d+)", known)
        if restarts is not None and int(restarts[1]) > self.restarts:
            return Reason.PREEMPTED
        return Reason.TIME_LIMIT if re.search(r"\bReason=TimeLimit\b", known) else None

    def ends_for_good(self) -> bool:
        return re.search(r"\bRequeue=0\b", self._as_known()) is not None

    def _as_known(self) -> str:
        return _ask(["scontrol", "--oneliner", "show", "job", self.job_id or ""])

    def requeued(self) -> list[str]:
        # Elements that never began are listed as a range, ``123_[4-7]``, and left out.
        mine = f"--user={os.getuid()}"
        listed = _ask(["squeue", "--noheader", mine, "--states=PENDING,SPECIAL_EXIT", "--format=%i"])
        return [line for line in listed.split() if re.fullmatch(r"\d+_\d+", line)]

    def mates(self, tokens: Iterable[str]) -> list[str]:
        array = (self.job_id or "").partition("_")[0]
        return [f"{array}_{index_of(token)}" for token in tokens]

    def dismiss(self, job_ids: Iterable[str]) -> None:
        arrays: dict[str, set[str]] = {}
        for job_id in job_ids:
            array, _, index = job_id.partition("_")
            arrays.setdefault(array, set()).add(index)
        if arrays:
            named = [f"{array}_[{','.join(sorted(indices, key=int))}]" for array, indices in arrays.items()]
            # If this fails they begin, find nothing to do, and end.
            _ask(["scancel", "--quiet", "--state=PENDING", *named])


# By a variable that the scheduler sets in its jobs. A job of another scheduler names its class itself.
_SCHEDULERS = {"SLURM_JOB_ID": SlurmJob}
# How the names of variables begin that schedulers set in their jobs.
VARIABLES = ("SLURM_",)


def _class_here() -> type[SchedulerJob]:
    """Return the class of this process's scheduler."""
    if named := os.environ.get(SCHEDULER_VARIABLE):
        found: type[SchedulerJob] = pkgutil.resolve_name(named)
        return found
    return next((one for name, one in _SCHEDULERS.items() if name in os.environ), SchedulerJob)


def _mailbox() -> Path | None:
    text = os.environ.get(MAILBOX_VARIABLE)
    return Path(text) if text else None


def _ask(argv: Sequence[str]) -> str:
    """Run a command of the scheduler; return its output, or nothing where it is absent, as in a container."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def number_in(variable: str) -> float | None:
    """Return the number in a variable of the environment, if it holds one."""
    text = os.environ.get(variable)
    try:
        return float(text) if text else None
    except ValueError:
        return None

"""The project's glossary as types. Imports nothing of ours."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

# The type of a parsed grid value: JSON's values.
Value = Any
# Tables hold integers of 64 bits.
INT64_MAX = (1 << 63) - 1
Int64 = Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)]


class RunState(enum.Enum):
    """The state of a run. ``final`` states need no further work unless a user requests it."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    STALE = "stale"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether the run needs no further work."""
        return self in _FINAL


# The order in which a display lists states: most urgent first.
URGENT_FIRST = (
    RunState.RUNNING,
    RunState.STALLED,
    RunState.FAILED,
    RunState.INTERRUPTED,
    RunState.UNKNOWN,
    RunState.STALE,
    RunState.QUEUED,
    RunState.PENDING,
    RunState.DONE,
    RunState.CANCELLED,
    RunState.SKIPPED,
)

_FINAL = frozenset({RunState.DONE, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED, RunState.STALE})


class Reason(enum.Enum):
    """The class of cause of an attempt's failure; it decides what happens next."""

    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node failure"
    BAD_CONFIG = "bad config"
    CODE_ERROR = "code error"
    DISK_FULL = "disk full"
    STORAGE = "storage error"
    KILLED = "killed"
    STOPPED = "stopped"
    CRASH_LOOP = "crash loop"
    INCOMPLETE = "incomplete"
    SETUP = "set-up failed"
    BUDGET = "budget reached"
    CANCELLED = "cancelled"
    DAMAGED = "damaged result"


# What stays of a finished run's last checkpoint: all that a longer run needs, or what was learned.
KEPT = ("state", "result")


@dataclass(frozen=True)
class Run:
    """One point of the matrix: one training to be completed.

    ``overrides`` are the trainer's own keys, sorted, without ``seed`` and ``threads``, which every trainer
    has. ``run_id`` hashes what decides the result and nothing else.
    ``loggers``: destinations of a program's metrics, and ``metrics``: where these are found (``from``), with
    the names of ``frames`` and ``return`` among them; they decide nothing. ``keep``: one of :data:`KEPT`.
    ``fork``: the place where the run goes on from another one, ``init``: the run that its policy is from,
    as in the grid. ``origin``: the id of that run; empty for the run of a fork that changes nothing.
    """

    run_id: str
    trainer: str
    overrides: Mapping[str, Value]
    seed: Int64 = 0
    threads: Int64 = 1
    target: str | None = None
    loggers: tuple[str, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    keep: str = KEPT[0]
    fork: str = ""
    init: str = ""
    origin: str = ""

    @property
    def point(self) -> dict[str, Value]:
        """The run as a user names it: every key of the grid, seed last."""
        point = dict(self.overrides)
        if self.threads != 1:
            point["threads"] = self.threads
        if self.target is not None:
            point["target"] = self.target
        return {**point, **self.start, "seed": self.seed}

    @property
    def start(self) -> dict[str, str]:
        """What the run starts from, as keys of its point; empty for nothing."""
        return {key: text for key, text in (("fork", self.fork), ("init", self.init)) if text}

    def value_of(self, key: str) -> Value:
        """Return the run's value of a key that may have Hydra's ``+`` before it; ``None`` without one."""
        return next((value for name, value in self.overrides.items() if name.lstrip("+~") == key), None)


@dataclass(frozen=True)
class Resources:
    """Resources of one run, in Slurm's names and syntax; but for ``time`` those of each of its ``nodes``."""

    cpus_per_task: int = 1
    gpus: int = 0
    mem: str | None = None
    time: str | None = None
    nodes: int = 1


class Size(NamedTuple):
    """Cores and megabytes of memory, of a run or of the room that runs share; 0 MB: no amount is known."""

    cores: int
    mem: int = 0

    def fits(self, room: Size) -> bool:
        """Return whether there is room for it."""
        return self.cores <= room.cores and (not room.mem or self.mem <= room.mem)

    def share(self, room: Size) -> float:
        """Return the part of the room that it takes, at most 1."""
        return min(1.0, max(self.cores / room.cores, self.mem / room.mem if room.mem else 0.0))

    def plus(self, other: Size, times: int = 1) -> Size:
        """Return the sum with another size."""
        return Size(self.cores + times * other.cores, self.mem + times * other.mem)


@dataclass(frozen=True)
class PluginSource:
    """A plug-in of a sweep: the folder of its package, or None for an installed package."""

    name: str
    folder: str | None = None


@dataclass(frozen=True)
class Sweep:
    """An expanded grid. ``grid_text`` is the file as submitted; ``changes``: those of `--set` in it.

    ``resources``: of a run, the largest amount of each; ``needs``: those of runs that need less, by id.
    ``positions``: line, column and file of a key; ``own_positions``: by run id, of keys from `for`.
    ``notify``: the command that sends messages.
    ``labels``: the grid's, which decide nothing. ``length``: the key that only says when a program ends.
    ``library``: trees with finished runs, as users name them. ``trunks``: by run id, the run of the sweep
    that it goes on from where it forks.
    """

    name: str
    trainer: str
    runs: tuple[Run, ...]
    grid_text: str
    source: str = "<grid>"
    changes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("local",)
    resources: Resources = field(default_factory=Resources)
    plugins: tuple[PluginSource, ...] = ()
    needs: Mapping[str, Resources] = field(default_factory=dict)
    labels: Mapping[str, Value] = field(default_factory=dict, compare=False)
    positions: Mapping[str, tuple[int, int, str]] = field(default_factory=dict, compare=False, repr=False)
    own_positions: Mapping[str, Mapping[str, tuple[int, int, str]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    notify: tuple[str, ...] = ()
    length: str = ""
    library: tuple[str, ...] = ()
    trunks: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def grid_options(self) -> list[str]:
        """Options of a command that name this grid with its changes."""
        return ["--grid", self.source, *(word for change in self.changes for word in ("--set", change))]

    def needs_of(self, run: Run) -> Resources:
        """Return the resources of one of its runs."""
        return self.needs.get(run.run_id, self.resources)

    @cached_property
    def points(self) -> Mapping[str, dict[str, Value]]:
        """Each run's point by run id; computed once."""
        return {run.run_id: run.point for run in self.runs}


@dataclass(frozen=True)
class Job:
    """The unit a backend schedules: one allocation that works through the runs assigned to it.

    ``token`` identifies the submission for good; a second process with the same token exits. ``resources``
    are each run's. ``steals``: after its own runs it takes unstarted ones of similar jobs in its submission.
    ``allowance``: its share of the budget, in seconds of work. ``sizes``: of runs that differ in size, by
    id; ``room``: what these share, ``None`` if the slots alone limit the runs at once.
    """

    token: str
    sweep: str
    target: str
    run_ids: tuple[str, ...]
    slots: int
    resources: Resources
    steals: bool = False
    plugins: tuple[PluginSource, ...] = ()
    allowance: float | None = None
    sizes: Mapping[str, Size] = field(default_factory=dict)
    room: Size | None = None

    def size_of(self, run_id: str) -> Size:
        """Return the size of one of its runs."""
        return self.sizes.get(run_id, Size(self.resources.cpus_per_task))

    @property
    def most_cores(self) -> int:
        """The most cores that its runs can use at once."""
        largest = sorted((self.size_of(run_id).cores for run_id in self.run_ids), reverse=True)[: self.slots]
        used = sum(largest) + (self.slots - len(largest)) * self.resources.cpus_per_task
        return used if self.room is None else min(used, max(self.room.cores, *largest[:1]))

    def share(self, run_id: str) -> float:
        """Return the part of the job that a run takes."""
        if self.room is None:
            return 1 / max(1, min(self.slots, len(self.run_ids)))
        return self.size_of(run_id).share(self.room)


class JobState(enum.Enum):
    """The state of a job at its backend. UNKNOWN never counts as an end."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self is JobState.ENDED


@dataclass(frozen=True)
class JobStatus:
    """A backend's answer about a job. ``text``: its own wording; ``reason``: the cause of its end, if known.

    ``place``: its machines; ``seconds``: of work, as another tree reports; ``release``: starts a held job.
    """

    state: JobState
    text: str = ""
    reason: Reason | None = None
    place: str = ""
    seconds: float | None = None
    release: str | None = None


@dataclass(frozen=True)
class Array:
    """Jobs that a backend receives in one submission: a Slurm job array; elsewhere a single job.

    ``allocation``: the request of each job. ``after``: the token of an array; its jobs must end successfully
    before their counterparts here start. ``avoid``: machines on which its runs failed.
    """

    token: str
    jobs: tuple[Job, ...]
    allocation: Resources
    after: str | None = None
    avoid: tuple[str, ...] = ()

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All run ids of the array's jobs."""
        return tuple(run_id for job in self.jobs for run_id in job.run_ids)


def array_of(token: str) -> str:
    """Return the array of a job's token: ``0001-0002.7`` → ``0001-0002``."""
    return token.partition(".")[0]


def number_of(token: str) -> int:
    """Return the submission number of a job's token: ``0003-0002.7`` → 3."""
    number = token.partition("-")[0]
    return int(number) if number.isdigit() else 0


def index_of(token: str) -> int:
    """Return a job's index in its array: ``0001-0002.7`` → 7; 0 for a single job."""
    return int(token.partition(".")[2] or 0)


@dataclass(frozen=True)
class Capacity:
    """A target's offer to one job; None stands for as much as its runs request.

    ``pack``: concurrent runs in a job, 1 for exactly one run per job, None for as many as fit.
    ``array_size``: jobs in one submission; None for exactly one job. ``room``: jobs that the queue
    still accepts. ``chain``: successive jobs for the same runs. ``max_mem``: memory for a job of its own
    after a run was out of memory. ``at_once``: concurrent jobs of an array; ``most``: queued jobs of a sweep.
    ``can_avoid``: jobs can exclude machines by name. ``several_nodes``: a job can have more than one.
    ``no_gpu``: the reason for which a GPU run cannot be placed. ``apart``: every job has its own machine and
    file system. ``no_feed``: the reason for which ending jobs cannot submit waiting runs.
    """

    target: str
    cores: int | None
    gpus: int | None
    no_gpu: str = "needs a GPU, and this machine has none that can be used"
    mem: str | None = None
    time: str | None = None
    pack: int | None = None
    array_size: int | None = None
    room: int | None = None
    chain: int = 1
    max_mem: str | None = None
    at_once: int | None = None
    most: int | None = None
    can_avoid: bool = False
    several_nodes: bool = False
    apart: bool = False
    no_feed: str | None = None


@dataclass(frozen=True)
class TargetAssignment:
    """The runs of a sweep that one of several targets may execute; no other target has them.

    ``skipped``: runs that no target can execute, with the reason. ``places``: how many can begin now.
    """

    run_ids: frozenset[str]
    skipped: Mapping[str, str] = field(default_factory=dict)
    places: int | None = None


@dataclass(frozen=True)
class Price:
    """US dollars for one machine and hour; ``words`` name the machine and the source of the figure."""

    per_hour: float
    words: str


@dataclass(frozen=True)
class Plan:
    """Unfinished runs as jobs: the object that `--dry-run` prints and that is submitted.

    ``skipped`` and ``problems`` give reasons for runs in no job: they cannot be placed, or their result is
    damaged. ``waiting``: runs for which the queue has no room yet; ``no_feed``: the reason for which ending
    jobs cannot submit them.
    """

    sweep: Sweep
    target: str
    arrays: tuple[Array, ...]
    skipped: Mapping[str, str]
    problems: Mapping[str, str]
    states: Mapping[str, RunState]
    waiting: tuple[str, ...] = ()
    no_feed: str | None = None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs of all arrays."""
        return tuple(job for array in self.arrays for job in array.jobs)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Each run once, even if several jobs of a chain have it."""
        return tuple(dict.fromkeys(run_id for job in self.jobs for run_id in job.run_ids))


@dataclass(frozen=True)
class Concern:
    """A problem of a plan: wasted resources or an endless wait; ``blocks`` prevents its submission."""

    text: str
    hint: str
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.text}: {self.hint}"


@dataclass(frozen=True)
class CommandAnswer:
    """Output of a command. ``code`` is ``None`` after a timeout."""

    code: int | None
    output: str
    errors: str = ""

    @property
    def complaint(self) -> str:
        """The error output as one line, without the command's own prefix."""
        lines = [line.split("error: ", 1)[-1].strip() for line in self.errors.splitlines()]
        return "; ".join(dict.fromkeys(line for line in lines if line)) or f"exit code {self.code}"


# Starts a command by its arguments, and returns its answer.
RunCommand = Callable[[Sequence[str]], CommandAnswer]

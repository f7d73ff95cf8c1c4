"""The words of the project as values. Imports nothing of ours."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

# How a job says that the money that it was given is spent.
BUDGET_REACHED = "budget reached"

# What a grid value may be once parsed: JSON's values.
Value = Any


class RunState(enum.Enum):
    """Where a run stands. ``final`` states need no further work unless a person asks for it."""

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
        return self in _FINAL


# What needs the eye comes first.
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
    """Why an attempt ended without finishing its run; the class decides what happens next."""

    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node failure"
    BAD_CONFIG = "bad config"
    CODE_ERROR = "code error"
    DISK_FULL = "disk full"
    KILLED = "killed"
    STOPPED = "stopped"
    CRASH_LOOP = "crash loop"


@dataclass(frozen=True)
class Run:
    """One point of the matrix: one training to be completed.

    ``overrides`` are the trainer's own keys, sorted, without ``seed`` and ``threads``, which every trainer
    has. ``run_id`` hashes what decides the result and nothing else (see :func:`run_identity`).
    """

    run_id: str
    trainer: str
    overrides: Mapping[str, Value]
    seed: int = 0
    threads: int = 1
    target: str | None = None

    @property
    def point(self) -> dict[str, Value]:
        """The run as a person names it: every key of the grid, seed last."""
        point = dict(self.overrides)
        if self.threads != 1:
            point["threads"] = self.threads
        if self.target is not None:
            point["target"] = self.target
        return {**point, "seed": self.seed}

    def to_json(self) -> dict[str, Value]:
        return {**asdict(self), "overrides": dict(self.overrides)}

    @classmethod
    def from_json(cls, data: Mapping[str, Value]) -> Self:
        return cls(**data)


def run_identity(
    trainer: str,
    overrides: Mapping[str, Value],
    seed: int,
    threads: int,
    target: str | None = None,
) -> str:
    """Hash of what decides a run's result: 16 hexadecimal digits.

    The caller leaves out the overrides that decide nothing. Equal numbers are equal however they are
    spelled (``1``, ``1.0``), keys are sorted, and text is hashed as it is.
    """
    identity = {
        "trainer": trainer,
        "overrides": dict(overrides),
        "seed": seed,
        "threads": threads,
        "target": target,
    }
    text = json.dumps(_canonical(identity), sort_keys=True, ensure_ascii=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def wandb_id(sweep: str, run_id: str, retired: int = 0) -> str:
    """The id of a run's one W&B run, for all attempts; another once the run is begun anew.

    A project can hold several sweeps with the same run, and W&B never takes a deleted id again.
    ``retired``: the newest attempt that was put aside.
    """
    name = f"{sweep}-{run_id}" + (f"-r{retired}" if retired else "")
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def _canonical(value: Value) -> Value:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


@dataclass(frozen=True)
class Resources:
    """What one run needs, in Slurm's names and syntax."""

    cpus_per_task: int = 1
    gpus: int = 0
    mem: str | None = None
    time: str | None = None


@dataclass(frozen=True)
class PluginSource:
    """A plug-in as a sweep names it: the folder of its package, or ``None`` if it is an installed one's."""

    name: str
    folder: str | None = None


@dataclass(frozen=True)
class Sweep:
    """A grid expanded. ``grid_text`` is the file as submitted."""

    name: str
    trainer: str
    runs: tuple[Run, ...]
    grid_text: str
    source: str = "<grid>"
    keys: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("local",)
    resources: Resources = field(default_factory=Resources)
    plugins: tuple[PluginSource, ...] = ()

    @cached_property
    def most_threads(self) -> int:
        """Of any of its runs."""
        return max((run.threads for run in self.runs), default=1)

    @cached_property
    def points(self) -> Mapping[str, dict[str, Value]]:
        """Each run's point, by its id; made once."""
        return {run.run_id: run.point for run in self.runs}


@dataclass(frozen=True)
class Job:
    """What a backend schedules: one allocation that works through the runs assigned to it.

    ``token`` names the submission once and for all; a second process started with the same token exits.
    ``resources`` are each run's. ``steals``: when its own runs are done it goes on with those of its
    submission's like jobs that nobody has begun. ``allowance``: seconds that it may work, its share of a
    budget.
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

    def to_json(self) -> dict[str, Value]:
        plugins = [asdict(plugin) for plugin in self.plugins]
        data = {**asdict(self), "run_ids": list(self.run_ids), "plugins": plugins}
        if self.allowance is None:  # code that was kept before there were budgets reads this too
            del data["allowance"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Value]) -> Self:
        return cls(
            **{
                **data,
                "run_ids": tuple(data["run_ids"]),
                "resources": Resources(**data["resources"]),
                "plugins": tuple(PluginSource(**plugin) for plugin in data.get("plugins", ())),
            }
        )


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
    """A backend's answer about one job; ``text`` is what it said in its own words.

    ``reason`` is why the job ended, where the backend knows; ``place`` the machines it has or had;
    ``seconds`` how long it has worked, where a tree elsewhere tells so.
    """

    state: JobState
    text: str = ""
    reason: Reason | None = None
    place: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Array:
    """Jobs that are handed to a backend in one go: a Slurm job array; elsewhere a single job.

    ``allocation`` is what each of them asks for. ``after`` is the token of the array whose jobs must have
    ended well, each before its counterpart here. ``avoid`` are machines that failed their runs.
    """

    token: str
    jobs: tuple[Job, ...]
    allocation: Resources
    after: str | None = None
    avoid: tuple[str, ...] = ()

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run_id for job in self.jobs for run_id in job.run_ids)


def array_of(token: str) -> str:
    """The array that a job's token belongs to: ``0001-0002.7`` → ``0001-0002``."""
    return token.partition(".")[0]


def number_of(token: str) -> int:
    """The submission that a job's token belongs to: ``0003-0002.7`` → 3."""
    number = token.partition("-")[0]
    return int(number) if number.isdigit() else 0


def index_of(token: str) -> int:
    """A job's index in its array: ``0001-0002.7`` → 7; 0 where there is one job only."""
    return int(token.partition(".")[2] or 0)


@dataclass(frozen=True)
class Capacity:
    """What a target offers to one job; ``None`` is as much as its runs ask for.

    ``pack``: runs at once in a job, 1 for exactly one run per job, ``None`` for as many as fit.
    ``array_size``: jobs that can be submitted in one go; ``None`` if there is to be one job and no more.
    ``room``: jobs that the queue still takes. ``chain``: jobs one after the other for the same runs.
    ``max_mem``: what a run that was out of memory may have in a job of its own. ``at_once``: jobs of an array
    that may work at the same time; ``most``: jobs of a sweep that may be in the queue. ``can_avoid``: whether
    jobs can be kept off machines by name. ``no_gpu``: why a GPU run cannot be placed. ``apart``: every job
    has a machine, and a file system, to itself. ``no_feed``: why jobs that end cannot submit what waits.
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
    apart: bool = False
    no_feed: str | None = None


@dataclass(frozen=True)
class TargetAssignment:
    """What one of several targets is dealt of a sweep: the runs that it may take up, which are no other's.

    ``skipped`` are runs that no target can do, and why.
    """

    run_ids: frozenset[str]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Price:
    """US dollars for one machine and hour; ``words`` say which machine and whose figure it is."""

    per_hour: float
    words: str


@dataclass(frozen=True)
class Plan:
    """Runs still to do, as jobs. What `--dry-run` prints and what is submitted: the same object.

    ``skipped`` and ``problems`` say why a run is in no job: it cannot be placed, or its result is damaged.
    ``waiting`` are runs for which the queue has no room yet; ``no_feed`` says why jobs that end cannot submit
    them.
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
        return tuple(job for array in self.arrays for job in array.jobs)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Each run once, also if several jobs of a chain have it."""
        return tuple(dict.fromkeys(run_id for job in self.jobs for run_id in job.run_ids))


@dataclass(frozen=True)
class Concern:
    """What a submitted plan would waste, or wait for in vain; ``blocks``: it is not to be submitted."""

    text: str
    hint: str
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.text}: {self.hint}"

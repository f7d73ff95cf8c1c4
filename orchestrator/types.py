"""The words of the project as values. Imports nothing of ours."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

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


@dataclass(frozen=True)
class Job:
    """What a backend schedules: one allocation that works through the runs assigned to it.

    ``token`` names the submission once and for all; a second process started with the same token exits.
    """

    token: str
    sweep: str
    target: str
    run_ids: tuple[str, ...]
    slots: int
    resources: Resources

    def to_json(self) -> dict[str, Value]:
        return {**asdict(self), "run_ids": list(self.run_ids)}

    @classmethod
    def from_json(cls, data: Mapping[str, Value]) -> Self:
        return cls(
            **{
                **data,
                "run_ids": tuple(data["run_ids"]),
                "resources": Resources(**data["resources"]),
            }
        )


@dataclass(frozen=True)
class Plan:
    """Runs still to do, as jobs. What `--dry-run` prints and what is submitted: the same object.

    ``skipped`` and ``problems`` say why a run is in no job: it cannot be placed, or its result is damaged.
    """

    sweep: Sweep
    target: str
    jobs: tuple[Job, ...]
    skipped: Mapping[str, str]
    problems: Mapping[str, str]
    states: Mapping[str, RunState]

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run_id for job in self.jobs for run_id in job.run_ids)

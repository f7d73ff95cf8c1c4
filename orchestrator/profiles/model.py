"""A profile as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.units import megabytes

# Options of sbatch that the program sets itself, so that it can find its jobs again; nobody else may.
OWNED_OPTIONS = frozenset(
    {
        "array",
        "chdir",
        "clusters",
        "comment",
        "dependency",
        "error",
        "export",
        "job-name",
        "kill-on-invalid-dep",
        "no-requeue",
        "open-mode",
        "output",
        "parsable",
        "requeue",
        "signal",
        "test-only",
        "wait",
        "wrap",
    }
)
# Keys that are options of sbatch.
KEY_OPTIONS = (
    "account",
    "partition",
    "qos",
    "constraint",
    "reservation",
    "nodelist",
    "exclude",
    "cpus_per_task",
    "gpus",
    "mem",
    "mem_per_cpu",
    "time",
    "hint",
    "mail_type",
    "mail_user",
)


@dataclass(frozen=True)
class Profile:
    """A named cluster. What one *job* gets, in Slurm's names and syntax, and how Python starts there.

    ``source`` is the file, for messages. What is None is not asked for. Texts hold no control characters, and
    nothing in them is quoted for a shell. Times and memory are in Slurm's syntax (:mod:`orchestrator.units`).

    Attributes:
        options: further options of sbatch by name without dashes; a value of None is a bare flag.
        forbid: options that the site refuses, as sbatch spells them (``cpus-per-task``). None is rendered;
            ``mem`` and the like may still say what a job has without asking.
        gpu_option: ``gpus`` for ``--gpus=l4:2``, ``gres`` for ``--gres=gpu:l4:2``.
        modules: None leaves the modules alone; otherwise all are unloaded first and these loaded.
        setup: lines of shell before the worker, as written.
        python: the command that starts Python; None is the interpreter that submitted.
        pack: runs at once in one job; None is as many as fit.
        array_limit: elements of one array that may run at once; ``max_jobs`` bounds those in the queue.
        signal: seconds before the time limit at which a job is told to save and leave.
        chain: jobs that follow one another where ``requeue`` is false.
        max_mem: a job out of memory is tried once more with twice as much, up to this.
        scratch: a folder on the node; may hold ``$VARIABLES`` of the job.
        price_per_hour: US dollars for one job and hour.
        feed: whether a job may call sbatch from its node.
        ssh: the login node as ssh knows it; None is this machine.
        folder: where results and code are kept there; may hold ``~/`` and ``$VARIABLES`` of that machine.

    Of a cloud (``backend: skypilot``), where a job has an instance to itself:

    Attributes:
        infra: where SkyPilot looks for machines (``aws/us-east-1``); None is the cheapest that is enabled.
        accelerators: GPUs of an instance in SkyPilot's names (``L4:1``); ``gpus`` counts them.
        instance_type: exactly this one of the cloud's; None is the cheapest that has what is asked for.
        disk: gigabytes of an instance's disk. ``image``: what it starts from, as SkyPilot names it.
        spot: whether the cloud may take an instance back at any time, for a lower price.
        instances: instances at once, which share a sweep's runs.
        store: where results are kept as they come: ``s3://bucket/folder``, ``host:folder``, a mounted folder.
        hold: how long an instance without a store waits for somebody to fetch its results.
        idle_minutes: how long an instance that has nothing to do stays, before SkyPilot takes it down.
        file_mounts: what else an instance has, by its place there, as in SkyPilot's task files.
        secrets: variables of the shell that submits whose values jobs get, and no file.
    """

    name: str
    source: str
    backend: str = "slurm"
    description: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    gpu_option: str = "gpus"
    mem: str | None = None
    mem_per_cpu: str | None = None
    time: str | None = None
    hint: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    options: tuple[tuple[str, str | None], ...] = ()
    forbid: frozenset[str] = frozenset()
    modules: tuple[str, ...] | None = None
    setup: tuple[str, ...] = ()
    python: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    pack: int | None = None
    array_limit: int | None = None
    max_jobs: int | None = None
    signal: int = 120
    requeue: bool = True
    chain: int = 1
    max_mem: str | None = None
    scratch: str | None = None
    price_per_hour: float | None = None
    feed: bool = True
    ssh: str | None = None
    folder: str = "~/orchestrate"
    infra: str | None = None
    accelerators: str | None = None
    instance_type: str | None = None
    disk: int | None = None
    image: str | None = None
    spot: bool = False
    instances: int = 1
    store: str | None = None
    hold: str = "30"
    idle_minutes: int = 5
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ("WANDB_API_KEY",)

    @property
    def job_mem(self) -> str | None:
        """The memory of one job, where the profile tells it."""
        if self.mem is None and self.mem_per_cpu is not None and self.cpus_per_task is not None:
            return f"{megabytes(self.mem_per_cpu) * self.cpus_per_task}M"
        return self.mem

    @property
    def address(self) -> str:
        """By what the profile is found again, from wherever it is looked for."""
        return str(Path(self.source).absolute()) if self.source.endswith((".yaml", ".yml")) else self.name


def option_name(key: str) -> str:
    """How sbatch spells a key: ``cpus_per_task`` is ``cpus-per-task``."""
    return key.replace("_", "-")

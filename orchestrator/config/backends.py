"""Specifications of backends, without imports of their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from orchestrator.config.plug_ins import find_plug_in, plug_in_names
from orchestrator.core.errors import OrchestrateError

ENTRY_POINT_GROUP = "orchestrate.backends"


@dataclass(frozen=True)
class ProfileKey:
    """A profile key of a single backend; ``told``: its description in Markdown.

    ``read``: a function of `config.profiles.readers`, of the key, its node and its file.
    """

    read: Callable[[str, Any, Any], Any]
    told: str
    default: Any = None


@dataclass(frozen=True)
class BackendSpec:
    """A backend's specification. What is "module:name" is imported at its first use."""

    name: str
    # The class with the methods of `orchestrator.backends.base.Backend`, called with a profile and the
    # options of the command line.
    make: str
    # Keys of `Profile` that the backend reads; None for all except those in another one's `only`, which has
    # the keys of a single backend with their descriptions in Markdown.
    keys: tuple[str, ...] | None = None
    only: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Further keys, with values in `Profile.own`.
    own: Mapping[str, ProfileKey] = field(default_factory=dict, hash=False)
    # What to write for keys of the backend's own files that profiles do not have, and for any other key.
    hints: Mapping[str, str] = field(default_factory=dict, hash=False)
    hint: str | None = None
    # The program that takes options after `--`, if there is one.
    options: str = ""
    # Seconds that a job usually waits before it begins, where several targets share a sweep.
    patience: float = 10.0
    # Concurrent jobs of a `Profile`, None if only the queue decides.
    parallel: Callable[[Any], int | None] = lambda _: None
    # Whether jobs wait in a queue and may be requeued.
    queue: bool = True
    # Whether each job has its own paid machine, made and terminated for it.
    rented: bool = False
    # For rented machines that return results: an `orchestrator.backends.instances.Instances`.
    instances: str = ""
    # The noun for a job's machine.
    machine: str = "job"
    # A function from a profile to a `Price` or None.
    prices: str = ""
    # A function from a profile, a results folder, and a function that runs a command (None: on this machine),
    # to the doctor's findings; and the same without a profile.
    doctor: str = ""
    here: str = ""
    # Programs of the scheduler that a submission needs.
    programs: tuple[str, ...] = ()
    # The class of `jobs.worker.scheduler_job` for the backend's jobs.
    scheduler: str = ""
    # The example that `orchestrate init` writes: its file, absolute or in templates/init, and a function from
    # one that runs a command (None: on this machine) to the words filled in there.
    example: str = ""
    example_words: str = ""


_EVERYWHERE = ("backend", "description", "pack", "price_per_hour")
_RENTED = {
    "infra": (
        "cloud: where SkyPilot looks for machines, as in `aws`, `aws/us-east-1`, `slurm/CLUSTER`; "
        "without it the cheapest that is enabled"
    ),
    "accelerators": "cloud: GPUs of an instance in SkyPilot's names, as in `L4:1`",
    "instance_type": "cloud: exactly this one, as in `g6.2xlarge`",
    "disk": "cloud: gigabytes of an instance's disk",
    "image": "cloud: what an instance starts from, as SkyPilot names it",
    "spot": "cloud: cheaper instances, which may be taken away at any time and are replaced",
    "instances": "cloud: instances at once, which share a sweep's runs",
    "store": (
        "cloud: where an instance puts results as they come: `s3://BUCKET/FOLDER`, `HOST:FOLDER`, or "
        "a folder that is mounted there"
    ),
    "hold": "cloud: without a store, how long an instance that is done waits for its results to be fetched",
    "idle_minutes": "cloud: how long an instance without anything to do stays before it is taken down",
    "file_mounts": "cloud: what else an instance has, as in `{~/data: ~/my/data}`",
    "secrets": (
        "cloud: variables of the submitting shell, passed to jobs and stored in no file; "
        "`[WANDB_API_KEY]` by default"
    ),
}

# For a list of machines of which any will do.
ALTERNATIVES = "a profile names one kind of machine: write one for each, and targets: [a, b] in the grid"
# SkyPilot's own keys, with their place here.
_SKYPILOT_HINTS = {
    **dict.fromkeys(("any_of", "ordered"), ALTERNATIVES),
    **dict.fromkeys(("cloud", "region", "zone"), "write infra: aws/us-east-1, or infra: aws"),
    "resources": "its keys stand in the profile itself, as in accelerators: L4:1",
    "cpus": "write cpus_per_task: 4, which is SkyPilot's cpus: 4+",
    "memory": "write mem: 32G, which is SkyPilot's memory: 32+",
    "autostop": "write idle_minutes: 5: an instance is taken down so long after its last work",
    "envs": "write environment: {NAME: value}; variables of your shell go into secrets: [NAME]",
    "run": "the job runs the grid's runs; commands before them go into setup: [...]",
    "workdir": "the project's code is sent with each sweep; others go into file_mounts: {~/data: ~/data}",
    "num_nodes": "write instances: 2 for machines at once, or resources: {nodes: 2} in the grid for each run",
    "ports": "leave it out: no job serves anything",
    "job_recovery": "leave it out: an instance that is taken away is replaced, and its runs go on",
}

# What `infra` names that is no cloud.
NO_CLOUDS = ("k8s", "kubernetes", "slurm", "ssh")

LOCAL = BackendSpec(
    name="local",
    make="orchestrator.backends.local:LocalBackend",
    keys=_EVERYWHERE,
    parallel=lambda _: 1,
    queue=False,
    machine="machine",
)
SLURM = BackendSpec(
    name="slurm",
    make="orchestrator.backends.slurm:SlurmBackend",
    hint="further options of sbatch go into options: {name: value}",
    options="sbatch",
    parallel=lambda profile: profile.array_limit,
    doctor="orchestrator.backends.slurm.doctor:examined",
    here="orchestrator.backends.slurm.doctor:examined_here",
    programs=("sbatch", "squeue", "scontrol", "scancel"),
    example="cluster.yaml.j2",
    example_words="orchestrator.backends.slurm.example:example_words",
)
SKYPILOT = BackendSpec(
    name="skypilot",
    make="orchestrator.backends.skypilot:SkyPilotBackend",
    keys=(*_EVERYWHERE, *_RENTED, "cpus_per_task", "mem", "setup", "python", "environment"),
    only=_RENTED,
    hints=_SKYPILOT_HINTS,
    hint="docs/profiles.md has the keys of rented machines; other keys of SkyPilot have no counterpart",
    patience=900.0,  # a machine starts within minutes, and costs money from then on
    parallel=lambda profile: profile.instances,
    queue=False,
    rented=True,
    instances="orchestrator.backends.skypilot:INSTANCES",
    machine="instance",
    prices="orchestrator.backends.skypilot.prices:list_price",
    doctor="orchestrator.backends.skypilot.doctor:examined",
    here="orchestrator.backends.skypilot.doctor:examined_here",
    example="cloud.yaml",
)

BUILT_IN = {spec.name: spec for spec in (LOCAL, SKYPILOT, SLURM)}
# The backend of profiles that name none, and the scheduler whose names and syntax resources have.
DEFAULT_BACKEND = SLURM.name
RESOURCE_SYNTAX = "Slurm"


def backend_names() -> list[str]:
    """Return all backends: built-in ones first, then those of plug-ins."""
    return list(dict.fromkeys([*BUILT_IN, *plug_in_names(ENTRY_POINT_GROUP)]))


@cache
def find_backend(name: str) -> BackendSpec | None:
    """Return the named backend: built in, or a :class:`BackendSpec` behind an entry point."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    return find_plug_in(ENTRY_POINT_GROUP, name, BackendSpec)


def get_backend(name: str) -> BackendSpec:
    """Return the named backend. Raises :class:`OrchestrateError` if there is none."""
    spec = find_backend(name)
    if spec is None:
        raise OrchestrateError(f"no backend named {name!r} (there are: {', '.join(backend_names())})")
    return spec


def has_key(name: str, key: str) -> bool:
    """Return whether profiles of the named backend have this key."""
    spec, owner = get_backend(name), owner_of(key)
    return key in spec.own or (owner in (None, name) if spec.keys is None else key in spec.keys)


def description_of(key: str) -> str:
    """Return the description of a profile key that a single built-in backend reads."""
    return next(spec.only[key] for spec in BUILT_IN.values() if key in spec.only)


def owner_of(key: str) -> str | None:
    """Return the built-in backend with sole use of this profile key; None for a shared key."""
    return next((spec.name for spec in BUILT_IN.values() if key in spec.only), None)


def is_rented(name: str | None) -> bool:
    """Return whether jobs of the named backend have paid machines of their own."""
    spec = find_backend(name) if name is not None else None
    return spec is not None and spec.rented


def has_queue(name: str | None) -> bool:
    """Return whether jobs of the named backend wait in a queue and may be requeued."""
    spec = find_backend(name) if name is not None else None
    return spec is not None and spec.queue

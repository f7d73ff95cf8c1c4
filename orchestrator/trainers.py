"""What the control plane knows of each trainer without importing it."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from orchestrator.errors import OrchestrateError
from orchestrator.types import Run, Value, run_identity

ENTRY_POINT_GROUP = "orchestrate.trainers"


@dataclass(frozen=True)
class TrainerSpec:
    """A trainer, seen from outside.

    ``train`` and ``check`` are "module:function" on the worker's side. ``owned`` keys are set by the
    program and refused in a grid; ``inert`` keys decide nothing and stay out of the identity; both are
    shell-style patterns. ``packages`` are the distributions whose versions decide a result; ``source`` the
    worker-side modules that do, and packages with their YAML files. ``returns`` are the metrics that mean
    "return", best first; ``devices`` the keys that can ask for a GPU.
    """

    name: str
    train: str
    check: str
    preload: tuple[str, ...] = ()
    owned: Mapping[str, str] = field(default_factory=dict, hash=False)
    inert: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    returns: tuple[str, ...] = ("return",)
    devices: tuple[str, ...] = ()

    def owned_because(self, key: str) -> str | None:
        """Why a grid may not set ``key``, or ``None`` if it may."""
        for pattern, why in self.owned.items():
            if fnmatch.fnmatchcase(key.lstrip("+~"), pattern):
                return why
        return None

    def decides(self, key: str) -> bool:
        """Whether ``key`` can change a result."""
        return not any(fnmatch.fnmatchcase(key.lstrip("+~"), pattern) for pattern in self.inert)

    def identify(
        self, overrides: Mapping[str, Value], seed: int, threads: int, target: str | None = None
    ) -> Run:
        """The run of this point, with its id."""
        ordered = dict(sorted(overrides.items()))
        deciding = {key: value for key, value in ordered.items() if self.decides(key)}
        run_id = run_identity(self.name, deciding, seed, threads, target)
        return Run(run_id, self.name, ordered, seed, threads, target)

    def needs_gpu(self, run: Run) -> bool:
        """Whether the run asks for a GPU, by a device or by a choice such as ``experiment: gpu``."""
        return any(
            key.lstrip("+~") in self.devices and str(value).startswith(("cuda", "gpu"))
            for key, value in run.overrides.items()
        )


_OURS = "the program keeps every run's files in its own folder of the results tree"

BENCHMARL = TrainerSpec(
    name="benchmarl",
    train="jobs.trainers.benchmarl:train",
    check="jobs.trainers.benchmarl:check",
    preload=("jobs.trainers.benchmarl.experiment",),
    owned={
        "experiment.save_folder": _OURS,
        "experiment.restore_file": "the program resumes runs by itself",
        "experiment.restore_map_location": "the program resumes runs by itself",
        "hydra.*": "the program composes the configuration itself",
    },
    inert=(
        "experiment.loggers",
        "experiment.project_name",
        "experiment.wandb_extra_kwargs*",
        "experiment.create_json",
        "experiment.render",
        "experiment.checkpoint_interval",
        "experiment.checkpoint_at_end",
        "experiment.keep_checkpoints_num",
        "experiment.exclude_buffer_from_checkpoint",
    ),
    packages=("benchmarl", "torchrl", "tensordict", "torch", "vmas", "pettingzoo", "numpy"),
    # What composes and trains. Checking, and the wording of errors, change no result.
    source=(
        "jobs.conf",
        "jobs.trainers.benchmarl.buffers",
        "jobs.trainers.benchmarl.config",
        "jobs.trainers.benchmarl.environments",
        "jobs.trainers.benchmarl.experiment",
        "jobs.trainers.benchmarl.hydra_search",
        "jobs.trainers.benchmarl.hydra_text",
        "jobs.trainers.benchmarl.iterations",
        "jobs.trainers.benchmarl.replay",
        "jobs.trainers.benchmarl.snapshot",
        "jobs.trainers.benchmarl.state",
        "jobs.trainers.benchmarl.tensors",
    ),
    returns=("eval/reward/episode_reward_mean", "collection/reward/episode_reward_mean"),
    devices=(
        "experiment",
        "experiment.train_device",
        "experiment.sampling_device",
        "experiment.buffer_device",
    ),
)

COMMAND = TrainerSpec(
    name="command",
    train="jobs.trainers.command:train",
    check="jobs.trainers.command:check",
    source=("jobs.trainers.command",),
)

_BUILT_IN = {spec.name: spec for spec in (BENCHMARL, COMMAND)}


def is_installed(spec: TrainerSpec) -> bool:
    """Whether the trainer could run here: its own package, the first it names, is there."""
    try:
        return not spec.packages or bool(version(spec.packages[0]))
    except PackageNotFoundError:
        return False


@cache
def code_id(spec: TrainerSpec) -> str:
    """Names the code that trains, in 12 hexadecimal digits: the trainer's sources and its packages' versions.

    Two results with different ids may differ although their runs are the same.
    """
    digest = hashlib.sha256()
    for package in spec.packages:
        try:
            digest.update(f"{package}=={version(package)}\n".encode())
        except PackageNotFoundError:
            digest.update(f"{package} absent\n".encode())
    for module in spec.source:
        for file in _sources(module):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _sources(module: str) -> Iterator[Path]:
    """The Python and YAML files of a module or package, found without importing it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return
    base = Path(spec.origin).parent.joinpath(*rest)
    if not rest and not spec.submodule_search_locations:
        yield Path(spec.origin)
    elif base.is_dir():
        yield from sorted(path for path in base.rglob("*") if path.suffix in (".py", ".yaml"))
    else:
        yield base.with_suffix(".py")


def trainer_names() -> list[str]:
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def get_trainer(name: str) -> TrainerSpec:
    """The trainer of that name: built in, or a :class:`TrainerSpec` behind an entry point."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        spec = point.load()
        if not isinstance(spec, TrainerSpec):
            raise OrchestrateError(f"the entry point {point.value} is not a TrainerSpec")
        return spec
    raise OrchestrateError(f"no trainer named {name!r} (there are: {', '.join(trainer_names())})")

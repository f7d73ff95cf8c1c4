"""Specifications of trainers, without imports of their code."""

from __future__ import annotations

import fnmatch
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, Self

from orchestrator.config import actors
from orchestrator.config.actors import SilenceLimit
from orchestrator.config.command import COMMAND_KEY
from orchestrator.config.placeholders import keys_asked_for
from orchestrator.config.plug_ins import find_plug_in, plug_in_names
from orchestrator.config.returns import COLLECTION_RETURN, EPISODE_RETURN, EVALUATION_RETURN, EVALUATIONS
from orchestrator.config.task_packages import (
    ACTOR_CRITIC_TASKS,
    TaskPackages,
    fitting,
    registering_module,
    task_of,
)
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import PluginSource, Resources, Run, Value, run_identity

PRESET_KEY = "preset"
ENTRY_POINT_GROUP = "orchestrate.trainers"
PLUGIN_GROUP = "orchestrate.plugins"
# Minutes beyond any training.
_FOREVER = 1e9


def core_per_thread(run: Run) -> Resources:
    """Return the resources of a run in one process."""
    return Resources(cpus_per_task=run.threads)


@dataclass(frozen=True)
class TrainerSpec:
    """A trainer's specification.

    ``train``, ``check`` and ``evaluate``: "module:function" on the worker's side; the last is empty if
    policies cannot be evaluated. ``first_look``: as ``check``, of names, keys and single values alone,
    without anything that trains; may be empty. ``tasks``: likewise, what returns the names of all tasks,
    for patterns such as ``vmas/*``; may be empty. ``owned``: keys that the program sets and a grid may
    not; ``inert``: keys that decide nothing and stay out of the identity; both are shell-style patterns.
    ``packages``: distributions that decide a result by their versions, and ``task_packages`` what tasks need
    beside these, by patterns of their names; ``source``: worker-side modules, and packages with their YAML
    files, that decide a result and are not imported by ``train``. ``returns``: the metrics that mean
    "return", best first; ``devices``: the keys that can request a GPU. ``takes_plugins``: a
    "module:function" that registers a plug-in, empty without support for them; ``plugins``: those of one
    sweep. ``frames``: keys for the number of frames, the first present one decides; ``iterations``: keys for
    a number of iterations, of unknown length; ``usual_frames``: the default number of frames, by the preset
    in ``experiment``.
    ``minutes``: the key for
    a training time instead, if any. ``runs_program``: the trainer starts a user's program;
    :mod:`orchestrator.config.program.identity` finds its files. ``keys``: descriptions of the trainer's own
    keys, in Markdown, for the reference. ``resources``: what a run occupies, from its keys alone; a grid's
    ``resources`` take precedence. ``several_nodes``: one run can be trained on several, each of which has
    these resources; or, if the cores are ``shared_cores``, its share of them. ``refuses_nodes``: why a run
    cannot be trained on so many nodes, if so. ``presets``: keys that the key `preset` stands for, by its
    value; ``other_presets``: hints for other programs' names of such. ``silence``: how long a run's process
    may give no sign of life, ``None`` for as long as it takes. ``x_axis``: what W&B and TensorBoard show
    metrics over, "frames" or "iteration".
    """

    name: str
    train: str
    check: str
    preload: tuple[str, ...] = ()
    owned: Mapping[str, str] = field(default_factory=dict, hash=False)
    inert: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    task_packages: Mapping[str, TaskPackages] = field(default_factory=dict, hash=False)
    source: tuple[str, ...] = ()
    returns: tuple[str, ...] = (f"{EVALUATIONS}return", EVALUATION_RETURN, "return")
    devices: tuple[str, ...] = ()
    takes_plugins: str = ""
    plugins: tuple[PluginSource, ...] = ()
    frames: tuple[str, ...] = ()
    iterations: tuple[str, ...] = ()
    usual_frames: Mapping[str, int] = field(default_factory=dict, hash=False)
    minutes: str = ""
    evaluate: str = ""
    tasks: str = ""
    first_look: str = ""
    runs_program: bool = False
    keys: Mapping[str, str] = field(default_factory=dict, hash=False)
    resources: Callable[[Run], Resources] = core_per_thread
    several_nodes: bool = False
    shared_cores: bool = False
    presets: Mapping[str, Mapping[str, Value]] = field(default_factory=dict, hash=False)
    other_presets: Mapping[str, str] = field(default_factory=dict, hash=False)
    refuses_nodes: Callable[[Run, int], str] = lambda _run, _nodes: ""
    silence: Callable[[Run], SilenceLimit | None] = lambda _run: None
    x_axis: str = "frames"

    @classmethod
    def of_learner(cls, name: str, trainer: str, **others: Any) -> Self:
        """Describe a trainer that is a ``LearnerTrainer`` (``jobs.trainers``) at "module:object"."""
        return cls(
            name=name,
            **{
                "train": f"{trainer}.train",
                "check": f"{trainer}.check",
                "evaluate": f"{trainer}.evaluate",
                # An optimizer of PyTorch loads the second: almost two seconds, and 75 MB in every run.
                "preload": (trainer.partition(":")[0], "torch._dynamo"),
                "returns": (EVALUATION_RETURN, EPISODE_RETURN),
                **others,
            },
        )

    def resources_of(self, run: Run, nodes: int = 1) -> Resources:
        """Return what a run occupies on each of its nodes: at least one core for each of its threads.

        Raises :class:`OrchestrateError` if the trainer cannot say it of this run, or not train it on several.
        """
        if nodes > 1 and (why := self.refuses_nodes(run, nodes)):
            raise OrchestrateError(f"resources.nodes: found {nodes}, and {why}", hint="or remove nodes")
        try:
            found = self.resources(run)
            if self.shared_cores:
                found = replace(found, cpus_per_task=-(-found.cpus_per_task // nodes))
            return replace(found, cpus_per_task=max(found.cpus_per_task, run.threads))
        except OrchestrateError:
            raise
        except Exception as error:  # the code of any package
            what = f"trainer {self.name} cannot say what the run {run.point} occupies"
            raise OrchestrateError(f"{what}: {type(error).__name__}: {error}") from error

    def packages_of(self, run: Run) -> tuple[str, ...]:
        """Return the distributions that decide the run's result by their versions, if they are installed."""
        of_task = [package for needs in fitting(run, self.task_packages) for package in needs.decide]
        module = registering_module(task_of(run)) if self.task_packages else ""
        return tuple(dict.fromkeys([*self.packages, *of_task, *([module] if module else [])]))

    def needs_of_tasks(self, runs: Iterable[Run]) -> tuple[TaskPackages, ...]:
        """Return what the tasks of these runs need beside the trainer's own packages, each once."""
        return tuple(dict.fromkeys(needs for run in runs for needs in fitting(run, self.task_packages)))

    def with_plugins(self, plugins: Iterable[PluginSource]) -> TrainerSpec:
        """Return the same trainer with these plug-ins; their code counts as its own."""
        return replace(self, plugins=tuple(plugins))

    def owned_because(self, key: str) -> str | None:
        """Return why a grid may not set ``key``; None if it may."""
        for pattern, why in self.owned.items():
            if fnmatch.fnmatchcase(key.lstrip("+~"), pattern):
                return why
        return None

    def decides(self, key: str) -> bool:
        """Return whether ``key`` can change a result."""
        return not _fits(key.lstrip("+~"), self.inert)

    def identify(
        self, overrides: Mapping[str, Value], seed: int, threads: int, target: str | None = None
    ) -> Run:
        """Make the run of this point, with its id. Raises :class:`OrchestrateError` for an unknown preset."""
        ordered = dict(sorted(self._without_preset(overrides).items()))
        deciding = {key: value for key, value in ordered.items() if self.decides(key)}
        run_id = run_identity(self.name, deciding, seed, threads, target)
        return Run(run_id, self.name, ordered, seed, threads, target)

    def frames_of(self, run: Run) -> int | None:
        """Return the run's number of frames; None if its overrides do not fix it."""
        for key in self.frames:
            if key in run.overrides:
                asked = run.overrides[key]
                return int(asked) if isinstance(asked, int | float) and 1 <= asked < math.inf else None
        if any(run.overrides.get(key) is not None for key in self.iterations) or self.minutes_of(run):
            return None
        return self.usual_frames.get(str(run.overrides.get("experiment", "")))

    def impossible_lengths(self, run: Run) -> dict[str, str]:
        """Return error messages for impossible numbers of frames, by key."""
        return {
            key: f"{key}: found {value}, expected a number from 1"
            for key in self.frames
            if isinstance(value := run.overrides.get(key), int | float)
            and not isinstance(value, bool)
            and not 1 <= value < math.inf
        }

    def minutes_key(self, run: Run) -> str:
        """Return the key for the run's training time; empty without one.

        A key that a program takes as an argument, as in ``--minutes={minutes}``, is the program's own.
        """
        own = self.runs_program and self.minutes in keys_asked_for(run.overrides.get(COMMAND_KEY))
        return "" if own else self.minutes

    def minutes_of(self, run: Run) -> float | None:
        """Return the run's training time in minutes; None without one."""
        asked = run.overrides.get(self.minutes_key(run))
        return float(asked) if isinstance(asked, int | float) and 0 < asked < _FOREVER else None

    def keys_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of a grid as its runs have them: those of all presets in the place of `preset`."""
        stood_for = tuple(dict.fromkeys(key for preset in self.presets.values() for key in preset))
        parted = ((stood_for if key == PRESET_KEY and stood_for else (key,)) for key in keys)
        return tuple(dict.fromkeys(key for part in parted for key in part))

    def _without_preset(self, point: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return a point with the keys that its `preset` stands for; its own values of them remain."""
        if not self.presets or PRESET_KEY not in point:
            return point
        name = point[PRESET_KEY]
        if name not in self.presets:
            raise OrchestrateError(
                f"{PRESET_KEY}: found {name!r}, expected one of {', '.join(self.presets)}",
                hint=self.other_presets.get(
                    str(name), "or leave it out, and write its keys: docs/parallel.md"
                ),
            )
        own = {key: value for key, value in point.items() if key != PRESET_KEY}
        preset = self.presets[str(name)]
        if own.get("mode", preset["mode"]) != preset["mode"]:  # sequential: the same sizes in one process
            preset = {key: value for key, value in preset.items() if key not in ("actors", "learners")}
        return {**preset, **own}

    def needs_gpu(self, run: Run) -> bool:
        """Return whether the run requests a GPU, by a device or by a choice such as ``experiment: gpu``."""
        return any(
            key.lstrip("+~") in self.devices and str(value).startswith(("cuda", "gpu"))
            for key, value in run.overrides.items()
        )


@cache
def _fits(key: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the key fits a pattern; every point of a grid has the same keys."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


_OURS = "the program keeps every run's files in its own folder of the results tree"

BENCHMARL = TrainerSpec(
    name="benchmarl",
    train="jobs.trainers.benchmarl.experiment:train",
    check="jobs.trainers.benchmarl.checking:check",
    first_look="jobs.trainers.benchmarl.first_look:first_look",
    evaluate="jobs.trainers.benchmarl.evaluating:evaluate",
    tasks="jobs.trainers.benchmarl.spelling:task_names",
    preload=("jobs.trainers.benchmarl.preload",),
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
    source=("jobs.conf",),
    returns=(EVALUATION_RETURN, COLLECTION_RETURN),
    devices=(
        "experiment",
        "experiment.train_device",
        "experiment.sampling_device",
        "experiment.buffer_device",
    ),
    takes_plugins="jobs.trainers.benchmarl.registry:register",
    frames=("experiment.max_n_frames",),
    iterations=("experiment.max_n_iters",),
    usual_frames={**dict.fromkeys(("", "gpu", "gpu_offline", "no_log"), 3_000_000), "debug": 400},
    minutes="minutes",
    x_axis="iteration",
)

COMMAND = TrainerSpec(
    name="command",
    train="jobs.trainers.command.training:train",
    check="jobs.trainers.command.checking:check",
    preload=("jobs.trainers.command.training",),
    inert=("code",),
    runs_program=True,
    several_nodes=True,
    keys={
        "command": "the program and its arguments, a list; `{key}` in an item becomes the run's value",
        "code": (
            "files, folders and patterns that count as the program, relative to the folder in which it "
            "starts, in place of the project's sources and settings; with `+` beside them, with `-` without. "
            "Runs that were trained by other content of these files are shown as stale"
        ),
        "minutes": (
            "the training time after which the program is stopped and the run is done; with `{minutes}` in "
            "`command` the key is the program's own, and nothing is stopped"
        ),
    },
    frames=("frames", "steps", "total_frames", "total_steps", "total_timesteps"),
    minutes="minutes",
)


def _actor_critic(name: str, **batch: int) -> TrainerSpec:
    return TrainerSpec.of_learner(
        name,
        f"jobs.trainers.{name}.training:TRAINER",
        first_look=f"jobs.trainers.{name}.config:CONFIG.first_look",
        tasks="jobs.trainers.actor_critic.environments:environment_names",
        takes_plugins="jobs.trainers.actor_critic.environments:take_plugin",
        owned={"task.name": "the key `task` names it, such as task: bucket_brigade/hard"},
        inert=("actor_timeout", "checkpoint_interval", "loggers", "project_name"),
        packages=("torch", "numpy", "gymnasium"),
        task_packages=ACTOR_CRITIC_TASKS,
        devices=("device",),
        resources=actors.resources_of,
        several_nodes=True,
        shared_cores=True,
        presets=actors.presets(name, batch),
        other_presets=actors.OTHER_PRESETS,
        keys={
            PRESET_KEY: (
                f"actors, environments and sizes of batches for a machine: {', '.join(actors.MACHINES)}. The "
                "run has the keys that it stands for ([presets](../parallel.md#presets)); values of the grid "
                "come first"
            )
        },
        refuses_nodes=actors.refuses_nodes,
        silence=actors.silence_of,
        frames=("steps",),
        usual_frames={"": 10_000_000},
        minutes="minutes",
    )


PPO = _actor_critic("ppo", batch_size=128)
IMPALA = _actor_critic("impala", batch_envs=1)
A2C = _actor_critic("a2c")

_BUILT_IN = {spec.name: spec for spec in (BENCHMARL, COMMAND, PPO, IMPALA, A2C)}


def is_installed(spec: TrainerSpec) -> bool:
    """Return whether the trainer can run here: its own package (the first one) and its plug-ins exist."""
    try:
        found = not spec.packages or bool(version(spec.packages[0]))
    except PackageNotFoundError:
        return False
    return found and all(plugin_folder(source) is not None for source in spec.plugins)


def installed_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of an installed plug-in."""
    return next(iter(entry_points(group=PLUGIN_GROUP, name=name)), None)


def plugin_folder(source: PluginSource) -> Path | None:
    """Return the folder of the plug-in's package if it exists."""
    if source.folder:
        return Path(source.folder) if Path(source.folder).is_dir() else None
    point = installed_plugin(source.name)
    spec = importlib.util.find_spec(point.module.partition(".")[0]) if point is not None else None
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def trainer_names() -> list[str]:
    """Return the names of all trainers, sorted."""
    return sorted({*_BUILT_IN, *plug_in_names(ENTRY_POINT_GROUP)})


def can_evaluate(name: str | None) -> bool:
    """Return whether policies of the named trainer can be evaluated after training."""
    try:
        return name is not None and bool(get_trainer(name).evaluate)
    except OrchestrateError:
        return False


def get_trainer(name: str) -> TrainerSpec:
    """Return the named trainer: built in, or a :class:`TrainerSpec` behind an entry point."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if (spec := find_plug_in(ENTRY_POINT_GROUP, name, TrainerSpec)) is not None:
        return spec
    raise OrchestrateError(f"no trainer named {name!r} (there are: {', '.join(trainer_names())})")


def x_axis_of(trainer: str) -> str:
    """Return what this trainer's metrics are shown over; frames if it is unknown here."""
    try:
        return get_trainer(trainer).x_axis
    except OrchestrateError:
        return TrainerSpec.x_axis


def returns_of(trainer: str | None) -> tuple[str, ...]:
    """Return this trainer's metrics that mean "return", best first; every trainer's if it is unknown here."""
    try:
        return get_trainer(trainer or "").returns
    except OrchestrateError:
        return tuple(dict.fromkeys(name for known in trainer_names() for name in get_trainer(known).returns))

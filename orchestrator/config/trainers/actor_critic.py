"""The trainers `ppo`, `impala` and `a2c`: tasks, presets, and what a run in several processes occupies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from orchestrator.config.task_packages import TaskPackages
from orchestrator.config.trainers.spec import PRESET_KEY, SilenceLimit, TrainerSpec
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Resources, Run, Value

# EnvPool requires the assets of all its games, 315 MB more than Procgen's. Qt draws the pictures.
PROCGEN = TaskPackages(
    install=("envpool", "envpool-assets", "PyQt5-Qt5", "dm-env", "optree"),
    decide=("envpool", "envpool-assets", "PyQt5-Qt5"),
    libraries={"libGL.so.1": "libgl1", "libgthread-2.0.so.0": "libglib2.0-0"},
)
_BOX2D = TaskPackages(decide=("Box2D", "box2d-py"))
_MUJOCO = TaskPackages(decide=("mujoco",))
_OF_MUJOCO = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Inverted*Pendulum", "Pusher", "Reacher", "Swimmer")
_TASKS: Mapping[str, TaskPackages] = {
    "procgen/*": PROCGEN,
    "gymnasium/ALE/*": TaskPackages(decide=("ale-py",)),
    **{f"gymnasium/{name}*": _BOX2D for name in ("BipedalWalker", "CarRacing", "LunarLander")},
    **{f"gymnasium/{name}*": _MUJOCO for name in (*_OF_MUJOCO, "Walker2d")},
}
# Machines by their physical cores.
_MACHINES = {"laptop": 4, "16-core": 16, "28-core": 28, "64-core": 64}
# What other programs call sizes for a machine: the nearest preset, or keys in its place.
_OTHER_PRESETS = {
    "highend": "28-core has its 112 envs and 28 threads",
    "parallel": "write mode: parallel, actors: 7, envs: 112, and for ppo batch_size: 896",
    "ryzen7": "write mode: parallel, actors: 8, envs: 32, or take laptop, for 4 cores",
}
# The default of the key `actor_timeout`, and the seconds beyond it in which a lost process is named.
_ACTOR_TIMEOUT_S, _LEAST_SLACK_S = 300.0, 15.0


class ActorCriticSpec(TrainerSpec):
    """A trainer of runs in one process, in several, or on several nodes."""

    several_nodes = True
    takes_plugins = "jobs.trainers.actor_critic.environments.families:take_plugin"
    tasks = "jobs.trainers.actor_critic.environments.families:environment_names"

    def bound_to_length(self, run: Run) -> str:
        falls = "the learning rate falls with the share of the steps: set anneal_lr: false"
        return falls if run.value_of("anneal_lr") else ""

    def usual_frames(self, run: Run) -> int | None:  # noqa: ARG002
        return 10_000_000

    def refuses_nodes(self, run: Run, nodes: int) -> str:
        mode = run.overrides.get("mode", "sequential")
        if nodes > 1 and mode != "parallel":  # one process, or processes that share memory
            return f"mode {mode} of the trainer {run.trainer} trains on one node"
        for name in ("actors", "learners"):
            if (count := _count(run, name, 0 if name == "learners" else 1)) % nodes:
                return f"{name}: {count} is no multiple of it: write {name}: {max(1, count // nodes) * nodes}"
        return ""

    def resources_of_node(self, run: Run, nodes: int) -> Resources:
        """Return a node's share of the run's cores."""
        whole = self.resources(run)
        return replace(whole, cpus_per_task=-(-whole.cpus_per_task // nodes))

    def with_preset(self, name: str, own: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the same sizes in one process where the point has another mode."""
        preset = self.presets[name]
        if own.get("mode", preset["mode"]) != preset["mode"]:
            preset = {key: value for key, value in preset.items() if key not in ("actors", "learners")}
        return {**preset, **own}

    def hint_of_preset(self, name: str) -> str:
        return _OTHER_PRESETS.get(name, "or leave it out, and write its keys: docs/parallel.md")

    @property
    def keys(self) -> Mapping[str, str]:
        return {
            PRESET_KEY: (
                f"actors, environments and sizes of batches for a machine: {', '.join(self.presets)}. The "
                "run has the keys that it stands for ([presets](../parallel.md#presets)); values of the grid "
                "come first"
            )
        }


def _resources_of(run: Run, *, learners_apart: bool) -> Resources:
    """Return the resources of a run in several processes, each with the run's threads."""
    actors = max(1, _count(run, "actors"))
    apart = learners_apart and run.overrides.get("mode") == "parallel"
    learners = (_count(run, "learners", 0) or actors) if apart else 0
    return Resources(cpus_per_task=run.threads * (actors + max(0, learners)))


def _count(run: Run, key: str, otherwise: int = 1) -> int:
    """Return the run's value of a key for a number of processes. Raises :class:`OrchestrateError`."""
    value = run.value_of(key)
    try:
        return otherwise if value is None else int(str(value))
    except ValueError:
        raise OrchestrateError(f"{key}: found {value!r}, expected a whole number") from None


def _silence_of(run: Run, *, learners_apart: bool) -> SilenceLimit:
    """Return for how long the first process of a run may be silent: longer than it waits for the others."""
    asked = run.value_of("actor_timeout")
    timeout = float(asked) if isinstance(asked, int | float) else _ACTOR_TIMEOUT_S
    who = "its process"
    if run.overrides.get("mode") == "parallel":
        who = "learner 0" if learners_apart else "actor 0"
    return SilenceLimit(who, timeout + max(timeout, _LEAST_SLACK_S))


def _preset(cores: int, batch: Mapping[str, int], *, learners_apart: bool) -> dict[str, Value]:
    """Return the keys of a preset: a process on each core. ``batch``: rows for each core, by key."""
    sizes: dict[str, Value] = {key: cores * rows for key, rows in batch.items()}
    actors = {"actors": cores // 2, "learners": cores // 2} if learners_apart else {"actors": cores}
    return {"mode": "parallel", **actors, "envs": max(32, 4 * cores), **sizes}


def _trainer(name: str, batch: Mapping[str, int], *, learners_apart: bool = False) -> ActorCriticSpec:
    """Describe a trainer. ``learners_apart``: in mode parallel, processes learn beside those that play."""
    presets = {
        machine: _preset(cores, batch, learners_apart=learners_apart) for machine, cores in _MACHINES.items()
    }
    return ActorCriticSpec.of_learner(
        name,
        f"jobs.trainers.{name}.training:TRAINER",
        first_look=f"jobs.trainers.{name}.config:CONFIG.first_look",
        owned={"task.name": "the key `task` names it, such as task: bucket_brigade/hard"},
        inert=("actor_timeout", "checkpoint_interval", "loggers", "project_name"),
        packages=("torch", "numpy", "gymnasium"),
        task_packages=_TASKS,
        devices=("device",),
        resources=partial(_resources_of, learners_apart=learners_apart),
        presets=presets,
        silence=partial(_silence_of, learners_apart=learners_apart),
        frames=("steps",),
        minutes="minutes",
    )


PPO = _trainer("ppo", {"batch_size": 128})
IMPALA = _trainer("impala", {"batch_envs": 1}, learners_apart=True)
A2C = _trainer("a2c", {})

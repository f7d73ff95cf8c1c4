"""What tasks need beside the packages of their trainer, by patterns of their names."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.core.types import Run


@dataclass(frozen=True)
class TaskPackages:
    """What tasks of a kind need.

    ``install``: distributions for a machine that is set up for a sweep, without those that they name
    themselves. ``decide``: distributions that decide a result by their versions. ``libraries``: the system's
    libraries, each with the package of Debian that holds it.
    """

    install: tuple[str, ...] = ()
    decide: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict, hash=False)


# EnvPool requires the assets of all its games, 315 MB more than Procgen's. Qt draws the pictures.
PROCGEN = TaskPackages(
    install=("envpool", "envpool-assets", "PyQt5-Qt5", "dm-env", "optree"),
    decide=("envpool", "envpool-assets", "PyQt5-Qt5"),
    libraries={"libGL.so.1": "libgl1", "libgthread-2.0.so.0": "libglib2.0-0"},
)
_BOX2D = TaskPackages(decide=("Box2D", "box2d-py"))
_MUJOCO = TaskPackages(decide=("mujoco",))
_OF_MUJOCO = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Inverted*Pendulum", "Pusher", "Reacher", "Swimmer")
ACTOR_CRITIC_TASKS: Mapping[str, TaskPackages] = {
    "procgen/*": PROCGEN,
    "gymnasium/ALE/*": TaskPackages(decide=("ale-py",)),
    **{f"gymnasium/{name}*": _BOX2D for name in ("BipedalWalker", "CarRacing", "LunarLander")},
    **{f"gymnasium/{name}*": _MUJOCO for name in (*_OF_MUJOCO, "Walker2d")},
}


def task_of(run: Run) -> str:
    """Return the run's task as its grid names it; empty without one."""
    return str(run.value_of("task") or "")


def fitting(run: Run, needs: Mapping[str, TaskPackages]) -> list[TaskPackages]:
    """Return what the run's task needs, of these patterns."""
    task = task_of(run)
    return [found for pattern, found in needs.items() if fnmatch.fnmatchcase(task, pattern)]


def registering_module(task: str) -> str:
    """Return the package of the module that registers a task; empty if the task names none.

    In ``gymnasium/minigrid.envs:MiniGrid-Empty-5x5-v0`` it is ``minigrid``. Most distributions have their
    package's name.
    """
    module, colon, _ = task.partition("/")[2].partition(":")
    return module.partition(".")[0] if colon else ""

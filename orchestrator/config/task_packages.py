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


def task_of(run: Run) -> str:
    """Return the run's task as its grid names it; empty without one."""
    return str(run.value_of("task") or "")


def fitting(run: Run, needs: Mapping[str, TaskPackages]) -> list[TaskPackages]:
    """Return what the run's task needs, of these patterns."""
    task = task_of(run)
    return [packages for pattern, packages in needs.items() if fnmatch.fnmatchcase(task, pattern)]


def registering_module(task: str) -> str:
    """Return the package of the module that registers a task; empty if the task names none.

    In ``gymnasium/minigrid.envs:MiniGrid-Empty-5x5-v0`` it is ``minigrid``. Most distributions have their
    package's name.
    """
    module, colon, _ = task.partition("/")[2].partition(":")
    return module.partition(".")[0] if colon else ""

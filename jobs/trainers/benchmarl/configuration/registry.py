"""Register tasks, models and algorithms with BenchMARL: ours, and those of plug-ins.

BenchMARL looks names up in dictionaries and Hydra finds configs on a search path; both are extended here,
BenchMARL itself is unchanged. A name that is taken is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarl.algorithms import algorithm_config_registry
from benchmarl.environments import TaskClass, task_config_registry
from benchmarl.experiment import Callback
from benchmarl.models import model_config_registry
from hydra.core.config_store import ConfigStore

from jobs.trainers.benchmarl.models.extra_mlp import ExtraMlpConfig
from jobs.trainers.benchmarl.tasks.bucket_brigade import BucketBrigade, BucketBrigadeConfig
from jobs.trainers.benchmarl.tasks.kaz import ImageConfig, Kaz, VectorConfig
from jobs.trainers.benchmarl.tasks.multiwalker import MultiwalkerConfig, MultiwalkerShared
from jobs.training.context import BadConfigError
from jobs.training.games.bucket_brigade.catalogue import scenario_names
from jobs.training.plugins import Plugin
from orchestrator.core.machine.package_files import CONF

OURS = Plugin(
    tasks={
        "multiwalker/shared": (MultiwalkerShared, MultiwalkerConfig),
        "kaz/vector": (Kaz, VectorConfig),
        "kaz/image": (Kaz, ImageConfig),
        **{f"bucket_brigade/{name}": (BucketBrigade, BucketBrigadeConfig) for name in scenario_names()},
    },
    models={"extra_mlp": ExtraMlpConfig},
)


@dataclass(frozen=True)
class RegisteredTask:
    """A task in BenchMARL's registry, in place of a member of its enumerations."""

    name: str
    kind: type[TaskClass]

    def get_task(self, config: dict[str, Any]) -> TaskClass:
        """Build the task with its configuration."""
        return self.kind(name=self.name.partition("/")[2].upper(), config=config)


class _Known:
    """The plug-ins registered in this process."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.plugins: dict[str, Plugin] = {}


_known = _Known()


def register(name: str, plugin: Plugin, conf: Path) -> None:
    """Register a plug-in with BenchMARL; ``conf`` holds its configs. A second time does nothing.

    Raises :class:`BadConfigError` if a name has no config or is taken.
    """
    if _known.plugins.get(name) is plugin:
        return
    _refuse_faults(name, plugin, conf)
    store = ConfigStore.instance()
    for task, (kind, config) in plugin.tasks.items():
        task_config_registry[task] = RegisteredTask(task, kind)
        store.store(name=f"{task.replace('/', '_')}_config", group="task", node=config)
    for algorithm, config in plugin.algorithms.items():
        algorithm_config_registry[algorithm] = config
        store.store(name=f"{algorithm}_config", group="algorithm", node=config)
    model_config_registry.update(plugin.models)
    _known.plugins[name], _known.folders[name] = plugin, conf


def config_folders() -> tuple[Path, ...]:
    """Return the folders of Hydra configs besides BenchMARL's own."""
    return tuple(_known.folders.values())


def callbacks() -> list[Callback]:
    """Return new objects of the plug-ins' callbacks, for one run."""
    return [kind() for plugin in _known.plugins.values() for kind in plugin.callbacks]


def _refuse_faults(name: str, plugin: Plugin, conf: Path) -> None:
    parts: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any], str]] = (
        ("task", plugin.tasks, task_config_registry, "task"),
        ("model", plugin.models, model_config_registry, "model/layers"),
        ("algorithm", plugin.algorithms, algorithm_config_registry, "algorithm"),
    )
    for word, offered, taken, folder in parts:
        for item in offered:
            if item in taken:
                raise BadConfigError(f"plug-in {name}: there is a {word} {item!r} already", hint="rename it")
            file = conf / folder / f"{item}.yaml"
            if not file.is_file():
                raise BadConfigError(f"plug-in {name}: {word} {item!r} has no config: {file} is not there")
    for found in plugin.callbacks:
        if not (isinstance(found, type) and issubclass(found, Callback)):
            raise BadConfigError(
                f"plug-in {name}: callbacks: found {found!r}, expected subclasses of BenchMARL's Callback",
                hint="write Plugin(callbacks=(MyCallback,)): the class, not an object of it",
            )
    for task, (kind, _) in plugin.tasks.items():
        family, _, own = task.partition("/")
        if not own or "/" in own or kind.env_name() != family:
            raise BadConfigError(
                f"plug-in {name}: found the task {task!r}, expected {kind.env_name()}/…: "
                f"{kind.__name__}.env_name() is {kind.env_name()!r}"
            )


register("", OURS, CONF)

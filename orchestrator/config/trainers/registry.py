"""The trainers by name."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

from orchestrator.config.plug_ins import find_plug_in, plug_in_names
from orchestrator.config.trainers.spec import TrainerSpec
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import PluginSource

ENTRY_POINT_GROUP = "orchestrate.trainers"
PLUGIN_GROUP = "orchestrate.plugins"
# As entry points of this program would be. They are none: its code also runs where it is not installed, from
# the copy that is kept with a sweep.
_BUILT_IN = {
    "a2c": "orchestrator.config.trainers.actor_critic:A2C",
    "benchmarl": "orchestrator.config.trainers.benchmarl:BENCHMARL",
    "command": "orchestrator.config.trainers.command:COMMAND",
    "impala": "orchestrator.config.trainers.actor_critic:IMPALA",
    "ppo": "orchestrator.config.trainers.actor_critic:PPO",
}


def is_installed(spec: TrainerSpec) -> bool:
    """Return whether the trainer can run here: its own package (the first one) and its plug-ins exist."""
    try:
        own = not spec.packages or bool(version(spec.packages[0]))
    except PackageNotFoundError:
        return False
    return own and all(plugin_folder(source) is not None for source in spec.plugins)


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
    return plug_in_names(ENTRY_POINT_GROUP, _BUILT_IN)


@cache
def can_evaluate(name: str | None) -> bool:
    """Return whether policies of the named trainer can be evaluated after training."""
    try:
        return name is not None and bool(get_trainer(name).evaluate)
    except OrchestrateError:
        return False


@cache  # a lookup reads the metadata of every installed package
def get_trainer(name: str) -> TrainerSpec:
    """Return the :class:`TrainerSpec` behind the trainer's entry point."""
    if (spec := find_plug_in(ENTRY_POINT_GROUP, name, TrainerSpec, _BUILT_IN)) is not None:
        return spec
    raise OrchestrateError(f"no trainer named {name!r} (there are: {', '.join(trainer_names())})")


def x_axis_of(trainer: str) -> str:
    """Return what this trainer's metrics are shown over; frames if it is unknown here."""
    try:
        return get_trainer(trainer).x_axis
    except OrchestrateError:
        return TrainerSpec.x_axis


@cache
def returns_of(trainer: str | None) -> tuple[str, ...]:
    """Return this trainer's metrics that mean "return", best first; every trainer's if it is unknown here."""
    try:
        return get_trainer(trainer or "").returns
    except OrchestrateError:
        return tuple(dict.fromkeys(name for known in trainer_names() for name in get_trainer(known).returns))

"""Trainers as the control plane knows them: specifications, and where they are found."""

from orchestrator.config.trainers.registry import (
    ENTRY_POINT_GROUP,
    PLUGIN_GROUP,
    can_evaluate,
    get_trainer,
    installed_plugin,
    is_installed,
    plugin_folder,
    returns_of,
    trainer_names,
    x_axis_of,
)
from orchestrator.config.trainers.spec import LIMITS, PRESET_KEY, SilenceLimit, TrainerSpec, core_per_thread

__all__ = [
    "ENTRY_POINT_GROUP",
    "LIMITS",
    "PLUGIN_GROUP",
    "PRESET_KEY",
    "SilenceLimit",
    "TrainerSpec",
    "can_evaluate",
    "core_per_thread",
    "get_trainer",
    "installed_plugin",
    "is_installed",
    "plugin_folder",
    "returns_of",
    "trainer_names",
    "x_axis_of",
]

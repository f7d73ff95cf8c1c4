"""A task, a model and an algorithm for BenchMARL, as a plug-in of orchestrate."""

from __future__ import annotations

from jobs.training.plugins import Plugin
from my_marl.corridor import CorridorConfig, CorridorTask
from my_marl.scaled_mlp import ScaledMlpConfig
from my_marl.thrifty_ippo import ThriftyIppoConfig

plugin = Plugin(
    tasks={"corridor/meet": (CorridorTask, CorridorConfig)},
    models={"scaled_mlp": ScaledMlpConfig},
    algorithms={"thrifty_ippo": ThriftyIppoConfig},
)

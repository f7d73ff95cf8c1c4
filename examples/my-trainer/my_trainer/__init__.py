"""A trainer of one's own for orchestrate: a hill climber in plain Python."""

from __future__ import annotations

from orchestrator.config.trainers import TrainerSpec

SPEC = TrainerSpec(
    name="hill",
    train="my_trainer.climbing:train",
    check="my_trainer.climbing:check",
    packages=("my-trainer",),
    source=("my_trainer",),
    frames=("frames",),
)

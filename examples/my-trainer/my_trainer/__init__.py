"""A trainer of one's own for orchestrate: PPO on CartPole."""

from __future__ import annotations

from orchestrator.config.trainers import TrainerSpec

SPEC = TrainerSpec.of_learner(
    "cartpole",
    "my_trainer.learner:TRAINER",
    packages=("my-trainer", "torch", "gymnasium"),
    frames=("frames",),
)

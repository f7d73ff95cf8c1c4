"""A trainer of one's own for orchestrate: PPO on CartPole."""

from __future__ import annotations

from orchestrator.config.trainers import TrainerSpec

SPEC = TrainerSpec(
    name="cartpole",
    train="my_trainer.training:train",
    check="my_trainer.training:check",
    evaluate="my_trainer.training:evaluate",
    preload=("my_trainer.training",),
    packages=("my-trainer", "torch", "gymnasium"),
    source=("my_trainer", "jobs.training.loop", "jobs.hydra.typed_config", "jobs.hydra.values"),
    returns=("eval/reward/episode_reward_mean", "episode/reward"),
    frames=("frames",),
)

"""The keys of the trainer `a2c`, without what trains: a typing error is found before PyTorch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.trainers.actor_critic.config import (
    ASYNCHRONOUS,
    PARALLEL,
    SEQUENTIAL,
    ActorCriticConfig,
    typed_config,
)


@dataclass
class A2cConfig(ActorCriticConfig):
    """The keys of a run. ``gae_lambda`` of 1: returns of as many steps as the rollout still has.

    In ``mode`` asynchronous, each actor takes steps of its own by the rollouts of its share of environments.
    """

    envs: int = 16
    rollout_steps: int = 5
    lr: float = 7e-4
    gae_lambda: float = 1.0

    @property
    def modes(self) -> Sequence[str]:
        return SEQUENTIAL, PARALLEL, ASYNCHRONOUS


CONFIG = typed_config(
    A2cConfig,
    "a2c",
    defaults={
        "bucket_brigade": {"envs": 1024},
        "procgen": {"envs": 32, "rollout_steps": 16, "gae_lambda": 0.95},
    },
    other_keys={},
)

"""The keys of the trainer `ppo`, without what trains: a typing error is found before PyTorch is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from jobs.trainers.actor_critic.config import PICTURES_AT_ONCE, ActorCriticConfig, typed_config


@dataclass
class PpoConfig(ActorCriticConfig):
    """The keys of a run.

    Each of the ``epochs`` of learning takes the rows (environments × learners × steps) in random order,
    ``batch_size`` at a time.
    """

    batch_size: int = 2048
    epochs: int = 4
    gae_lambda: float = 0.95
    clip: float = 0.2

    @property
    def passes(self) -> int:
        return self.epochs

    @property
    def pictures_at_once(self) -> int:
        return min(PICTURES_AT_ONCE, self.batch_size // self.learning)

    def share(self, processes: int) -> Self:
        return replace(super().share(processes), batch_size=self.batch_size // processes)


CONFIG = typed_config(
    PpoConfig,
    "ppo",
    defaults={
        "procgen": {"envs": 32, "rollout_steps": 128, "batch_size": 1024, "lr": 5e-4},
    },
    other_keys={
        "clip_range": ("clip",),
        "clip_epsilon": ("clip",),
        "minibatch_size": ("batch_size",),
        "n_epochs": ("epochs",),
        "ppo_epochs": ("epochs",),
    },
)

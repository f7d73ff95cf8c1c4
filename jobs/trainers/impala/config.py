"""The keys of the trainer `impala`, without what trains: a typing error is found before PyTorch is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from jobs.trainers.actor_critic.config import PARALLEL, ActorCriticConfig, Players, typed_config

# Each actor has memory for one rollout more than it may be behind.
LONGEST_LAG = 100


@dataclass
class ImpalaConfig(ActorCriticConfig):
    """The keys of a run.

    A rollout is learned from ``batch_envs`` environments at a time, each once, in random order.
    ``rho_clip``, ``c_clip``: the largest weights of a step in value targets, and of what follows it.
    In ``mode`` parallel, ``actors`` processes only play, the policy of ``max_lag`` iterations before or a
    later one, and ``learners`` processes learn; 0: as many as actors.
    """

    envs: int = 32
    rollout_steps: int = 128
    batch_envs: int = 8
    rho_clip: float = 1.0
    c_clip: float = 1.0
    max_gradient_norm: float = 40.0
    learners: int = 0
    max_lag: int = 1

    def share(self, processes: int) -> Self:
        return replace(super().share(processes), batch_envs=self.batch_envs // processes)

    @property
    def learning(self) -> int:
        return self.learners or self.actors

    @property
    def pictures_at_once(self) -> int:
        return self.batch_envs * self.rollout_steps // self.learning

    @property
    def players(self) -> Players | None:
        return Players(self.actors, self.max_lag) if self.mode == PARALLEL else None


CONFIG = typed_config(
    ImpalaConfig,
    "impala",
    defaults={"bucket_brigade": {"envs": 1024, "rollout_steps": 16, "batch_envs": 128}},
    other_keys={
        "rho_bar": ("rho_clip",),
        "c_bar": ("c_clip",),
        "clip_rho_threshold": ("rho_clip",),
        "vtrace_clip_rho_threshold": ("rho_clip",),
        "vtrace_clip_pg_rho_threshold": ("rho_clip",),
        "batch_size": ("batch_envs",),
        "minibatch_size": ("batch_envs",),
    },
)

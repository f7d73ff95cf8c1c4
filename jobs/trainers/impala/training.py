"""IMPALA: learn from rollouts of an earlier policy, corrected by V-trace.

The objective is that of Espeholt et al., 2018 (arXiv:1802.01561).
"""

from __future__ import annotations

from contextlib import closing

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import (
    SEQUENTIAL,
    require_divisor,
    require_fitting_network,
    require_sense,
)
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.rollout import Rollout
from jobs.trainers.actor_critic.trainer import ActorCriticTrainer
from jobs.trainers.actor_critic.update import Update
from jobs.trainers.actor_critic.value_estimates import vtrace
from jobs.trainers.impala.config import CONFIG, LONGEST_LAG, ImpalaConfig
from jobs.training.config_errors import require_positive, unexpected


def require_fit(config: ImpalaConfig) -> None:
    """Refuse values that do not fit each other or the environments, which are built small."""
    require_sense(config)
    require_positive(config, "batch_envs", "rho_clip", "c_clip")
    require_divisor("batch_envs", config.batch_envs, config.envs, "envs", "envs")
    _require_learners(config)
    with closing(build(config.task, 1, 0, "cpu")) as environments:
        require_fitting_network(config, environments)


def _require_learners(config: ImpalaConfig) -> None:
    if config.learners < 0:
        raise unexpected("learners", config.learners, "0 or more")
    if not 0 <= config.max_lag <= LONGEST_LAG:
        raise unexpected("max_lag", config.max_lag, f"a number from 0 to {LONGEST_LAG}")
    if config.mode == SEQUENTIAL and config.learners > 1:
        hint = "write mode: parallel, or leave out learners"
        raise unexpected("learners", config.learners, "0 or 1 in mode sequential", hint=hint)
    name = "learners" if config.learners else "actors"
    require_divisor(name, config.learning, config.batch_envs, "batch_envs", "batch_envs")


class ImpalaUpdate(Update[ImpalaConfig]):
    """The update of a network by rollouts, of this network or an earlier one."""

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """Improve the network; return the means of its losses."""
        config, rows = self.config, rollout.rewards.shape[1]
        order = torch.randperm(rows, generator=generator, device=generator.device).to(rollout.seen.device)
        chunks = order.chunk(config.envs // config.batch_envs)
        losses = [self.descend([self._losses(rollout.of_rows(chunk))]) for chunk in chunks]
        # From now on: the rollout was played by the moments before.
        self.saw(rollout.seen.flatten(0, 1))
        names = ("loss/policy", "loss/value", "loss/entropy", "train/approx_kl", "train/rho")
        return dict(zip(names, self.means(*losses), strict=True))

    def _losses(self, rollout: Rollout) -> Tensor:
        config, network = self.config, self.network
        logits, values = network(rollout.seen.flatten(0, 1))
        logs, entropy = network.log_probabilities(logits, rollout.actions.flatten(0, 1))
        with torch.no_grad():
            shape = rollout.rewards.shape
            in_rewards = network.in_rewards(values).view(shape)
            returns, gained = (
                one.flatten()
                for one in vtrace(
                    rollout, logs.view(shape), in_rewards, config.discount, config.rho_clip, config.c_clip
                )
            )
            self.take_in(network.returns, returns[:, None])
            gained = self.standardized(gained)
            change = logs - rollout.logs.flatten()
        each = (
            -logs * gained,
            (values - network.normalized_returns(returns)).square(),
            entropy,
            change.exp() - 1 - change,
            change.exp().clamp(max=config.rho_clip),
        )
        return torch.stack(each).mean(1)


class ImpalaLearner(ActorCriticLearner):
    """A network in training."""

    update = ImpalaUpdate


TRAINER = ActorCriticTrainer(CONFIG, ImpalaLearner, require_sense=require_fit)

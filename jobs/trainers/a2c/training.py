"""Advantage actor-critic: one step by the gradient of a rollout, then the next rollout.

The synchronous form of the algorithm of Mnih et al., 2016 (arXiv:1602.01783).
"""

from __future__ import annotations

from contextlib import closing

import torch
from torch import Tensor

from jobs.trainers.a2c.config import CONFIG, A2cConfig
from jobs.trainers.actor_critic.config import (
    ASYNCHRONOUS,
    require_fitting_network,
    require_sense,
    require_shares,
)
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.rollout import Rollout
from jobs.trainers.actor_critic.trainer import ActorCriticTrainer
from jobs.trainers.actor_critic.update import Update
from jobs.trainers.actor_critic.value_estimates import advantages
from jobs.training.config_errors import unexpected


def require_fit(config: A2cConfig) -> None:
    """Refuse values that do not fit each other or the environments, which are built small."""
    require_sense(config)
    require_shares(config, "gae_lambda")
    if config.mode == ASYNCHRONOUS and config.device != "cpu":
        raise unexpected("device", config.device, "cpu in mode asynchronous")
    with closing(build(config.task, 1, 0, "cpu")) as environments:
        require_fitting_network(config, environments)


class A2cUpdate(Update[A2cConfig]):
    """The update of a network by its rollouts."""

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:  # noqa: ARG002
        """Improve the network; return its losses."""
        losses = self.means(self.descend([self._losses(rollout)]))
        # From now on: the rollout was played by the moments before.
        self.saw(rollout.seen.flatten(0, 1))
        return dict(zip(("loss/policy", "loss/value", "loss/entropy"), losses, strict=True))

    def _losses(self, rollout: Rollout) -> Tensor:
        config, network = self.config, self.network
        gained = advantages(rollout, config.discount, config.gae_lambda)
        returns = (gained + rollout.values).flatten()
        self.take_in(network.returns, returns[:, None])
        logits, values = network(rollout.seen.flatten(0, 1))
        logs, entropy = network.log_probabilities(logits, rollout.actions.flatten(0, 1))
        each = (
            -logs * self.standardized(gained.flatten()),
            (values - network.normalized_returns(returns)).square(),
            entropy,
        )
        return torch.stack(each).mean(1)


class A2cLearner(ActorCriticLearner):
    """A network in training."""

    update = A2cUpdate


TRAINER = ActorCriticTrainer(CONFIG, A2cLearner, require_sense=require_fit)

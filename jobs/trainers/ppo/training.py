"""Proximal policy optimization: collect with the present policy, then improve it on what was collected.

The clipped objective is that of Schulman et al., 2017 (arXiv:1707.06347).
"""

from __future__ import annotations

from contextlib import closing

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import (
    require_divisor,
    require_fitting_network,
    require_sense,
    require_shares,
)
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.networks import at_once
from jobs.trainers.actor_critic.rollout import Rollout
from jobs.trainers.actor_critic.trainer import ActorCriticTrainer
from jobs.trainers.actor_critic.update import Update
from jobs.trainers.actor_critic.value_estimates import advantages
from jobs.trainers.ppo.config import CONFIG, PpoConfig
from jobs.training.config_errors import require_positive


def require_fit(config: PpoConfig) -> None:
    """Refuse values that do not fit each other or the environments, which are built small."""
    require_sense(config)
    require_positive(config, "batch_size", "epochs", "clip")
    require_shares(config, "gae_lambda")
    with closing(build(config.task, 1, 0, "cpu")) as environments:
        require_fitting_network(config, environments)
        learners = environments.learners
    of = f"rows of an iteration: {config.envs:_} envs × {config.rollout_steps:_} rollout_steps"
    of += f" × {learners} learners" if learners > 1 else ""
    rows = config.envs * config.rollout_steps * learners
    require_divisor("batch_size", config.batch_size, rows, of, "envs or rollout_steps")
    require_divisor("actors", config.actors, config.batch_size, "batch_size", "batch_size")


class PpoUpdate(Update[PpoConfig]):
    """The update of a network by its rollouts."""

    advantage_memory = 1

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """Improve the network; return the means of its losses."""
        config, network = self.config, self.network
        gained = advantages(rollout, config.discount, config.gae_lambda)
        returns = (gained + rollout.values).flatten()
        seen, actions = rollout.seen.flatten(0, 1), rollout.actions.flatten(0, 1)
        self.take_in(network.returns, returns[:, None])
        targets, logs = network.normalized_returns(returns), rollout.logs.flatten()
        gained = self.standardized(gained.flatten())
        rows = (network.prepared(seen), actions, logs, gained, targets)
        losses = []
        for _ in range(config.epochs):
            order = torch.randperm(len(seen), generator=generator, device=generator.device).to(seen.device)
            for batch in order.split(config.batch_size):
                # Rows chosen by index_select are copied whole: a third of the time of [batch].
                step = self.descend(
                    self._losses(*(one.index_select(0, part) for one in rows)) * (len(part) / len(batch))
                    for part in batch.split(at_once(seen))
                )
                losses.append(step)
        self.saw(seen)  # from now on: the rollout was played by the moments before
        names = ("loss/policy", "loss/value", "loss/entropy", "train/approx_kl", "train/clip_fraction")
        return dict(zip(names, self.means(*losses), strict=True))

    def _losses(
        self, inputs: Tensor, actions: Tensor, logs: Tensor, gained: Tensor, targets: Tensor
    ) -> Tensor:
        logits, values = self.network.of_prepared(inputs)
        now, entropy = self.network.log_probabilities(logits, actions)
        change = now - logs
        ratio = change.exp()
        clipped = ratio.clamp(1 - self.config.clip, 1 + self.config.clip)
        each = (
            -torch.minimum(ratio * gained, clipped * gained),
            (values - targets).square(),
            entropy,
            (ratio - 1 - change).detach(),
            (ratio - clipped).detach().ne(0).to(ratio.dtype),
        )
        return torch.stack(each).mean(1)


class PpoLearner(ActorCriticLearner):
    """A network in training."""

    update = PpoUpdate


TRAINER = ActorCriticTrainer(CONFIG, PpoLearner, require_sense=require_fit)

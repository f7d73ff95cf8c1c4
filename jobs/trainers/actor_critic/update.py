"""The update of a network by its rollouts: what the trainers' updates share."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.trainers.actor_critic.rollout import Rollout

C = TypeVar("C", bound=ActorCriticConfig)


class Update(Generic[C]):
    """Improves a network by rollouts. ``optimizer``: with all state of the update."""

    def __init__(self, config: C, network: ActorCritic) -> None:
        self.config, self.network = config, network
        self._parameters = list(network.parameters())
        self._weights = torch.tensor([1.0, config.value_weight, -config.entropy_weight], device=config.device)
        self.optimizer = torch.optim.Adam(self._parameters, lr=config.lr, eps=1e-5, fused=True)

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """Improve the network; return the means of its losses."""
        raise NotImplementedError

    def descend(self, losses: Tensor) -> Tensor:
        """Take a step by the losses of policy, value and entropy; return all, with those that follow them."""
        self.optimizer.zero_grad(set_to_none=True)
        (losses[:3] @ self._weights).backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        self.optimizer.step()
        return losses.detach()

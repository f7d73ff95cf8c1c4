"""The update of a network by its rollouts: what the trainers' updates share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.trainers.actor_critic.group import Group
from jobs.trainers.actor_critic.networks import (
    ActorCritic,
    RunningMoments,
    deviation_beside,
    in_deviations,
)
from jobs.trainers.actor_critic.rollout import Rollout

C = TypeVar("C", bound=ActorCriticConfig)


class Update(Generic[C]):
    """Improves a network by rollouts, those of all processes of a group.

    ``config``: with this process's share of sizes. ``optimizer``: with all state of the update.
    ``advantage_memory``: over how many updates the variance of advantages is averaged. Few rows by a good
    policy differ by noise alone, which their own deviation would scale up.
    """

    advantage_memory = 100

    def __init__(self, config: C, network: ActorCritic, group: Group) -> None:
        self.config, self.network, self.group = config, network, group
        self._parameters = list(network.parameters())
        self._weights = torch.tensor([1.0, config.value_weight, -config.entropy_weight], device=config.device)
        self.optimizer = torch.optim.Adam(self._parameters, lr=config.lr, eps=1e-5, fused=True)

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """Improve the network; return the means of its losses."""
        raise NotImplementedError

    def descend(self, parts: Iterable[Tensor]) -> Tensor:
        """Take a step by the losses of policy, value and entropy, the sums of those of parts of the rows.

        Return all sums, with those of what follows the three. Each part's graph is freed before the next.
        """
        self.optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros((), device=self._weights.device)
        for losses in parts:
            (losses[:3] @ self._weights).backward()
            sums = sums + losses.detach()
        self.group.average([one.grad for one in self._parameters if one.grad is not None])
        torch.nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        states = (value for state in self.optimizer.state.values() for value in state.values())
        with self.group.changing((*self._parameters, *states), step=True):
            self.optimizer.step()
        return sums

    def means(self, *losses: Tensor) -> list[float]:
        """Return the means of losses of as many steps, over all processes."""
        mean = torch.stack(losses).mean(0)
        self.group.average([mean])
        return mean.tolist()

    def standardized(self, gained: Tensor) -> Tensor:
        """Return advantages (R) as distances from their mean, by the deviation of the last updates'.

        All are of all processes' rows. Neither the scale of rewards nor an error that all values share is
        left in them. Advantages that are alike but for the rounding of returns are 0.
        """
        _, mean, variance = self.group.moments(gained)
        within = self.network.advantages
        with self.group.changing(within.buffers()):
            within.update(1, torch.zeros_like(within.mean), variance, self.advantage_memory)
        return in_deviations(gained, mean, deviation_beside(self.network.returns.mean, within.variance))

    def saw(self, observations: Tensor) -> None:
        """Take the observations of a rollout (R, *S) into the network's moments, if it has any."""
        if self.network.seen is not None:
            self.take_in(self.network.seen, observations)

    def take_in(self, moments: RunningMoments, rows: Tensor) -> None:
        """Take the rows of all processes into moments."""
        found = self.group.moments(rows)
        with self.group.changing(moments.buffers()):
            moments.update(*found)

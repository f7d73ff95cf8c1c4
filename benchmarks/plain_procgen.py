"""PPO and IMPALA on Procgen as plain PyTorch loops, in one process, to compare the trainers with.

As such loops are usually written: EnvPool's environments as they are, pictures of bytes (channels, height,
width) that the network scales, rows of a batch chosen by indices, PyTorch's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

DISCOUNT, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.999, 0.5, 0.01


def _initialized(layer: Any, gain: float = 2**0.5) -> Any:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Network(nn.Module):
    """Three convolutions and a layer, for policy and value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _initialized(nn.Conv2d(3, 32, 8, 4)),
            nn.ReLU(),
            _initialized(nn.Conv2d(32, 64, 4, 2)),
            nn.ReLU(),
            _initialized(nn.Conv2d(64, 64, 3, 1)),
            nn.ReLU(),
            nn.Flatten(),
            _initialized(nn.Linear(1024, 512)),
            nn.ReLU(),
        )
        self.policy = _initialized(nn.Linear(512, 15), 0.01)
        self.value = _initialized(nn.Linear(512, 1), 1.0)

    def forward(self, pictures: Tensor) -> tuple[Categorical, Tensor]:
        """Return the policy and the values of pictures (R, 3, 64, 64)."""
        features = self.body(pictures.float() / 255)
        return Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)


@dataclass
class Steps:
    """What was played: (T, N, …), and the values and ends after the last step (N)."""

    seen: Tensor
    actions: Tensor
    logs: Tensor
    values: Tensor
    rewards: Tensor
    done: Tensor
    next_values: Tensor
    next_done: Tensor


class _Loop:
    """Environments, a network and an optimizer."""

    def __init__(self, pool: Any, envs: int, steps: int, lr: float) -> None:
        self._pool, self._envs, self._steps = pool, envs, steps
        self._network = Network()
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=lr, eps=1e-5)
        self._seen = torch.from_numpy(pool.reset()[0])
        self._done = torch.zeros(envs)

    def iterate(self) -> int:
        """Play and learn once; return the frames."""
        self._learn(self._play())
        return self._envs * self._steps

    def _play(self) -> Steps:
        shape = self._steps, self._envs
        seen = torch.zeros(*shape, 3, 64, 64, dtype=torch.uint8)
        actions = torch.zeros(*shape, dtype=torch.int64)
        logs, values, rewards, done = (torch.zeros(shape) for _ in range(4))
        for step in range(self._steps):
            seen[step], done[step] = self._seen, self._done
            with torch.no_grad():
                policy, values[step] = self._network(self._seen)
                action = policy.sample()
                logs[step] = policy.log_prob(action)
            actions[step] = action
            pictures, reward, terminated, truncated, _ = self._pool.step(action.numpy().astype(np.int32))
            self._seen = torch.from_numpy(pictures)
            self._done = torch.from_numpy(terminated | truncated).float()
            rewards[step] = torch.from_numpy(reward)
        with torch.no_grad():
            _, next_values = self._network(self._seen)
        return Steps(seen, actions, logs, values, rewards, done, next_values, self._done)

    def _learn(self, played: Steps) -> None:
        raise NotImplementedError

    def _descend(self, loss: Tensor, longest: float) -> None:
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._network.parameters(), longest)
        self._optimizer.step()


class PlainPpo(_Loop):
    """Proximal policy optimization."""

    def __init__(self, pool: Any, envs: int, steps: int, batch_size: int, epochs: int) -> None:
        super().__init__(pool, envs, steps, lr=5e-4)
        self._batch_size, self._epochs = batch_size, epochs

    def _learn(self, played: Steps) -> None:
        advantages, last = torch.zeros_like(played.rewards), torch.zeros(self._envs)
        for step in reversed(range(self._steps)):
            at_end = step == self._steps - 1
            goes_on = 1 - (played.next_done if at_end else played.done[step + 1])
            following = played.next_values if at_end else played.values[step + 1]
            error = played.rewards[step] + DISCOUNT * following * goes_on - played.values[step]
            advantages[step] = last = error + DISCOUNT * 0.95 * goes_on * last
        returns = (advantages + played.values).flatten()
        seen, actions, logs = played.seen.flatten(0, 1), played.actions.flatten(), played.logs.flatten()
        advantages = advantages.flatten()
        for _ in range(self._epochs):
            for rows in torch.randperm(len(seen)).split(self._batch_size):
                policy, values = self._network(seen[rows])
                ratio = (policy.log_prob(actions[rows]) - logs[rows]).exp()
                gained = advantages[rows]
                gained = (gained - gained.mean()) / (gained.std() + 1e-8)
                policy_loss = -torch.min(ratio * gained, ratio.clamp(0.8, 1.2) * gained).mean()
                value_loss = (values - returns[rows]).square().mean()
                loss = policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * policy.entropy().mean()
                self._descend(loss, longest=0.5)


class PlainImpala(_Loop):
    """IMPALA's update, with V-trace, by a part of the environments at a time."""

    def __init__(self, pool: Any, envs: int, steps: int, batch_envs: int) -> None:
        super().__init__(pool, envs, steps, lr=3e-4)
        self._batch_envs = batch_envs

    def _learn(self, played: Steps) -> None:
        for chosen in torch.randperm(self._envs).split(self._batch_envs):
            self._learn_from(played, chosen)

    def _learn_from(self, played: Steps, chosen: Tensor) -> None:
        shape = self._steps, len(chosen)
        policy, values = self._network(played.seen[:, chosen].flatten(0, 1))
        logs = policy.log_prob(played.actions[:, chosen].flatten())
        with torch.no_grad():
            ratios = (logs.view(shape) - played.logs[:, chosen]).exp().clamp(max=1)
            now = values.view(shape)
            goes_on = 1 - torch.cat((played.done[1:, chosen], played.next_done[None, chosen]))
            following = torch.cat((now[1:], played.next_values[None, chosen]))
            rewards = played.rewards[:, chosen]
            errors = ratios * (rewards + DISCOUNT * following * goes_on - now)
            targets, last = torch.zeros(shape), torch.zeros(len(chosen))
            for step in reversed(range(self._steps)):
                last = errors[step] + DISCOUNT * goes_on[step] * ratios[step] * last
                targets[step] = now[step] + last
            after = torch.cat((targets[1:], played.next_values[None, chosen]))
            gained = ratios * (rewards + DISCOUNT * after * goes_on - now)
        policy_loss = -(logs * gained.flatten()).mean()
        value_loss = (values - targets.flatten()).square().mean()
        loss = policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * policy.entropy().mean()
        self._descend(loss, longest=40.0)

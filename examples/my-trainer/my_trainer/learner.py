"""PPO on Gymnasium's CartPole in plain PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from jobs.training.best_policy import RETURN
from orchestrator.planning.throughput.measure import COLLECTION_TIMER, LEARNING_TIMER


@dataclass
class Config:
    """The keys of a run. An iteration plays ``rollout`` steps and learns from them ``epochs`` times."""

    frames: int = 40_000
    rollout: int = 2_048
    epochs: int = 10
    batch_size: int = 128
    lr: float = 1e-3
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    evaluation_interval: int = 10_000
    evaluation_episodes: int = 10


def network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Learner:
    """Two networks and an optimizer. An iteration begins with a new episode, so none has to be saved."""

    exactness = "exact"

    def __init__(self, config: Config, seed: int) -> None:
        torch.manual_seed(seed)
        self.frames_per_iteration = config.rollout
        self._config, self._seed, self._env = config, seed, gymnasium.make("CartPole-v1")
        self.actor, self._critic = network(2), network(1)
        parameters = [*self.actor.parameters(), *self._critic.parameters()]
        self._optimizer = torch.optim.Adam(parameters, lr=config.lr)

    def iterate(self, done: float) -> dict[str, float]:
        began = time.monotonic()
        seen, actions, rewards, after, terminated, ended = self._play()
        collected = time.monotonic()
        self._learn(seen, actions, *self._advantages(seen, rewards, after, terminated, ended))
        return {
            "episode/reward": float(rewards.sum() / ended.sum().clamp(min=1)),
            COLLECTION_TIMER: collected - began,
            LEARNING_TIMER: time.monotonic() - collected,
        }

    def _play(self) -> list[Tensor]:
        steps, ended = [], False
        seen, _ = self._env.reset(seed=int(torch.randint(2**31, ())))
        for _ in range(self._config.rollout):
            with torch.no_grad():
                action = int(Categorical(logits=self.actor(torch.from_numpy(seen))).sample())
            after, reward, terminated, truncated, _ = self._env.step(action)
            ended = terminated or truncated
            steps.append((seen, action, np.float32(reward), after, terminated, ended))
            seen = self._env.reset()[0] if ended else after
        return [torch.from_numpy(np.array(column)) for column in zip(*steps, strict=True)]

    def _advantages(
        self, seen: Tensor, rewards: Tensor, after: Tensor, terminated: Tensor, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return generalized advantage estimates and what the critic should have returned."""
        config, carried = self._config, torch.tensor(0.0)
        with torch.no_grad():
            values, later = self._critic(seen)[:, 0], self._critic(after)[:, 0]
        found = rewards + config.discount * later * ~terminated - values
        for step in reversed(range(len(found))):
            carried = found[step] + config.discount * config.trace * carried * ~ended[step]
            found[step] = carried
        return (found - found.mean()) / (found.std() + 1e-8), found + values

    def _learn(self, seen: Tensor, actions: Tensor, advantages: Tensor, targets: Tensor) -> None:
        config = self._config
        with torch.no_grad():
            before = Categorical(logits=self.actor(seen)).log_prob(actions)
        for _ in range(config.epochs):
            for batch in torch.randperm(len(seen)).split(config.batch_size):
                now = Categorical(logits=self.actor(seen[batch])).log_prob(actions[batch])
                ratio, gained = (now - before[batch]).exp(), advantages[batch]
                clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
                loss = -torch.minimum(ratio * gained, clipped * gained).mean()
                loss += 0.5 * (self._critic(seen[batch])[:, 0] - targets[batch]).square().mean()
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()

    def returns(self, episodes: int, seed: int, deterministic: bool = True) -> list[float]:
        """Play whole episodes. Draws none of the random numbers of the training."""
        env, random, found = gymnasium.make("CartPole-v1"), torch.Generator().manual_seed(seed), []
        for number in range(episodes):
            seen, ended, total = env.reset(seed=seed + number)[0], False, 0.0
            while not ended:
                with torch.no_grad():
                    chances = self.actor(torch.from_numpy(seen)).softmax(0)
                action = chances.argmax() if deterministic else chances.multinomial(1, generator=random)
                seen, reward, terminated, truncated, _ = env.step(int(action))
                total, ended = total + float(reward), terminated or truncated
            found.append(total)
        return found

    def evaluate(self) -> dict[str, float]:
        found = self.returns(self._config.evaluation_episodes, self._seed)
        return {RETURN: sum(found) / len(found)}

    def policy(self) -> dict[str, Any]:
        return dict(self.actor.state_dict())

    def learned(self) -> dict[str, Any]:
        return {"critic": self._critic.state_dict(), "optimizer": self._optimizer.state_dict()}

    def running(self) -> dict[str, Any]:
        return {"random": torch.get_rng_state()}

    def load(self, policy: Mapping[str, Any], learned: Mapping[str, Any]) -> None:
        self.actor.load_state_dict(policy)
        self._critic.load_state_dict(learned["critic"])
        self._optimizer.load_state_dict(learned["optimizer"])

    def resume(self, running: Mapping[str, Any]) -> None:
        torch.set_rng_state(running["random"])

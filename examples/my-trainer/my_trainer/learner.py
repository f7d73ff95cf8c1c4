"""PPO on Gymnasium's CartPole in plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from jobs.hydra.typed_config import TypedConfig
from jobs.trainers.learner_trainer import LearnerTrainer
from jobs.training.config_errors import require_positive
from jobs.training.context import UsualEvaluation
from jobs.training.loop import Played, Schedule

TASK = "CartPole-v1"


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
        self.config, self.frames_per_iteration = config, config.rollout
        self.env, self.policy, self.critic = gymnasium.make(TASK), network(2), network(1)
        weights = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=config.lr)
        self.learned = {"critic": self.critic, "optimizer": self.optimizer}
        self.running = {"random": torch.default_generator}

    def collect(self) -> list[Tensor]:
        steps, ended = [], False
        seen, _ = self.env.reset(seed=int(torch.randint(2**31, ())))
        for _ in range(self.config.rollout):
            with torch.no_grad():
                action = int(Categorical(logits=self.policy(torch.from_numpy(seen))).sample())
            after, reward, terminated, truncated, _ = self.env.step(action)
            ended = terminated or truncated
            steps.append((seen, action, np.float32(reward), after, terminated, ended))
            seen = self.env.reset()[0] if ended else after
        return [torch.from_numpy(np.array(column)) for column in zip(*steps, strict=True)]

    def learn(self, collected: list[Tensor], done: float) -> dict[str, float]:
        seen, actions, rewards, after, terminated, ended = collected
        config = self.config
        with torch.no_grad():
            values, later = self.critic(seen)[:, 0], self.critic(after)[:, 0]
            before = Categorical(logits=self.policy(seen)).log_prob(actions)
        gained, carried = rewards + config.discount * later * ~terminated - values, 0.0
        for step in reversed(range(len(gained))):  # generalized advantage estimates
            carried = gained[step] + config.discount * config.trace * ~ended[step] * carried
            gained[step] = carried
        targets, gained = gained + values, (gained - gained.mean()) / (gained.std() + 1e-8)
        for _ in range(config.epochs):
            for batch in torch.randperm(len(seen)).split(config.batch_size):
                now = Categorical(logits=self.policy(seen[batch])).log_prob(actions[batch])
                ratio = (now - before[batch]).exp()
                clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
                loss = -torch.minimum(ratio * gained[batch], clipped * gained[batch]).mean()
                loss += 0.5 * (self.critic(seen[batch])[:, 0] - targets[batch]).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return {"episode/reward": float(rewards.sum() / ended.sum().clamp(min=1))}

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        env, random, returns = gymnasium.make(TASK), torch.Generator().manual_seed(seed), []
        for number in range(episodes):
            seen, ended, total = env.reset(seed=seed + number)[0], False, 0.0
            while not ended:
                with torch.no_grad():
                    chances = self.policy(torch.from_numpy(seen)).softmax(0)
                action = chances.argmax() if deterministic else chances.multinomial(1, generator=random)
                seen, reward, terminated, truncated, _ = env.step(int(action))
                total, ended = total + float(reward), terminated or truncated
            returns.append(total)
        return Played(returns, lengths=[int(total) for total in returns])


TRAINER = LearnerTrainer(
    config=TypedConfig("cartpole", lambda _: Config(), other_keys={"learning_rate": ("lr",)}),
    learner=Learner,
    schedule=lambda config: Schedule(
        frames=config.frames,
        evaluation_interval=config.evaluation_interval,
        policy_interval=config.evaluation_interval,
        evaluation=UsualEvaluation(TASK, config.evaluation_episodes, deterministic=True),
    ),
    require_sense=lambda config: require_positive(
        config, "frames", "rollout", "epochs", "batch_size", "lr", "evaluation_episodes"
    ),
)

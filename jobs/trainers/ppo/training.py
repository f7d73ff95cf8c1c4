"""Train a run with PPO, and check runs before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from jobs.trainers.learner_trainer import LearnerTrainer
from jobs.trainers.ppo.algorithm import PpoUpdate, Rollout, collect
from jobs.trainers.ppo.config import CONFIG, MLP, PpoConfig, require_full_batches, require_sense
from jobs.trainers.ppo.environments import build
from jobs.trainers.ppo.interface import Environments
from jobs.trainers.ppo.networks import ActorCritic, Transformer, mlp
from jobs.trainers.ppo.playing import EpisodeSums, play
from jobs.training.context import EXACT, NO_PROGRESS_LOST, UsualEvaluation
from jobs.training.loop import Played, Schedule

# Episodes that the average return is of.
_EPISODES = 100
# Added to a seed for random numbers of their own: a generator seeded as the environments draws theirs.
FOR_ACTIONS = 1_000_003


def schedule_of(config: PpoConfig) -> Schedule:
    """Return when a training ends, evaluates and keeps policies, and where it logs."""
    return Schedule(
        frames=config.steps,
        evaluation_interval=config.evaluation_interval,
        policy_interval=config.checkpoint_interval,
        loggers=config.loggers,
        project=config.project_name,
        evaluation=UsualEvaluation(
            config.task.name, config.evaluation_episodes, config.evaluation_deterministic
        ),
    )


def require_fit(config: PpoConfig) -> None:
    """Build the environments of a configuration small, and refuse what does not fit them."""
    require_sense(config)
    environments = build(config.task, 1, 0, "cpu")
    require_full_batches(config, environments.learners)


def build_network(config: PpoConfig, environments: Environments) -> ActorCritic:
    """Build a network with random weights, drawn by PyTorch's own generator."""
    if config.network == MLP:
        body, features = mlp(environments.width, config.hidden)
    else:
        features = config.features
        body = Transformer(environments.width, features, config.layers, config.heads)
    return ActorCritic(environments.width, environments.parts, body, features).to(config.device)


class PpoLearner:
    """A network in training; as :class:`jobs.training.loop.Learner`."""

    def __init__(self, config: PpoConfig, seed: int) -> None:
        self._config = config
        self.running = _Games(config, seed)
        torch.manual_seed(seed)
        self.policy = build_network(config, self.running.environments)
        self._update = PpoUpdate(config, self.policy)
        self.learned = self._update.optimizer
        self.frames_per_iteration = config.envs * config.rollout_steps
        self.exactness = EXACT if config.device == "cpu" else NO_PROGRESS_LOST

    def collect(self) -> tuple[Rollout, dict[str, float]]:
        """Return a rollout and the seconds spent, by timer."""
        return self.running.collect(self.policy)

    def learn(self, collected: tuple[Rollout, dict[str, float]], done: float) -> dict[str, float]:
        """Improve the network; return metrics."""
        rollout, timers = collected
        if self._config.anneal_lr:
            self._update.set_lr(self._config.lr * (1 - done))
        losses = self._update(rollout, self.running.random)
        return {**self.running.episode_metrics(), **losses, **timers}

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        """Play episodes in environments of their own."""
        config = self._config
        environments = build(config.task, episodes, seed, config.device)
        random = None if deterministic else torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
        found = play(environments, self.policy, random)
        lengths = [int(steps) for steps in found.lengths]
        return Played(found.returns.tolist(), lengths, dict(found.figures))


class _Games:
    """The environments of a training, their random numbers, and the episodes so far."""

    def __init__(self, config: PpoConfig, seed: int) -> None:
        self._config = config
        self.environments = build(config.task, config.envs, seed, config.device)
        self.random = torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
        self._seen = self.environments.reset()
        self._sums = EpisodeSums(self.environments, config.device)
        self._returns: deque[float] = deque(maxlen=_EPISODES)
        self._episodes = 0

    def collect(self, network: ActorCritic) -> tuple[Rollout, dict[str, float]]:
        """Play a rollout; return it and the seconds spent, by timer."""
        rollout, self._seen, timers = collect(
            self.environments, network, self._seen, self._sums, self._config, self.random
        )
        return rollout, timers

    def episode_metrics(self) -> dict[str, float]:
        """Return metrics of the episodes that ended since the last call."""
        ended = self._sums.take()
        self._returns.extend(ended.returns.tolist())
        self._episodes += len(ended.returns)
        metrics = {"train/total_episodes": float(self._episodes)}
        if len(ended.returns):
            metrics["episode/reward"] = float(ended.returns.mean())
            metrics["episode/length"] = float(ended.lengths.mean())
            metrics |= ended.figures
        if self._returns:
            metrics["train/avg_reward_100ep"] = sum(self._returns) / len(self._returns)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state of environments, episodes and random numbers."""
        return {
            "environments": self.environments.state_dict(),
            "seen": self._seen,
            "sums": self._sums.state_dict(),
            "random": self.random.get_state(),
            "returns": list(self._returns),
            "episodes": self._episodes,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.environments.load_state_dict(saved["environments"])
        self._seen.copy_(saved["seen"])
        self._sums.load_state_dict(saved["sums"])
        self.random.set_state(saved["random"].cpu())
        self._returns.extend(saved["returns"])
        self._episodes = saved["episodes"]


TRAINER = LearnerTrainer(CONFIG, PpoLearner, schedule_of, require_fit)

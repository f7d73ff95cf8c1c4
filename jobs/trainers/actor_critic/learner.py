"""A learner of the actor-critic kind: a network that plays, and an update by what it played.

It may be one of several processes that train the same network: each has its share of the environments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any, ClassVar

import torch

from jobs.trainers.actor_critic.config import CNN, MLP, TRANSFORMER, ActorCriticConfig
from jobs.trainers.actor_critic.environments.families import build, family_of
from jobs.trainers.actor_critic.environments.interface import Environments
from jobs.trainers.actor_critic.group import ALONE, Group
from jobs.trainers.actor_critic.networks import ActorCritic, Transformer, convolutions, mlp, residual
from jobs.trainers.actor_critic.playing import Episodes, play, pooled
from jobs.trainers.actor_critic.rollout import FOR_ACTIONS, Games, Rollout
from jobs.trainers.actor_critic.update import Update
from jobs.training.context import NO_PROGRESS_LOST
from jobs.training.loop import Played
from jobs.training.records.video import Film

# Episodes that the average return is of.
_EPISODES = 100


class ActorCriticLearner:
    """A network in training; as :class:`jobs.training.loop.Learner`.

    ``games``: the environments of this process, or those of others in their place; ``episodes``: those that
    all processes played. ``update``: the algorithm's class that computes a gradient step from a rollout.
    """

    update: ClassVar[type[Update[Any]]]

    def __init__(self, config: ActorCriticConfig, seed: int, group: Group = ALONE, games: Any = None) -> None:
        self._config, self._group = config, group
        own = config.share(group.size)
        self.games, self.episodes = games or Games(own, group.own_seed(seed)), EpisodeHistory()
        torch.manual_seed(seed)
        self.policy = build_network(config, self.games.environments)
        self._update = self.update(own, self.policy, group)
        self.learned = self._update.optimizer
        self.frames_per_iteration = config.envs * config.rollout_steps

    @property
    def exactness(self) -> str:
        """How a training that goes on from its state relates to one left alone."""
        own: str = self.games.exactness
        return own if self._config.device == "cpu" else NO_PROGRESS_LOST

    @property
    def running(self) -> dict[str, Any]:
        """What runs on beside the network."""
        return {"games": self.games, "episodes": self.episodes}

    def collect(self) -> tuple[Rollout, dict[str, float]]:
        """Return a rollout and the seconds spent, by timer."""
        found: tuple[Rollout, dict[str, float]] = self.games.collect(self.policy)
        return found

    def learn(self, collected: tuple[Rollout, dict[str, float]], done: float) -> dict[str, float]:
        """Improve the network; return metrics of all processes, on rank 0."""
        rollout, timers = collected
        self._group.wait()
        losses = self.improve(rollout, done)
        for name, seconds in self._group.take_seconds().items():
            timers[name] = timers.get(name, 0.0) + seconds
        found = self._group.gather((vars(self.games.take_episodes()), timers))
        if not found:
            return {}
        ended = [Episodes(**one) for one, _ in found]
        return {**self.episodes.metrics(pooled(ended)), **losses, **means([one for _, one in found])}

    def improve(self, rollout: Rollout, done: float) -> dict[str, float]:
        """Improve the network by a rollout of this process; return the means of all processes' losses."""
        if self._config.anneal_lr:
            for group in self.learned.param_groups:
                group["lr"] = self._config.lr * (1 - done)
        return self._update(rollout, self.games.random)

    def play(self, episodes: int, seed: int, deterministic: bool) -> Played:
        """Play episodes in environments of their own."""
        return play_policy(self._config, self.policy, episodes, seed, deterministic)


class EpisodeHistory:
    """The last episodes that ended, and the number of all."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=_EPISODES)
        self._number = 0

    def metrics(self, ended: Episodes) -> dict[str, float]:
        """Take these episodes in; return metrics of them and of the last ones."""
        self._returns.extend(ended.returns.tolist())
        self._number += len(ended.returns)
        metrics = {"train/total_episodes": float(self._number)}
        if len(ended.returns):
            metrics["episode/reward"] = float(ended.returns.mean())
            metrics["episode/length"] = float(ended.lengths.mean())
            metrics |= ended.figures
        if self._returns:
            metrics["train/avg_reward_100ep"] = sum(self._returns) / len(self._returns)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the last returns and the number."""
        return {"returns": list(self._returns), "number": self._number}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self._returns.extend(saved["returns"])
        self._number = saved["number"]


def means(many: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number, by name, over those that have it."""
    names = dict.fromkeys(name for one in many for name in one)
    return {name: fmean(one[name] for one in many if name in one) for name in names}


def build_network(config: ActorCriticConfig, environments: Environments) -> ActorCritic:
    """Build a network with random weights, drawn by PyTorch's own generator."""
    shape, precision = environments.shape, config.products
    if config.network == MLP:
        body, features = mlp(shape[0], config.hidden)
    elif config.network == TRANSFORMER:
        features = config.features
        body = Transformer(shape[0], features, config.layers, config.heads)
    elif config.network == CNN:
        body, features = convolutions(shape, precision)
    else:
        body, features = residual(shape, precision)
    found = ActorCritic(shape, environments.parts, body, features, config.normalize_observations)
    return found.to(config.device)


def play_policy(
    config: ActorCriticConfig,
    network: ActorCritic,
    episodes: int,
    seed: int,
    deterministic: bool,
    film: Film | None = None,
) -> Played:
    """Play episodes as they are evaluated: in environments of their own, which may differ from training's.

    Film the first one. Where environments differ, episodes in those of training are played, too, for the gap
    between both.
    """
    random = None if deterministic else torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
    tested = family_of(config.task.name).tested(config.task)
    with closing(build(tested, episodes, seed, config.device)) as environments:
        found = play(environments, network, random, config.evaluation_steps, film)
    figures = dict(found.figures)
    if tested != config.task:
        with closing(build(config.task, episodes, seed, config.device)) as environments:
            trained = play(environments, network, random, config.evaluation_steps)
        figures["training_levels_return"] = float(trained.returns.mean())
        figures["generalization_gap"] = float(trained.returns.mean() - found.returns.mean())
    return Played(found.returns.tolist(), [int(steps) for steps in found.lengths], figures)

"""Train a run with PPO, and check runs before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from jobs.check import Problem
from jobs.trainers.ppo.algorithm import PpoUpdate, collect
from jobs.trainers.ppo.config import CONFIG, MLP, PpoConfig, require_full_batches, require_sense
from jobs.trainers.ppo.environments import baselines_of, build
from jobs.trainers.ppo.interface import Environments
from jobs.trainers.ppo.networks import ActorCritic, Transformer, mlp
from jobs.trainers.ppo.playing import EpisodeSums, play
from jobs.training.best_policy import RETURN
from jobs.training.context import EXACT, NO_PROGRESS_LOST, Outcome, RunContext, UsualEvaluation
from jobs.training.loop import Schedule, train_on_schedule
from jobs.training.time_budget import minutes_of
from orchestrator.core.types import Run
from orchestrator.planning.throughput.measure import COLLECTION_TIMER, LEARNING_TIMER

# Episodes that the average return is of.
_EPISODES = 100
# Added to a seed for random numbers of their own: a generator seeded as the environments draws theirs.
FOR_ACTIONS, _EVALUATION = 1_000_003, 2_000_003


def train(context: RunContext) -> Outcome:
    """Train the run to its end. Raises :class:`BadConfigError`, and as :class:`RunContext`."""
    torch.set_num_threads(context.run.threads)
    run = context.run
    config, minutes = CONFIG.compose(run.overrides), minutes_of(run)
    require_fit(config)
    schedule = Schedule(
        frames=config.steps if minutes is None or "steps" in run.overrides else None,
        minutes=minutes,
        evaluation_interval=config.evaluation_interval,
        policy_interval=config.checkpoint_interval,
        loggers=config.loggers,
        project=config.project_name,
        config={**asdict(config), "seed": run.seed, "minutes": minutes},
        evaluation=UsualEvaluation(
            config.task.name, config.evaluation_episodes, config.evaluation_deterministic
        ),
    )
    return train_on_schedule(context, lambda: PpoLearner(config, run.seed), schedule)


def check(runs: Sequence[Run]) -> list[Problem]:
    """Return one problem per fault, each with the first run that has it."""
    return CONFIG.problems(runs, require_fit)


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
    """A network in training, its environments, and their random numbers."""

    def __init__(self, config: PpoConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self._environments = build(config.task, config.envs, seed, config.device)
        torch.manual_seed(seed)
        self._network = build_network(config, self._environments)
        self._update = PpoUpdate(config, self._network)
        self._random = torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
        self._seen = self._environments.reset()
        self._sums = EpisodeSums(self._environments, config.device)
        self._returns: deque[float] = deque(maxlen=_EPISODES)
        self._episodes = 0
        self.frames_per_iteration = config.envs * config.rollout_steps
        self.exactness = EXACT if config.device == "cpu" else NO_PROGRESS_LOST

    def iterate(self, done: float) -> dict[str, float]:
        """Collect a rollout and learn from it; as :class:`jobs.training.loop.Learner`."""
        if self._config.anneal_lr:
            self._update.set_lr(self._config.lr * (1 - done))
        rollout, self._seen, timers = collect(
            self._environments, self._network, self._seen, self._sums, self._config, self._random
        )
        losses, seconds = self._update(rollout, self._random)
        return {
            **self._episode_metrics(),
            **losses,
            **timers,
            COLLECTION_TIMER: sum(timers.values()),
            LEARNING_TIMER: seconds,
        }

    def evaluate(self) -> dict[str, float]:
        """Play episodes of the same seed each time; as :class:`jobs.training.loop.Learner`."""
        config, seed = self._config, self._seed + _EVALUATION
        environments = build(config.task, config.evaluation_episodes, seed, config.device)
        random = None
        if not config.evaluation_deterministic:
            random = torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
        played = play(environments, self._network, random)
        figures, baselines = played.means(), baselines_of(config.task, config.evaluation_episodes, seed)
        if baselines is not None:
            figures = baselines.with_gap(figures)
        return {
            RETURN: float(played.returns.mean()),
            "eval/length": float(played.lengths.mean()),
            **{f"eval/{name}": value for name, value in figures.items()},
        }

    def policy(self) -> dict[str, Any]:
        """Return the network's state."""
        return dict(self._network.state_dict())

    def learned(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        return dict(self._update.optimizer.state_dict())

    def running(self) -> dict[str, Any]:
        """Return the state of environments, episodes and random numbers."""
        return {
            "environments": self._environments.state_dict(),
            "seen": self._seen,
            "sums": self._sums.state_dict(),
            "random": self._random.get_state(),
            "returns": list(self._returns),
            "episodes": self._episodes,
        }

    def load(self, policy: Mapping[str, Any], learned: Mapping[str, Any]) -> None:
        """Restore :meth:`policy` and :meth:`learned`."""
        self._network.load_state_dict(policy)
        self._update.optimizer.load_state_dict(dict(learned))

    def resume(self, running: Mapping[str, Any]) -> None:
        """Restore :meth:`running`."""
        self._environments.load_state_dict(running["environments"])
        self._seen.copy_(running["seen"])
        self._sums.load_state_dict(running["sums"])
        self._random.set_state(running["random"].cpu())
        self._returns.extend(running["returns"])
        self._episodes = running["episodes"]

    def _episode_metrics(self) -> dict[str, float]:
        ended = self._sums.take()
        self._returns.extend(ended.returns.tolist())
        self._episodes += len(ended.returns)
        metrics = {"train/total_episodes": float(self._episodes)}
        if len(ended.returns):
            metrics["episode/reward"] = float(ended.returns.mean())
            metrics["episode/length"] = float(ended.lengths.mean())
            metrics |= ended.means()
        if self._returns:
            metrics["train/avg_reward_100ep"] = sum(self._returns) / len(self._returns)
        return metrics

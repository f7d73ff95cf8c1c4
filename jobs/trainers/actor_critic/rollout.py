"""Rollouts: what a policy plays between two updates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.trainers.actor_critic.playing import Episodes, EpisodeSums
from jobs.training.context import EXACT
from orchestrator.planning.throughput.measure import ENVIRONMENT_TIMER, INFERENCE_TIMER

# Added to a seed for random numbers of their own: a generator seeded as the environments draws theirs.
FOR_ACTIONS = 1_000_003


@dataclass
class Rollout:
    """T steps of R rows, a row for each environment and learner.

    ``seen`` (T, R, *S), ``actions`` (T, R, parts), ``logs``, ``values``, ``rewards`` (T, R). ``ended``
    (T, R): the episode ended in the step; ``after`` (T, R): the value of what was seen last in a truncated
    episode. ``last_values`` (R): of what is seen after the last step.
    """

    seen: Tensor
    actions: Tensor
    logs: Tensor
    values: Tensor
    rewards: Tensor
    ended: Tensor
    after: Tensor
    last_values: Tensor

    @classmethod
    def empty(cls, steps: int, seen: Tensor, parts: int) -> Self:
        """Return memory for so many steps, for observations as ``seen`` (R, *S), actions of so many parts."""
        size = steps, len(seen)
        return cls(
            seen=seen.new_empty(steps, *seen.shape),
            actions=seen.new_empty(*size, parts, dtype=torch.int64),
            ended=seen.new_empty(size, dtype=torch.bool),
            last_values=seen.new_empty(len(seen), dtype=torch.float32),
            **{
                name: seen.new_empty(size, dtype=torch.float32)
                for name in ("logs", "values", "rewards", "after")
            },
        )

    def of_rows(self, rows: Tensor) -> Rollout:
        """Return the steps of these rows, in their order."""
        held = {name: value.index_select(min(1, value.dim() - 1), rows) for name, value in vars(self).items()}
        return Rollout(**held)

    def between(self, rows: slice) -> Rollout:
        """Return the steps of a range of rows, without a copy."""
        held = {
            name: value[rows] if value.dim() == 1 else value[:, rows] for name, value in vars(self).items()
        }
        return Rollout(**held)


class Games:
    """The environments of a training, their random numbers, and the episodes that go on."""

    def __init__(self, config: ActorCriticConfig, seed: int) -> None:
        self._steps = config.rollout_steps
        self.environments = build(config.task, config.envs, seed, config.device)
        self.random = torch.Generator(config.device).manual_seed(seed + FOR_ACTIONS)
        self._seen = self.environments.reset()
        self._sums = EpisodeSums(self.environments, config.device)

    @property
    def exactness(self) -> str:
        """That of a training that goes on from their state."""
        return self.environments.exactness

    def collect(self, network: ActorCritic, into: Rollout | None = None) -> tuple[Rollout, dict[str, float]]:
        """Play a rollout; return it and the seconds spent, by timer. ``into``: one to overwrite."""
        clock, seen = _Clock(), self._seen
        rollout = into if into is not None else Rollout.empty(self._steps, seen, len(self.environments.parts))
        rollout.after.zero_()
        for number in range(self._steps):
            rollout.seen[number] = seen
            actions, rollout.logs[number], rollout.values[number] = network.act(seen, self.random)
            rollout.actions[number] = actions
            clock.add(INFERENCE_TIMER)
            step = self.environments.step(actions)
            rollout.rewards[number], rollout.ended[number] = step.rewards, step.terminated | step.truncated
            self._sums.add(step)
            clock.add(ENVIRONMENT_TIMER)
            if step.truncated.any():
                with torch.no_grad():
                    _, values = network(step.last())
                rollout.after[number] = torch.where(step.truncated, network.in_rewards(values), 0.0)
            seen = step.seen
        with torch.no_grad():
            _, values = network(seen)
        rollout.last_values.copy_(network.in_rewards(values))
        clock.add(INFERENCE_TIMER)
        self._seen = seen
        return rollout, clock.seconds

    def take_episodes(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        return self._sums.take()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of environments, episodes and random numbers."""
        return {
            "environments": self.environments.state_dict(),
            "seen": self._seen,
            "sums": self._sums.state_dict(),
            "random": self.random.get_state(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.environments.load_state_dict(saved["environments"])
        if self.environments.exactness == EXACT:
            self._seen.copy_(saved["seen"])
            self._sums.load_state_dict(saved["sums"])
        else:
            self._seen = self.environments.reset()
        self.random.set_state(saved["random"].cpu())


class _Clock:
    """Seconds by name, each since the call before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def add(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

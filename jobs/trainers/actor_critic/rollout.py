"""Rollouts: what a policy plays between two updates."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.interface import Environments
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.trainers.actor_critic.playing import EpisodeSums
from orchestrator.planning.throughput.measure import ENVIRONMENT_TIMER, INFERENCE_TIMER


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


def collect(
    environments: Environments,
    network: ActorCritic,
    seen: Tensor,
    sums: EpisodeSums,
    steps: int,
    generator: torch.Generator,
    into: Rollout | None = None,
) -> tuple[Rollout, Tensor, dict[str, float]]:
    """Play so many steps from ``seen``; return them, what is seen then, and the seconds spent.

    ``into``: a rollout of this size to overwrite.
    """
    clock = _Clock()
    rollout = into if into is not None else _empty(steps, seen, len(environments.parts))
    rollout.after.zero_()
    for number in range(steps):
        rollout.seen[number] = seen
        actions, rollout.logs[number], rollout.values[number] = network.act(seen, generator)
        rollout.actions[number] = actions
        clock.add(INFERENCE_TIMER)
        step = environments.step(actions)
        rollout.rewards[number], rollout.ended[number] = step.rewards, step.terminated | step.truncated
        sums.add(step)
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
    return rollout, seen, clock.seconds


def _empty(steps: int, seen: Tensor, parts: int) -> Rollout:
    size = steps, len(seen)
    return Rollout(
        seen=seen.new_empty(steps, *seen.shape),
        actions=seen.new_empty(*size, parts, dtype=torch.int64),
        ended=seen.new_empty(size, dtype=torch.bool),
        last_values=seen.new_empty(len(seen), dtype=torch.float32),
        **{
            name: seen.new_empty(size, dtype=torch.float32) for name in ("logs", "values", "rewards", "after")
        },
    )


class _Clock:
    """Seconds by name, each since the call before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def add(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

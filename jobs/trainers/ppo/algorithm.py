"""Proximal policy optimization: collect with the present policy, then improve it on what was collected.

The clipped objective and generalized advantage estimation are those of Schulman et al., 2017
(arXiv:1707.06347) and 2016 (arXiv:1506.02438). A truncated episode counts on the value of what was seen last.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.trainers.ppo.config import PpoConfig
from jobs.trainers.ppo.interface import Environments
from jobs.trainers.ppo.networks import ActorCritic
from jobs.trainers.ppo.playing import EpisodeSums


@dataclass
class Rollout:
    """T steps of R rows, a row for each environment and learner.

    ``seen`` (T, R, W), ``actions`` (T, R, parts), ``logs``, ``values``, ``rewards`` (T, R); ``ended`` (T, R):
    the episode ended in the step; ``after`` (T, R): the value of what was seen last in a truncated episode.
    ``last_values`` (R): of what is seen after the last step.
    """

    seen: Tensor
    actions: Tensor
    logs: Tensor
    values: Tensor
    rewards: Tensor
    ended: Tensor
    after: Tensor
    last_values: Tensor


def collect(
    environments: Environments,
    network: ActorCritic,
    seen: Tensor,
    sums: EpisodeSums,
    config: PpoConfig,
    generator: torch.Generator,
) -> tuple[Rollout, Tensor, dict[str, float]]:
    """Play the steps of a rollout from ``seen``; return them, what is seen then, and the seconds spent."""
    rows, steps, clock = len(seen), config.rollout_steps, _Clock()
    empty = torch.zeros(steps, rows, device=seen.device)
    rollout = Rollout(
        seen=empty.new_empty(steps, rows, environments.width),
        actions=empty.new_empty(steps, rows, len(environments.parts), dtype=torch.int64),
        logs=empty,
        values=empty.clone(),
        rewards=empty.clone(),
        ended=empty.bool(),
        after=empty.clone(),
        last_values=empty[0],
    )
    for number in range(steps):
        rollout.seen[number] = seen
        actions, rollout.logs[number], rollout.values[number] = network.act(seen, generator)
        rollout.actions[number] = actions
        clock.add("timers/inference_time")
        step = environments.step(actions)
        rollout.rewards[number], rollout.ended[number] = step.rewards, step.terminated | step.truncated
        sums.add(step)
        clock.add("timers/environment_time")
        if step.truncated.any():
            with torch.no_grad():
                _, values = network(step.last())
            rollout.after[number] = torch.where(step.truncated, network.in_rewards(values), 0.0)
        seen = step.seen
    with torch.no_grad():
        _, values = network(seen)
    rollout.last_values = network.in_rewards(values)
    clock.add("timers/inference_time")
    return rollout, seen, clock.seconds


def advantages(rollout: Rollout, discount: float, trace: float) -> Tensor:
    """Return generalized advantage estimates (T, R)."""
    found = torch.empty_like(rollout.rewards)
    following, carried = rollout.last_values, torch.zeros_like(rollout.last_values)
    lasts = (~rollout.ended).to(found.dtype)
    for number in reversed(range(len(found))):
        beyond = following * lasts[number] + rollout.after[number]
        delta = rollout.rewards[number] + discount * beyond - rollout.values[number]
        carried = delta + discount * trace * lasts[number] * carried
        found[number], following = carried, rollout.values[number]
    return found


class PpoUpdate:
    """The update of a network by its rollouts."""

    def __init__(self, config: PpoConfig, network: ActorCritic) -> None:
        self._config, self._network = config, network
        self._parameters = list(network.parameters())
        # Of the losses of a step in the objective; the last two are only shown.
        self._weights = torch.tensor(
            [1.0, config.value_weight, -config.entropy_weight, 0.0, 0.0], device=config.device
        )
        self.optimizer = torch.optim.Adam(self._parameters, lr=config.lr, eps=1e-5, fused=True)

    def set_lr(self, lr: float) -> None:
        """Learn at this rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def __call__(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """Improve the network; return the means of its losses."""
        config, network = self._config, self._network
        gained = advantages(rollout, config.discount, config.gae_lambda)
        returns = (gained + rollout.values).flatten()
        seen, actions = rollout.seen.flatten(0, 1), rollout.actions.flatten(0, 1)
        network.returns.update(returns[:, None])
        targets, logs, gained = network.normalized_returns(returns), rollout.logs.flatten(), gained.flatten()
        gained = (gained - gained.mean()) / (gained.std() + 1e-8)
        rows = (network.normalized(seen), actions, logs, gained, targets)
        total, steps = torch.zeros(5, device=seen.device), 0
        for _ in range(config.epochs):
            order = torch.randperm(len(seen), generator=generator, device=generator.device).to(seen.device)
            for batch in order.split(config.batch_size):
                # Rows chosen by index_select are copied whole: a third of the time of [batch].
                total += self._step(*(one.index_select(0, batch) for one in rows))
                steps += 1
        network.seen.update(seen)  # from now on: the rollout was played by the moments before
        names = ("loss/policy", "loss/value", "loss/entropy", "train/approx_kl", "train/clip_fraction")
        return dict(zip(names, (total / steps).tolist(), strict=True))

    def _step(self, inputs: Tensor, actions: Tensor, logs: Tensor, gained: Tensor, targets: Tensor) -> Tensor:
        config = self._config
        logits, values = self._network.of_normalized(inputs)
        now, entropy = self._network.log_probabilities(logits, actions)
        change = now - logs
        ratio = change.exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        each = (
            -torch.minimum(ratio * gained, clipped * gained),
            (values - targets).square(),
            entropy,
            (ratio - 1 - change).detach(),
            (ratio - clipped).detach().ne(0).to(ratio.dtype),
        )
        losses = torch.stack(each).mean(1)
        self.optimizer.zero_grad(set_to_none=True)
        (losses @ self._weights).backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, config.max_gradient_norm)
        self.optimizer.step()
        return losses.detach()


class _Clock:
    """Seconds by name, each since the call before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def add(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

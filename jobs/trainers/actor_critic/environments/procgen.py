"""Procgen's games side by side, in one process.

A game has no state that can be saved. What decides it is its environment's seed, the number of episodes
since, and the actions of the open one: a replay of these restores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.interface import Step
from jobs.trainers.actor_critic.environments.keys import ProcgenConfig
from jobs.training.config_errors import unexpected
from jobs.training.context import EXACT
from jobs.training.games.procgen import EASY, HARD, make_pool
from jobs.training.records.video import Frame

# Levels are numbers from 0 to this.
_LEVELS = 2**31 - 1
# Pixels of a film, across and down, for each of a picture.
_FILM_SCALE = 7


class Procgen:
    """Environments of one game, each with random numbers of its own, all decided by the seed."""

    exactness = EXACT
    learners = 1
    parts = (15,)
    shape = (64, 64, 3)

    def __init__(self, config: ProcgenConfig, envs: int, seed: int, device: str) -> None:
        _require_sense(config)
        self.envs, self._name, self._device = envs, config.name, device
        # The first of them are the same for any number of environments.
        seeds = np.random.SeedSequence(seed).generate_state(envs) >> 1
        game = config.name.partition("/")[2]
        levels = config.num_levels, config.start_level
        self._pool = make_pool(game, config.mode, seeds.tolist(), *levels, torch.get_num_threads())
        self._episodes = np.zeros(envs, np.int64)
        self._actions: list[list[int]] = [[] for _ in range(envs)]
        self._seen = np.zeros((envs, *self.shape), np.uint8)
        self._show: Callable[[Frame], None] | None = None

    def film(self, show: Callable[[Frame], None]) -> None:
        self._show = show

    def reset(self) -> Tensor:
        self._begin(range(self.envs))
        self._film(self._seen)
        return self._tensor(self._seen)

    def step(self, actions: Tensor) -> Step:
        played = actions[:, 0].cpu().numpy().astype(np.int32)
        last, rewards, terminated, truncated, _ = self._pool.step(played)
        for history, action in zip(self._actions, played.tolist(), strict=True):
            history.append(action)
        self._seen = last
        self._film(last)
        if over := np.flatnonzero(terminated | truncated).tolist():
            self._seen = last.copy()
            self._begin(over)
        return Step(
            self._tensor(self._seen),
            lambda: self._tensor(last),
            self._tensor(rewards.astype(np.float32)),
            self._tensor(terminated),
            self._tensor(truncated & ~terminated),
        )

    def measures(self) -> Tensor:
        return torch.zeros(0, self.envs, device=self._device)

    def figures(self, sums: Tensor, steps: float) -> dict[str, float]:  # noqa: ARG002 (there are none)
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {
            "episodes": torch.from_numpy(self._episodes.copy()),
            "actions": [torch.tensor(actions, dtype=torch.uint8) for actions in self._actions],
            "seen": self._digest(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Replay all episodes' beginnings, and the open ones, in new environments.

        Raises ``ValueError`` if they do not lead to where they ended.
        """
        episodes = saved["episodes"].numpy()
        while (behind := np.flatnonzero(self._episodes < episodes)).size:
            self._begin(behind.tolist())
        histories = [actions.tolist() for actions in saved["actions"]]
        for number in range(max(map(len, histories))):
            ids = [one for one, history in enumerate(histories) if len(history) > number]
            played = np.array([histories[one][number] for one in ids], np.int32)
            self._seen[ids] = self._pool.step(played, np.array(ids, np.int32))[0]
        self._actions = histories
        if (self._episodes != episodes).any() or self._digest() != saved["seen"]:
            raise ValueError(f"a replay of {self._name} leads elsewhere")

    def close(self) -> None:
        """They hold memory alone."""

    def _film(self, seen: Frame) -> None:
        if self._show is not None and self._episodes[0] == 1:
            self._show(seen[0].repeat(_FILM_SCALE, 0).repeat(_FILM_SCALE, 1))

    def _begin(self, environments: Sequence[int]) -> None:
        """Begin episodes of these environments."""
        ids = np.array(environments, np.int32)
        self._seen[ids] = self._pool.reset(ids)[0]
        self._episodes[ids] += 1
        for number in environments:
            self._actions[number] = []

    def _digest(self) -> str:
        return hashlib.sha256(self._seen.tobytes()).hexdigest()

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self._device)


def _require_sense(config: ProcgenConfig) -> None:
    """Refuse modes and levels that do not exist. Raises :class:`RefusedKeyError`."""
    if config.mode not in (EASY, HARD):
        raise unexpected("task.mode", repr(config.mode), f"{EASY} or {HARD}")
    for kind in ("", "test_"):
        number, first = f"task.{kind}num_levels", f"task.{kind}start_level"
        levels, start = getattr(config, f"{kind}num_levels"), getattr(config, f"{kind}start_level")
        if levels < 0:
            raise unexpected(number, levels, "0, for all levels, or more")
        if start < 0:
            raise unexpected(first, start, "0 or more")
        if levels == 0 and start:
            hint = f"set {number}, or leave out {first}"
            raise unexpected(first, start, f"none beside {number}: 0, which is all levels", hint=hint)
        if start + levels > _LEVELS:
            raise unexpected(number, levels, f"no more than there are from {first} on: {_LEVELS - start:_}")

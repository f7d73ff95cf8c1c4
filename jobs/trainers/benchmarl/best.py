"""The best policy of a training so far: a copy on the CPU, taken when its evaluation is logged."""

from __future__ import annotations

import math
from typing import Any

import torch

from jobs.trainers.benchmarl.tensors import Plain
from orchestrator.rundir import Row

# The mean over episodes of the mean over groups of agents, as BenchMARL logs it when it evaluates.
_RETURN = "eval/reward/episode_reward_mean"


class BestPolicy:
    """The first policy whose evaluation had a return that no evaluation before had.

    ``policy``: its state, ``None`` before the first evaluation. ``frames``: how many it was trained for.
    ``since``: evaluations up to these frames are not counted, because the checkpoint resumed from was written
    by code that kept no best policy; 0 where all are.
    """

    def __init__(self) -> None:
        self.policy: dict[str, Any] | None = None
        self.frames = 0
        self.value = -math.inf
        self.since = 0

    def consider(self, row: Row, policy: torch.nn.Module) -> None:
        """The policy as it is after the iteration that ``row`` tells of. Draws no numbers."""
        value = row.metrics.get(_RETURN)
        if value is not None and value > self.value:
            self.value, self.frames = value, row.frames
            self.policy = {name: _copied(item) for name, item in policy.state_dict().items()}

    def save(self) -> Plain:
        return {"policy": self.policy, "frames": self.frames, "value": self.value, "since": self.since}

    def load(self, saved: Plain) -> None:
        self.policy, self.frames = saved["policy"], saved["frames"]
        self.value, self.since = saved["value"], saved["since"]


def _copied(item: Any) -> Any:
    return item.detach().to("cpu", copy=True) if isinstance(item, torch.Tensor) else item

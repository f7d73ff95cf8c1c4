"""The best policy of a training so far: a copy on the CPU, made when its evaluation is logged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from orchestrator.config.returns import EVALUATION_RETURN
from orchestrator.rundir import Row


class BestPolicy:
    """The first policy with the highest evaluation return so far.

    ``policy``: its state, ``None`` before the first evaluation. ``frames``: its training. ``since``:
    evaluations up to these frames do not count, because the checkpoint resumed from was written by code that
    kept no best policy; 0 where all count.
    """

    def __init__(self) -> None:
        self.policy: dict[str, Any] | None = None
        self.frames = 0
        self.value = -math.inf
        self.since = 0

    def consider(self, row: Row, state: Callable[[], Mapping[str, Any]]) -> None:
        """Copy the policy's state if the evaluation in ``row`` is the best. Draws no random numbers."""
        value = row.metrics.get(EVALUATION_RETURN)
        if value is not None and value > self.value:
            self.value, self.frames = value, row.frames
            self.policy = {name: _copied(item) for name, item in state().items()}

    def save(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"policy": self.policy, "frames": self.frames, "value": self.value, "since": self.since}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.policy, self.frames = saved["policy"], saved["frames"]
        self.value, self.since = saved["value"], saved["since"]


def _copied(item: Any) -> Any:
    return item.detach().to("cpu", copy=True) if isinstance(item, torch.Tensor) else item

"""The best policy of a training so far: a copy on the CPU, made when its evaluation is logged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from orchestrator.config.returns import EVALUATION_RETURN
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import Row


class BestPolicy:
    """The first policy with the highest evaluation return so far.

    ``policy``: its state, ``None`` before the first evaluation. ``frames``: its training.
    """

    def __init__(self) -> None:
        self.policy: dict[str, Any] | None = None
        self.frames = 0
        self.value = -math.inf

    def consider(self, row: Row, state: Callable[[], Mapping[str, Any]]) -> None:
        """Copy the policy's state if the evaluation in ``row`` is the best. Draws no random numbers."""
        value = row.metrics.get(EVALUATION_RETURN)
        if value is not None and value > self.value:
            self.value, self.frames = value, row.frames
            self.policy = {name: _copied(item) for name, item in state().items()}

    def save(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"policy": self.policy, "frames": self.frames, "value": self.value}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.policy, self.frames, self.value = saved["policy"], saved["frames"], saved["value"]


def policy_in(payload: Mapping[str, Any], *, best: bool) -> tuple[Mapping[str, Any], int]:
    """Return the policy in a checkpoint, the newest or the best so far, and the frames of its training.

    Raises :class:`OrchestrateError` if no policy is the best.
    """
    if not best:
        return payload["policy"], payload["counters"]["total_frames"]
    if payload["best"]["policy"] is None:
        raise OrchestrateError(
            "not evaluated in training, so that no policy is the best",
            hint="evaluate the newest: without --best",
        )
    return payload["best"]["policy"], payload["best"]["frames"]


def _copied(item: Any) -> Any:
    return item.detach().to("cpu", copy=True) if isinstance(item, torch.Tensor) else item

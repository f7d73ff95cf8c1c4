"""How an attempt ended: the record in its folder."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.types import Int64, Reason, RunState


@dataclass(frozen=True)
class End:
    """How an attempt ended. ``frames``: recorded; ``checkpointed``: in the last checkpoint of its own.

    ``counts``: whether it counts as an attempt in vain without a new checkpoint; ``None``: by its reason.
    """

    outcome: RunState
    reason: Reason | None = None
    message: str = ""
    frames: Int64 | None = None
    checkpointed: Int64 | None = None
    counts: bool | None = None

    @property
    def why(self) -> str:
        """Reason and message as one line; empty without a problem."""
        return ": ".join(part for part in (self.reason and self.reason.value, self.message) if part)

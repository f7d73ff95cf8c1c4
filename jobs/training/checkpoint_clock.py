"""When a checkpoint is due."""

from __future__ import annotations

import time

# A checkpoint is due when training has run this many times as long as the last one took to write: below 2 %.
_TIME_PER_COST = 50
# What the first one is expected to take, in seconds.
_FIRST_COST = 0.1


class CheckpointClock:
    """When a checkpoint is due: every ``interval`` frames, or for 0 as often as its cost allows."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._cost = _FIRST_COST
        self._last_time, self._last_frames = time.monotonic(), 0

    def start(self, frames: int) -> None:
        """Count from now and from these frames."""
        self._last_time, self._last_frames = time.monotonic(), frames

    def due(self, frames: int) -> bool:
        """Whether a checkpoint is due at these frames."""
        if self._interval > 0:
            return frames // self._interval > self._last_frames // self._interval
        return time.monotonic() - self._last_time >= _TIME_PER_COST * self._cost

    def written(self, frames: int, cost: float) -> None:
        """Note a checkpoint and its cost in seconds."""
        self._cost = cost
        self.start(frames)

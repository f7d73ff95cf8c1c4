"""A run's signs of life: its own process gives them, its keeper looks for them."""

from __future__ import annotations

import mmap
import time

_LIMIT, _MARK, _SILENT = range(3)


def shared_numbers(count: int) -> memoryview[float]:
    """Return so many numbers, 0 at first, in memory shared with processes forked later."""
    return memoryview(mmap.mmap(-1, 8 * count)).cast("d")


class Life:
    """When the run's process last recorded something, in memory shared with processes forked later.

    The run's own process calls :meth:`expect` and :meth:`mark`, its keeper :meth:`end`.
    """

    def __init__(self) -> None:
        self._shared = shared_numbers(3)

    def expect(self, seconds: float) -> None:
        """Have the keeper end the run after so many seconds without a sign of life."""
        self._shared[_LIMIT] = seconds

    def mark(self) -> None:
        """Give a sign of life."""
        self._shared[_MARK] = time.monotonic()

    def end(self) -> None:
        """Note that the run gave none for too long."""
        self._shared[_SILENT] = self.limit

    @property
    def limit(self) -> float:
        """The seconds after which a silent run is ended; 0 for never."""
        return self._shared[_LIMIT]

    @property
    def marked(self) -> float:
        """The time of the last sign of life, in monotonic seconds."""
        return self._shared[_MARK]

    @property
    def ended_after(self) -> float:
        """The seconds of silence for which the keeper ended the run; 0 if it did not."""
        return self._shared[_SILENT]

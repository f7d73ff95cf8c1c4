"""A run's signs of life: its own process gives them, its keeper looks for them."""

from __future__ import annotations

import mmap
import struct
import time

_LIMIT_AT, _MARK_AT, _SILENT_AT, _BYTES = 0, 8, 16, 24


class Life:
    """When the run's process last recorded something, in memory shared with processes forked later.

    The run's own process calls :meth:`expect` and :meth:`mark`, its keeper :meth:`end`.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _BYTES)

    def expect(self, seconds: float) -> None:
        """Have the keeper end the run after so many seconds without a sign of life."""
        self._write(_LIMIT_AT, seconds)

    def mark(self) -> None:
        """Give a sign of life."""
        self._write(_MARK_AT, time.monotonic())

    def end(self) -> None:
        """Note that the run gave none for too long."""
        self._write(_SILENT_AT, self.limit)

    @property
    def limit(self) -> float:
        """The seconds after which a silent run is ended; 0 for never."""
        return self._read(_LIMIT_AT)

    @property
    def marked(self) -> float:
        """The time of the last sign of life, in monotonic seconds."""
        return self._read(_MARK_AT)

    @property
    def ended_after(self) -> float:
        """The seconds of silence for which the keeper ended the run; 0 if it did not."""
        return self._read(_SILENT_AT)

    def _read(self, place: int) -> float:
        return float(struct.unpack_from("d", self._shared, place)[0])

    def _write(self, place: int, number: float) -> None:
        struct.pack_into("d", self._shared, place, number)

"""Refresh a value repeatedly in a thread of its own, so that no screen waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Seen = TypeVar("_Seen")

# Rest after each refresh: this many times its duration, at least a second, as the machine is for training.
_REST = 4
_REFRESH_S = 1.0


class Refresher(Generic[_Seen]):
    """Call ``look`` repeatedly, never twice at once, and ``show`` with each result, in the refreshing thread.

    The thread is never waited for: a ``look`` that hangs, as on a file system that does not answer, does not
    keep the screen from closing.
    """

    def __init__(self, look: Callable[[], _Seen], show: Callable[[_Seen], object]) -> None:
        self._look, self._show = look, show
        self._again = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def now(self) -> None:
        """Refresh again as soon as the present refresh is over."""
        self._again.set()

    def stop(self) -> None:
        """Stop showing results."""
        self._stopped = True
        self._again.set()

    def _work(self) -> None:
        while not self._stopped:
            self._again.clear()
            began = time.monotonic()
            seen = self._look()
            rest = max(_REFRESH_S, _REST * (time.monotonic() - began))
            if not self._stopped:
                self._show(seen)
            self._again.wait(rest)

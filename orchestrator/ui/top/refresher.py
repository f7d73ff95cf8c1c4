"""Looking again and again in a thread of its own, so that no screen waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Seen = TypeVar("_Seen")

# After a look, rest this many times as long, and no less than a second: the machine is for training.
_REST = 4
_REFRESH_S = 1.0


class Refresher(Generic[_Seen]):
    """One look after another, never two at once; ``show`` is called with each in the watching thread.

    The thread is never waited for: a look that hangs, as on a file system that does not answer, keeps nobody
    from leaving.
    """

    def __init__(self, look: Callable[[], _Seen], show: Callable[[_Seen], object]) -> None:
        self._look, self._show = look, show
        self._again = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def now(self) -> None:
        """Look as soon as the look that is under way is over."""
        self._again.set()

    def stop(self) -> None:
        """Show nothing any more."""
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

"""Notify the user of slow operations."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SlowLog:
    """Logs operations that take longer than ``after`` seconds: once per series of slow ones of a kind."""

    def __init__(self, log: logging.Logger, after: float) -> None:
        self._log, self._after = log, after
        self._slow: set[str] = set()

    @contextmanager
    def watch(self, kind: str, text: str) -> Iterator[None]:
        """Log ``text`` while the body is slow, unless the last operation of this kind was slow, too."""
        slow = threading.Event()

        def notify() -> None:
            slow.set()
            if kind not in self._slow:
                self._log.warning(text)

        timer = threading.Timer(self._after, notify)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        (self._slow.add if slow.is_set() else self._slow.discard)(kind)

"""Saying what a person waits for, where an answer takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What takes longer is said, for a person waits.
_SILENT_S = 1.2


@contextmanager
def said_when_silent(text: str, tell: Callable[[str], None], after: float = _SILENT_S) -> Iterator[None]:
    """Tell ``text`` if what is done meanwhile takes longer than ``after`` seconds."""
    timer = threading.Timer(after, tell, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

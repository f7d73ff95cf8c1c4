"""Report the steps of long work to a listener, such as a terminal. Without one, reports go nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Item = TypeVar("_Item")
# Takes a step, and how much of it is done of how many; of 0 where that is unknown.
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the reports of this block to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_step(step: str, done: int = 0, total: int = 0) -> None:
    """Report the step that begins, or how much of it is done."""
    if (listener := _listener.get()) is not None:
        listener(step, done, total)


def counted(items: Iterable[_Item], step: str, total: int, done: int = 0) -> Iterator[_Item]:
    """Iterate over the last of ``total`` items, after so many, and report how many are done."""
    for number, item in enumerate(items, done):
        report_step(step, number, total)
        yield item

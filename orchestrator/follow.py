"""Staying with a sweep until nothing is left: look, rest, replace workers that were lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator import control
from orchestrator.backends.base import Backend
from orchestrator.plan import Capacity
from orchestrator.rundir import SweepDir
from orchestrator.state import Survey
from orchestrator.types import Sweep

# How often a lost worker is replaced without any run having advanced in between.
_REPLACEMENTS = 3
_REFRESH_S = 0.5
# Following is to cost the training nothing: after a look, rest this many times as long.
_REST = 20


def follow(
    sweep: Sweep,
    sweep_dir: SweepDir,
    backend: Backend,
    capacity: Capacity,
    *,
    slots: int | None = None,
) -> Iterator[Survey]:
    """The sweep's state again and again, until nothing works on it any more.

    A worker that died is replaced. One that left for a reason, or because somebody asked, is not.
    """
    tries, before = 0, -1
    while True:
        began = time.monotonic()
        seen = control.look(sweep_dir, backend)
        yield seen
        if seen.active:
            time.sleep(max(_REFRESH_S, _REST * (time.monotonic() - began)))
            continue
        advanced = sum((status.frames or 0) + status.attempt for status in seen.statuses.values())
        tries = tries + 1 if advanced == before else 0
        before = advanced
        if tries >= _REPLACEMENTS or not seen.left or last_words(sweep_dir):
            return
        control.submit_sweep(sweep, sweep_dir, backend, capacity, slots=slots)


def stop(sweep_dir: SweepDir, backend: Backend) -> None:
    """Ask the sweep's workers to save and leave, and wait until they have."""
    control.stop_workers(sweep_dir, backend)
    while control.look(sweep_dir, backend).active:
        time.sleep(_REFRESH_S / 5)


def last_words(sweep_dir: SweepDir) -> str | None:
    """Why the newest worker left; ``None`` if it died without a word."""
    logs = [log for log in sweep_dir.read_journals() if log.holder is not None]
    return str(logs[-1].events[-1].data.get("why")) if logs and logs[-1].exited else None

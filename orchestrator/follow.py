"""Staying with a sweep until nothing is left: look, rest, replace workers that were lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator import control
from orchestrator.backends.base import Backend
from orchestrator.evidence import proved_ended
from orchestrator.plan import Capacity
from orchestrator.rundir import SweepDir
from orchestrator.state import Survey
from orchestrator.types import Sweep

# How often a lost worker is replaced without any run having advanced in between.
_REPLACEMENTS = 3
_REFRESH_S = 0.5
# How often runs of a worker that cannot be asked from here are looked at again.
_PATIENCE_S = 5.0
# Workers kill what does not leave within its grace, half a minute; then something holds them up.
_STOP_PATIENCE_S = 60.0
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
        seen = control.look(sweep_dir, backend, control.rows_of(sweep, sweep_dir))
        yield seen
        if seen.active:
            time.sleep(max(_REFRESH_S, _REST * (time.monotonic() - began)))
            continue
        if seen.unknown and not any(proved_ended(sweep_dir.run(run_id)) for run_id in seen.unknown):
            time.sleep(_PATIENCE_S)  # a worker elsewhere has them, until its claims run out
            continue
        advanced = sum((status.frames or 0) + status.attempt for status in seen.statuses.values())
        tries = tries + 1 if advanced == before else 0
        before = advanced
        idle = not seen.left and not seen.unknown
        if idle or tries >= _REPLACEMENTS or why_left(sweep_dir, seen):
            return
        control.submit_sweep(sweep, sweep_dir, backend, capacity, slots=slots, define=False)


def stop(sweep_dir: SweepDir, backend: Backend) -> bool:
    """Ask the sweep's workers to save and leave, and wait until they have; ``False`` if they do not."""
    control.stop_workers(sweep_dir, backend)
    deadline = time.monotonic() + _STOP_PATIENCE_S
    while control.look(sweep_dir, backend).active:
        if time.monotonic() > deadline:
            return False
        time.sleep(_REFRESH_S / 5)
    return True


def why_left(sweep_dir: SweepDir, seen: Survey) -> str | None:
    """Why runs are left, in the words of a worker that had to do them and was asked, or forced, to leave.

    ``None`` if theirs died, or never began.
    """
    logs = {log.token: log for log in sweep_dir.read_journals()}
    tokens: dict[str, str] = {}
    for entry in sweep_dir.read_ledger():
        for job in entry.data["jobs"] if entry.kind == "submission" else ():
            tokens |= dict.fromkeys(job["run_ids"], job["token"])
    for run_id in seen.left:
        log = logs.get(tokens.get(run_id, ""))
        if log is not None and log.exited and log.events[-1].data.get("asked", True):
            return str(log.events[-1].data.get("why", "its submission was given up"))
    return None

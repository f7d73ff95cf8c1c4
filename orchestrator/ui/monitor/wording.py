"""Describe a snapshot as lines of text; the command line draws them. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum

from orchestrator.core.formatting import duration, moment, number
from orchestrator.core.types import RunState
from orchestrator.ui.monitor.connection import ConnectionState
from orchestrator.ui.monitor.snapshot import (
    Disk,
    Gpu,
    MachineLoad,
    MonitoredRun,
    MonitoredSweep,
    MonitorSnapshot,
    TensorBoardState,
)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Shares of a file system from which it is nearly full, and full.
_CLOSE, _FULL = 0.9, 0.97
_MOST_HOSTS = 3


class Level(Enum):
    """Urgency of a line, with its style."""

    FINE = ""
    CLOSE = "yellow"
    BAD = "bold red"


def link_line(seen: ConnectionState, now: float) -> tuple[str, Level]:
    """Return the age of what is shown. ``now`` is seconds since the epoch, here."""
    if seen.problem is None:
        return f"looked {time.strftime('%H:%M:%S', time.localtime(seen.heard))}", Level.FINE
    return f"unknown since {moment(seen.heard, now)}", Level.CLOSE


def board_line(board: TensorBoardState, url: str | None) -> tuple[str, Level]:
    """Return where TensorBoard is reached, or why it is not."""
    if board.state == "serving" and url is not None:
        return url if board.ours else f"{url} (was running there already)", Level.FINE
    if board.state == "absent":
        return "not installed there; the fix: python3 -m pip install tensorboard", Level.CLOSE
    if board.state == "failed":
        return f"ended there: {board.message or 'without a message'}", Level.CLOSE
    waits = "starts" if board.state == "starting" else "waits for the first run that logs to it"
    return waits, Level.FINE


def machine_line(machine: MachineLoad) -> str:
    """Return the load of processor and memory."""
    parts = []
    if machine.cpu is not None and machine.cores is not None:
        parts.append(f"cpu {machine.cpu:.0f}% of {machine.cores:.0f} cores")
    if machine.load is not None:
        parts.append(f"load {number(machine.load)}")
    if machine.memory_total is not None and machine.memory_free is not None:
        parts.append(f"memory {part(machine.memory_total - machine.memory_free, machine.memory_total)}")
    return "  ".join(parts) or "reports nothing about itself"


def elsewhere(snapshot: MonitorSnapshot) -> str | None:
    """Return a warning if runs are on other machines than the figures shown."""
    hosts = sorted(
        {run.host for run in snapshot.runs if run.state is RunState.RUNNING and run.host} - {snapshot.host}
    )
    if not hosts:
        return None
    others = " and others" if len(hosts) > _MOST_HOSTS else ""
    return f"its own figures: runs are on {', '.join(hosts[:_MOST_HOSTS])}{others}"


def gpu_line(gpu: Gpu) -> str:
    """Return a GPU's utilisation and memory."""
    busy = "busy: unknown" if gpu.busy is None else f"{gpu.busy:3.0f}%"
    if gpu.memory is None or gpu.memory_total is None:
        return f"{busy}  {gpu.name}"
    return f"{busy}  memory {part(gpu.memory, gpu.memory_total)}  {gpu.name}"


def disk_line(disk: Disk) -> tuple[str, Level]:
    """Return the use of the file system and of the user's quota on it, if there is one."""
    used = disk.total - disk.free
    parts, shares = [f"{part(used, disk.total)} used"], [_share(used, disk.total)]
    files_used = _share(disk.files - disk.files_free, disk.files)
    shares.append(files_used)
    if files_used >= _CLOSE:
        parts.append(f"{files_used:.0%} of its files")
    if disk.quota is not None and disk.quota.limit is not None:
        parts.append(f"quota {part(disk.quota.used, disk.quota.limit)}")
        shares.append(_share(disk.quota.used, disk.quota.limit))
    if disk.quota is not None and disk.quota.files_limit is not None:
        parts.append(f"{disk.quota.files:,.0f} of {disk.quota.files_limit:,.0f} files")
        shares.append(_share(disk.quota.files, disk.quota.files_limit))
    return "  ".join(parts), _level(max(shares))


def sweep_line(sweep: MonitoredSweep) -> str:
    """Return a sweep's runs by state, its time to go and its speed."""
    skipped = sweep.counts.get(RunState.SKIPPED, 0)
    parts = [f"{sweep.counts.get(RunState.DONE, 0)}/{sum(sweep.counts.values()) - skipped} done"]
    # The scheduler is not queried: whether a job waits is not visible from here.
    waiting = sum(sweep.counts.get(state, 0) for state in (RunState.PENDING, RunState.QUEUED))
    for state, count in sweep.counts.items():
        if state not in (RunState.DONE, RunState.PENDING, RunState.QUEUED):
            parts.append(f"{count} {state.value}")
    if waiting:
        parts.append(f"{waiting} not begun")
    if sweep.eta is not None and RunState.RUNNING in sweep.counts:
        parts.append(f"ETA {duration(sweep.eta)}")
    if sweep.end_to_end_fps:
        parts.append(f"{number(sweep.end_to_end_fps)} e2e fps")
    return "  ".join((*parts, *sweep.notes))


def frames(run: MonitoredRun, *, short: bool = False) -> str:
    """Return a run's frames, as a share of the total where that is known."""
    if run.frames is None:
        return ""
    if not run.total:
        return f"{run.frames:,.0f}"
    share = f"{100 * run.frames // run.total:.0f}%"
    return share if short else f"{share} of {run.total:,.0f}"


def checkpoint(run: MonitoredRun, now: float, *, short: bool = False) -> str:
    """Return frames and age of the newest checkpoint; ``now`` is the clock of the machine that has it."""
    if run.checkpoint_frames is None or run.checkpoint_time is None:
        return ""
    ago = f"{age(now - run.checkpoint_time)} ago"
    return ago if short else f"{run.checkpoint_frames:,.0f}, {ago}"


def failures(runs: Iterable[MonitoredRun]) -> list[str]:
    """Return the reasons of failed runs, each once."""
    by_reason: dict[str, list[MonitoredRun]] = {}
    for run in runs:
        if run.state is RunState.FAILED and run.why:
            by_reason.setdefault(run.why, []).append(run)
    return [
        f"failed {same[0].run_id[:8]}{' and others' if len(same) > 1 else ''}: {why}"
        for why, same in by_reason.items()
    ]


def in_order(sweeps: Iterable[MonitoredSweep]) -> list[MonitoredSweep]:
    """Sort sweeps: those at work first, then the others, each by their latest report."""
    return sorted(sweeps, key=lambda sweep: (RunState.RUNNING not in sweep.counts, -sweep.since))


def age(seconds: float) -> str:
    """Format a time in its largest unit: ``40 s``, ``12 min``, ``3 h``, ``5 d``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def part(some: float, of: float) -> str:
    """Format a share in the unit of the whole: ``34 of 141 GiB``."""
    power = 0
    while of >= 1024 and power < len(_UNITS) - 1:
        some, of, power = some / 1024, of / 1024, power + 1
    digits = 0 if of >= 100 else 1
    return f"{max(some, 0):.{digits}f} of {of:.{digits}f} {_UNITS[power]}"


def _share(some: float, of: float) -> float:
    return some / of if of > 0 else 0.0


def _level(share: float) -> Level:
    return Level.BAD if share >= _FULL else Level.CLOSE if share >= _CLOSE else Level.FINE

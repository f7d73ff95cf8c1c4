"""A snapshot of a machine and its results: what the probe sends, as JSON of these types. Pure.

The probe's answer is not trusted: another shape than expected is refused, and texts keep no character that a
terminal would obey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from orchestrator.core.formatting import printable
from orchestrator.core.records import parse
from orchestrator.core.types import RunState

_LONGEST_TEXT = 400
_MOST = 1000


class DamagedSnapshotError(ValueError):
    """An answer that no probe gives."""


@dataclass(frozen=True)
class Gpu:
    """Utilisation in percent, memory in bytes; ``None`` where the driver does not report it."""

    index: str
    name: str
    busy: float | None
    memory: float | None
    memory_total: float | None


@dataclass(frozen=True)
class Quota:
    """A user's use and limits on a file system, in bytes and files; ``None`` is no limit."""

    used: float
    limit: float | None
    files: float
    files_limit: float | None


@dataclass(frozen=True)
class Disk:
    """The results' file system. Sizes in bytes."""

    total: float
    free: float
    files: float
    files_free: float
    point: str
    quota: Quota | None


@dataclass(frozen=True)
class MachineLoad:
    """One machine at one moment; ``cpu`` is percent of all ``cores``, memory is in bytes."""

    cores: float | None
    cpu: float | None
    load: float | None
    memory_total: float | None
    memory_free: float | None
    gpus: tuple[Gpu, ...]
    disk: Disk


@dataclass(frozen=True)
class TensorBoardState:
    """TensorBoard there: ``state`` is waiting (no events yet), starting, serving, absent or failed."""

    state: str
    port: Annotated[int, Meta(gt=0, lt=65536)] | None = None
    ours: bool = False
    message: str = ""

    def __post_init__(self) -> None:
        if self.state == "serving" and self.port is None:
            raise ValueError("TensorBoard serves at a port")


@dataclass(frozen=True)
class MonitoredSweep:
    """A sweep's latest grid. ``eta``: seconds to go, ``None`` if unknown; ``notes``: problems, for users."""

    name: str
    counts: Mapping[RunState, int]
    end_to_end_fps: float
    eta: float | None
    since: float
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        ordered = {state: self.counts[state] for state in RunState if state in self.counts}
        object.__setattr__(self, "counts", ordered)  # an answer has them by name


@dataclass(frozen=True)
class MonitoredRun:
    """A run, from its journal, its newest checkpoint and its metrics. Times are by the machine's clock."""

    sweep: str
    run_id: str
    label: str
    state: RunState
    frames: float | None
    total: float | None
    end_to_end_fps: float | None
    value: float | None
    since: float
    why: str
    host: str
    checkpoint_frames: float | None
    checkpoint_time: float | None
    memory_mb: float | None
    eta: float | None


@dataclass(frozen=True)
class MonitorSnapshot:
    """A machine and its results at one moment. ``time`` is the machine's clock, ``seconds`` the duration."""

    time: float
    host: str
    tree: str
    seconds: float
    sweeps: tuple[MonitoredSweep, ...]
    runs: tuple[MonitoredRun, ...]
    machine: MachineLoad
    board: TensorBoardState | None


def parse_snapshot(answer: Any) -> MonitorSnapshot:
    """Parse a probe's answer. Raises :class:`DamagedSnapshotError`."""
    try:
        return parse(MonitorSnapshot, _tame(answer))
    except (ValueError, OverflowError, RecursionError) as error:
        why = printable(str(error))[:100]
        raise DamagedSnapshotError(f"an answer that cannot be read ({why})") from error


def _tame(value: Any) -> Any:
    """Return JSON with few printable texts; numbers that are not finite, as returns can be, become None."""
    if isinstance(value, str):
        return printable(value[:_LONGEST_TEXT])
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _tame(item) for key, item in value.items()}
    return [_tame(item) for item in value[:_MOST]] if isinstance(value, list) else value

"""Parse a snapshot of a machine and its results, as the probe sends it. Pure.

The probe's answer is not trusted: another shape than expected is refused, and texts keep no character that a
terminal would obey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.formatting import printable
from orchestrator.core.types import RunState

_LONGEST_TEXT = 400
_MOST = 1000
_FIGURES = ("frames", "total", "end_to_end_fps", "value", "memory_mb", "eta")


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
    port: int | None = None
    ours: bool = False
    message: str = ""


@dataclass(frozen=True)
class MonitoredSweep:
    """A sweep's latest grid. ``eta``: seconds to go, ``None`` if unknown; ``notes``: problems, for users."""

    name: str
    counts: Mapping[RunState, int]
    end_to_end_fps: float
    eta: float | None
    since: float
    notes: tuple[str, ...]


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
        return MonitorSnapshot(
            time=_number(answer["time"]),
            host=_text(answer["host"]),
            tree=_text(answer["tree"]),
            seconds=_number(answer["seconds"]),
            sweeps=tuple(_sweep(_of(sweep, dict)) for sweep in _of(answer["sweeps"], list)[:_MOST]),
            runs=tuple(_run(_of(row, dict)) for row in _of(answer["rows"], list)[:_MOST]),
            machine=_machine(answer["machine"]),
            board=None if answer["tensorboard"] is None else _board(_of(answer["tensorboard"], dict)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedSnapshotError(
            f"an answer that cannot be read ({printable(repr(error))[:100]})"
        ) from error


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parse nvidia-smi's lines: index, name, utilisation in percent, memory and total memory in MiB."""
    found = []
    for line in text.splitlines()[:_MOST]:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[0].isdigit():
            busy, used, total = (_figure(part) for part in parts[2:])
            found.append(Gpu(parts[0], _text(parts[1]), busy, _mebibytes(used), _mebibytes(total)))
    return tuple(found)


def parse_quota(text: str, places: Sequence[str]) -> Quota | None:
    """Parse the output of `quota -w -p` or `lfs quota -q` for one of these places (a device, a mount point).

    Both print, after the place: kilobytes, quota, limit, grace, and the same for files. A star marks excess.
    """
    words = text.split()
    for at, word in enumerate(words):
        if word in places:
            figures = [_figure(figure.rstrip("*")) for figure in words[at + 1 : at + 8]]
            if len(figures) < 7:
                return None
            used, soft, hard, _, files, files_soft, files_hard = figures
            if used is not None and files is not None:
                limit = _limit(soft, hard)
                return Quota(used * 1024, limit and limit * 1024, files, _limit(files_soft, files_hard))
    return None


def _limit(soft: float | None, hard: float | None) -> float | None:
    """Return the lower of two limits; 0 is none."""
    return min((one for one in (soft, hard) if one), default=None)


def _run(row: Mapping[str, Any]) -> MonitoredRun:
    checkpoint = _of(row["checkpoint"] or {}, dict)
    return MonitoredRun(
        sweep=_text(row["sweep"]),
        run_id=_text(row["run_id"]),
        label=_text(row["label"]),
        state=RunState(row["state"]),
        **{key: _maybe(row[key]) for key in _FIGURES},
        since=_number(row["since"]),
        why=_text(row["why"]),
        host=_text(row["host"]),
        checkpoint_frames=_maybe(checkpoint.get("frames")),
        checkpoint_time=_maybe(checkpoint.get("time")),
    )


def _sweep(sweep: Mapping[str, Any]) -> MonitoredSweep:
    counts = {RunState(state): int(_number(count)) for state, count in _of(sweep["counts"], dict).items()}
    return MonitoredSweep(
        name=_text(sweep["name"]),
        counts={state: counts[state] for state in RunState if state in counts},
        end_to_end_fps=_number(sweep["end_to_end_fps"]),
        eta=_maybe(sweep["eta"]),
        since=_number(sweep["since"]),
        notes=tuple(map(_text, _of(sweep["notes"], list)[:_MOST])),
    )


def _machine(machine: Mapping[str, Any]) -> MachineLoad:
    return MachineLoad(
        **{key: _maybe(machine[key]) for key in ("cores", "cpu", "load", "memory_total", "memory_free")},
        gpus=parse_gpus(_of(machine["gpus"], str)),
        disk=_disk(machine["disk"]),
    )


def _disk(disk: Mapping[str, Any]) -> Disk:
    mount = _of(disk["mount"], dict)
    places = [_of(mount.get(key, ""), str) for key in ("source", "point")]
    return Disk(
        **{key: _number(disk[key]) for key in ("total", "free", "files", "files_free")},
        point=_text(places[1]),
        quota=parse_quota(_of(disk["quota"], str), places),
    )


def _board(board: Mapping[str, Any]) -> TensorBoardState:
    port = board.get("port")
    if board["state"] == "serving" and not (type(port) is int and 0 < port < 65536):
        raise TypeError("TensorBoard serves at a port")
    return TensorBoardState(
        _text(board["state"]), port, board.get("ours") is True, _text(board.get("message", ""))
    )


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {value!r}"[:200])
    return value


def _text(value: Any) -> str:
    return printable(_of(value, str)[:_LONGEST_TEXT])


def _number(value: Any) -> float:
    """Return a finite number."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"expected a number, found {value!r}"[:200])
    return float(value)


def _maybe(value: Any) -> float | None:
    """Return a number, ``None`` if it is not finite, as the return before any episode ended."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return _number(value)


def _figure(text: str) -> float | None:
    try:
        figure = float(text)
    except ValueError:
        return None
    return figure if math.isfinite(figure) else None


def _mebibytes(figure: float | None) -> float | None:
    return None if figure is None else figure * (1 << 20)

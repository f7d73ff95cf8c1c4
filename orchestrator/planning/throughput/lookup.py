"""Look up the speed of a planned run, from equal runs down to merely similar ones. Pure.

The less similar the measured runs, the wider the range. Widths are factors: with a width of 2 the true value
is between half and twice the figure in 80 % of cases.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from orchestrator.planning.throughput.model import DiskUse, RunKind, Speed, TrainingPlace, same_model

# Executions differ even with equal settings; a single run does not show by how much.
_ALWAYS, _ONE_RUN = 1.05, 1.15
_OTHER_SETTINGS, _OTHER_THREADS, _OTHER_CROWD, _OTHER_TASK = 1.5, 1.5, 1.3, 3.0
_OTHER_HARDWARE = 2.0
_REPORTED = 1.3


@dataclass(frozen=True)
class Basis:
    """The data behind a prediction. ``end_to_end_fps`` is between ``low`` and ``high`` in 80 % of cases.

    ``start``: seconds of a run beside its frames. ``frames``: length of such runs. ``words``: description.
    ``runs``: how many were measured; 0 if ``reported``, that is shipped. ``wall_per_training``: as in
    :class:`~orchestrator.planning.throughput.model.Speed`.
    """

    end_to_end_fps: float
    low: float
    high: float
    start: float | None
    frames: int | None
    runs: int
    words: str
    reported: bool = False
    wall_per_training: float | None = None


class SpeedTable:
    """All known speeds. ``starts``: seconds from a worker's start to its first run, by target. ``waits``:
    seconds from a job's submission to its worker's start, by target. ``lengths``: frames of finished runs by
    kind and planned length (:func:`~orchestrator.planning.throughput.model.length_of`). ``disk``: that of
    finished runs by kind.
    """

    def __init__(
        self,
        speeds: Sequence[Speed],
        starts: Mapping[str, float] | None = None,
        waits: Mapping[str, float] | None = None,
        lengths: Mapping[tuple[RunKind, str], Sequence[int]] | None = None,
        disk: Mapping[RunKind, Sequence[DiskUse]] | None = None,
    ) -> None:
        self.speeds = tuple(speeds)
        self.starts, self.waits = dict(starts or {}), dict(waits or {})
        self._lengths = dict(lengths or {})
        self._disk = {kind: _mean(some) for kind, some in (disk or {}).items()}
        self._exact: dict[RunKind, list[Speed]] = {}
        self._alike: dict[tuple[str, str], list[Speed]] = {}
        self._trainers: dict[str, list[Speed]] = {}
        for one in self.speeds:
            if not one.source:
                self._exact.setdefault(one.kind, []).append(one)
                self._alike.setdefault((one.kind.task, one.kind.algorithm), []).append(one)
                self._trainers.setdefault(one.kind.trainer, []).append(one)
        self._reported = [one for one in self.speeds if one.source]
        self._known: dict[tuple[object, ...], Basis | None] = {}

    def find(self, kind: RunKind, place: TrainingPlace) -> Basis | None:
        """Return the closest known speed; ``None`` without any.

        Speeds of GPUs and of CPUs are never mixed. Measured speeds come before reported ones, unless only the
        report is for this hardware or for this task.
        """
        if kind in self._exact:
            key: tuple[object, ...] = (kind, place)
        else:  # all other settings are equally far
            key = (kind.trainer, kind.task, kind.algorithm, kind.threads, place)
        if key not in self._known:
            self._known[key] = self._find(kind, place)
        return self._known[key]

    def frames_of(self, kind: RunKind, length: str) -> int | None:
        """Return the median frames of runs of exactly this kind and length, on any hardware."""
        found = self._lengths.get((kind, length))
        return int(median(found)) if found else None

    def disk_of(self, kind: RunKind) -> DiskUse | None:
        """Return the mean disk use of finished runs of exactly this kind."""
        return self._disk.get(kind)

    def _find(self, kind: RunKind, place: TrainingPlace) -> Basis | None:
        alike = self._alike.get((kind.task, kind.algorithm), ())
        for candidates in (self._exact.get(kind, ()), alike, [*self._fitting_reports(kind)]):
            near = [one for one in candidates if _comparable(one.place, place)]
            if here := [one for one in near if same_hardware(one.place, place)]:
                return _nearest(here, kind, place)
        for candidates in (alike, self._fitting_reports(kind), self._trainers.get(kind.trainer, ())):
            if found := [one for one in candidates if _comparable(one.place, place)]:
                return _nearest(found, kind, place)
        return None

    def _fitting_reports(self, kind: RunKind) -> list[Speed]:
        """Return the reports of this task and algorithm: of the run's own trainer, or else of any program."""
        found = [
            one
            for one in self._reported
            if one.kind.trainer in ("", kind.trainer)
            and one.kind.algorithm == kind.algorithm
            and fnmatch.fnmatchcase(kind.task, one.kind.task)
        ]
        return [one for one in found if one.kind.trainer] or found


def same_hardware(one: TrainingPlace, other: TrainingPlace) -> bool:
    """Return whether two places have the same hardware, judged by their names."""
    # Two targets can be the same machine of a cloud: on demand and as spot.
    asked = one.machine is not None and one.machine == other.machine
    there = asked or (one.target is not None and one.target == other.target)
    if one.gpu or other.gpu:
        return there or (bool(one.gpu and other.gpu) and same_model(one.gpu or "", other.gpu or ""))
    # One target name can mean two machines: `local` does in a copied tree.
    return same_model(one.cpu, other.cpu) if one.cpu and other.cpu else there


def _comparable(one: TrainingPlace, other: TrainingPlace) -> bool:
    return bool(one.gpu) == (other.gpu != "")  # None: a GPU of unknown model


def _nearest(found: Sequence[Speed], kind: RunKind, place: TrainingPlace) -> Basis:
    widths = [(_width(one, kind, place), one) for one in found]
    best = min(width for width, _ in widths)
    used = [one for width, one in widths if width == best]
    fps = _weighted_median([(one.end_to_end_fps, max(1, one.runs)) for one in used])
    runs = sum(one.runs for one in used)
    reported = all(one.source for one in used)
    always = _ALWAYS if runs > 1 or reported else _ONE_RUN
    below = _combined(best, always, fps / min(one.low for one in used))
    above = _combined(best, always, max(one.high for one in used) / fps)
    starts = [one.start for one in used if one.start is not None]
    lengths = [one.frames for one in used if one.frames]
    shares = [one.wall_per_training for one in used if one.wall_per_training is not None]
    return Basis(
        fps,
        fps / below,
        fps * above,
        median(starts) if starts else None,
        int(median(lengths)) if lengths else None,
        runs,
        _basis_text(used, kind, place),
        reported,
        median(shares) if shares else None,
    )


def _width(one: Speed, kind: RunKind, place: TrainingPlace) -> float:
    widths = []
    if not same_hardware(one.place, place):
        widths.append(_OTHER_HARDWARE)
    if one.source:
        return _combined(_REPORTED, *widths)
    if (one.kind.task, one.kind.algorithm) != (kind.task, kind.algorithm):
        widths.append(_OTHER_TASK)
    elif one.kind.settings != kind.settings:
        widths.append(_OTHER_SETTINGS)
    if one.kind.threads != kind.threads:
        widths.append(_OTHER_THREADS)
    if one.place.at_once != place.at_once:
        widths.append(_OTHER_CROWD)
    return _combined(*widths)


def _combined(*widths: float) -> float:
    """Combine independent errors: the squares of their logarithms add up."""
    return math.exp(math.hypot(*(math.log(max(1.0, width)) for width in widths)))


def _weighted_median(values: Iterable[tuple[float, int]]) -> float:
    ordered = sorted(values)
    half, passed = sum(weight for _, weight in ordered) / 2, 0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    raise AssertionError("no values")


def _basis_text(used: Sequence[Speed], kind: RunKind, place: TrainingPlace) -> str:
    one = used[0]
    if one.source:
        where = "" if same_hardware(one.place, place) else ", other hardware than here"
        return f"shipped figure, not measured here: {one.source}{where}"
    runs = sum(speed.runs for speed in used)
    what = f"{runs} finished run{'s' * (runs != 1)}"
    if one.kind == kind:
        what += " of the same configuration"
    elif (one.kind.task, one.kind.algorithm) == (kind.task, kind.algorithm):
        what += f" of {kind.algorithm} on {kind.task or 'the same task'} with other settings"
    else:
        what += f" of {kind.trainer} with other tasks or algorithms"
    if not same_hardware(one.place, place):
        what += f" on other hardware ({one.place.gpu or one.place.cpu or 'not known'})"
    elif one.place.at_once != place.at_once:
        what += f", {one.place.at_once} at once instead of {place.at_once}"
    return what


def _mean(several: Sequence[DiskUse]) -> DiskUse:
    whole, state = (round(fmean(sizes)) for sizes in zip(*several, strict=True))
    return DiskUse(whole, state)

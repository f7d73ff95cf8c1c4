"""Forecast a plan: the time of each run from measured speeds, scheduled on the target's machines. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Job, Plan, Run, Size, Sweep
from orchestrator.planning.estimate.ranges import NOTHING, Range, lay_out, total
from orchestrator.planning.estimate.target_costs import TargetCost
from orchestrator.planning.packing import size_of
from orchestrator.planning.throughput.lookup import Basis, SpeedTable
from orchestrator.planning.throughput.model import DiskUse, TrainingPlace, kind_of, length_of
from orchestrator.status.survey import RunStatus, Survey

_MINUTE_S, _HOUR_S = 60.0, 3600.0
# The largest extra time of evaluations and checkpoints, relative to training, without a measurement.
_BESIDE_TRAINING = 1.3
# How far that differs between runs, with one.
_UNEVEN = 1.15
_BY_THE_GRID = "the minutes set in the grid"


@dataclass(frozen=True)
class RunForecast:
    """Forecast of one run. ``frames``: left to train. ``seconds``, ``dollars``: of the run alone, without its
    share of the machine's start and end; ``None`` where ``unknown`` gives the reason, or without a price. A
    run limited in minutes has neither frames nor a ``basis``. ``disk``: of its files, as far as it is known.
    """

    run_id: str
    frames: int | None = None
    seconds: Range | None = None
    dollars: Range | None = None
    basis: Basis | None = None
    unknown: str = ""
    disk: DiskUse | None = None


@dataclass(frozen=True)
class Forecast:
    """Forecast of the rest of a sweep on one target: on ``machines`` with up to ``at_once`` runs each.

    ``wall``: seconds from launch to the last result, without the queue. ``dollars`` includes ``overhead``,
    the cost of machines beside runs. All are ``None`` if the time of some run is unknown; dollars also
    without a price. ``skipped``: runs that the target cannot train, and why.
    """

    where: TargetCost
    runs: tuple[RunForecast, ...]
    machines: int
    at_once: int
    wall: Range | None
    dollars: Range | None
    overhead: Range | None
    skipped: Mapping[str, str]

    @property
    def unknown(self) -> dict[str, list[str]]:
        """Reasons for unknown times, each with its run ids."""
        reasons: dict[str, list[str]] = {}
        for run in self.runs:
            if run.unknown:
                reasons.setdefault(run.unknown, []).append(run.run_id)
        return reasons

    @property
    def rests_on(self) -> dict[str, int]:
        """Descriptions of the data behind the figures, each with its number of runs."""
        counted: dict[str, int] = {}
        for run in self.runs:
            if run.seconds is not None:
                words = run.basis.words if run.basis is not None else _BY_THE_GRID
                counted[words] = counted.get(words, 0) + 1
        return counted

    @property
    def disk(self) -> DiskUse | None:
        """The disk use of all runs; ``None`` if that of one is unknown."""
        known = [run.disk for run in self.runs if run.disk is not None]
        if not known or len(known) < len(self.runs):
            return None
        return DiskUse(sum(one.whole for one in known), sum(one.state for one in known))

    def _data_json(self) -> list[dict[str, Any]]:
        """Return the data behind the figures: how many runs were measured for how many; none by the grid."""
        bases = {run.basis.words: run.basis for run in self.runs if run.basis is not None}
        return [
            {
                "data": words,
                "measured_runs": bases[words].runs if words in bases else None,
                "shipped": words in bases and bases[words].reported,
                "runs": number,
            }
            for words, number in self.rests_on.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        price = self.where.price
        return {
            "target": self.where.name,
            "backend": self.where.kind,
            "price_per_hour": price and price.per_hour,
            "price": price and price.words,
            "machines": self.machines,
            "at_once": self.at_once,
            "seconds": self.wall and self.wall.to_json(),
            "dollars": self.dollars and self.dollars.to_json(),
            "overhead_dollars": self.overhead and self.overhead.to_json(),
            "bytes": self.disk and self.disk.whole,
            "bytes_of_state": self.disk and self.disk.state,
            "rests_on": self._data_json(),
            "unknown": [{"why": why, "runs": len(run_ids)} for why, run_ids in self.unknown.items()],
            "skipped": dict(self.skipped),
            "notes": list(self.where.notes),
            "runs": [_run_json(run) for run in self.runs],
        }


def forecast_plan(plan: Plan, seen: Survey, where: TargetCost, table: SpeedTable) -> Forecast:
    """Forecast the plan's runs, including those that wait for room in the queue."""
    where = where.on_nodes(plan.sweep.resources.nodes)
    runs: list[RunForecast] = []
    loads: list[Range] = []
    groups = _groups(plan, where)
    for group in groups:
        found = [
            replace(_run(run, seen, where, table, group), disk=table.disk_of(kind_of(run)))
            for run in group.runs
        ]
        runs += found
        known = [(one.seconds, group.cores(run)) for one, run in zip(found, group.runs, strict=True)]
        timed = [(seconds, size) for seconds, size in known if seconds is not None]
        laid_out = lay_out(timed, group.machines, group.room.cores if group.room else group.at_once)
        loads += [load for load in laid_out if load.mid > 0]
    most, machines = max((group.at_once for group in groups), default=1), len(loads)
    skipped = dict(plan.skipped)
    if any(run.seconds is None for run in runs):
        machines = sum(group.machines for group in groups)
        return Forecast(where, tuple(runs), machines, most, None, None, None, skipped)
    if not loads:
        free = None if where.price is None else NOTHING
        return Forecast(where, tuple(runs), 0, most, NOTHING, free, free, skipped)
    wall = where.begin + Range(*(max(column) for column in zip(*map(_columns, loads), strict=True)))
    dollars = overhead = None
    if where.price is not None:
        hourly = where.price.per_hour / _HOUR_S
        overhead = total([where.begin + where.end] * machines).times(hourly)
        dollars = overhead + total(loads).times(hourly)
    return Forecast(where, tuple(runs), machines, most, wall, dollars, overhead, skipped)


@dataclass(frozen=True)
class _Group:
    """Runs for jobs of one shape: this many ``machines``, each with ``at_once`` runs.

    ``room``: what runs of different sizes share in a job.
    """

    sweep: Sweep
    runs: tuple[Run, ...]
    machines: int
    at_once: int
    room: Size | None = None

    def share(self, run: Run) -> float:
        """Return the part of a job that a run takes."""
        return 1 / self.at_once if self.room is None else self._size(run).share(self.room)

    def cores(self, run: Run) -> int:
        """Return the cores that a run keeps from others, by cores or memory; without ``room`` 1: a slot."""
        return 1 if self.room is None else math.ceil(self.share(run) * self.room.cores)

    def _size(self, run: Run) -> Size:
        return size_of(self.sweep.needs_of(run))


def _groups(plan: Plan, where: TargetCost) -> list[_Group]:
    sweep = plan.sweep
    jobs: dict[tuple[int, Size | None], list[Job]] = {}
    for array in plan.arrays:
        if array.after is None:
            for job in array.jobs:
                jobs.setdefault((min(job.slots, len(job.run_ids)), job.room), []).append(job)
    if not jobs:
        waiting = tuple(run for run in sweep.runs if run.run_id in set(plan.waiting))
        return [_Group(sweep, waiting, where.limit or 1, 1)] if waiting else []
    most = max(jobs, key=lambda shape: len(jobs[shape]))
    groups = []
    for shape, alike in jobs.items():
        own = {run_id for job in alike for run_id in job.run_ids}
        if shape == most:  # waiting runs go to the most common shape
            own.update(plan.waiting)
        runs = tuple(run for run in sweep.runs if run.run_id in own)
        groups.append(_Group(sweep, runs, min(len(alike), where.limit or len(alike)), *shape))
    return groups


def _columns(one: Range) -> tuple[float, float, float]:
    return one.low, one.mid, one.high


def _run(run: Run, seen: Survey, where: TargetCost, table: SpeedTable, group: _Group) -> RunForecast:
    found = _run_time(run, seen, where, table, group)
    if where.price is None or found.seconds is None:
        return found
    return replace(found, dollars=found.seconds.times(where.price.per_hour / _HOUR_S * group.share(run)))


def _run_time(run: Run, seen: Survey, where: TargetCost, table: SpeedTable, group: _Group) -> RunForecast:
    spec, status = get_trainer(run.trainer), seen.statuses.get(run.run_id)
    gpu = bool(group.sweep.needs_of(run).gpus) or spec.needs_gpu(run)
    place = replace(where.place, gpu=where.place.gpu if gpu else "", at_once=group.at_once)
    if (minutes := spec.minutes_of(run)) is None:
        told = status.total if status is not None and status.total else None
        length = told or spec.frames_of(run) or _labelled_frames(group.sweep)
        length = length or table.frames_of(kind_of(run), length_of(run))
        return _forecast_frames(run, length, status, table, place)
    timed = _forecast_minutes(run, minutes, status, table.find(kind_of(run), place))
    counted = _forecast_frames(run, spec.frames_of(run), status, table, place)
    return min((timed, counted), key=lambda one: one.seconds.mid if one.seconds else math.inf)


def _labelled_frames(sweep: Sweep) -> int | None:
    """Return the length of runs by the grid's label `frames`."""
    frames = sweep.labels.get("frames")
    return int(frames) if isinstance(frames, int | float) and frames >= 1 else None


def _forecast_frames(
    run: Run,
    length: int | None,
    status: RunStatus | None,
    table: SpeedTable,
    place: TrainingPlace,
) -> RunForecast:
    """Forecast a run that ends after a number of frames."""
    kind = kind_of(run)
    if length is None:
        return RunForecast(run.run_id, unknown=_no_length(run))
    # Nearly all frames trained so far are in a checkpoint.
    left = max(0, length - (status.frames or 0 if status is not None else 0))
    basis = table.find(kind, place)
    if basis is None:
        on = "a CPU" if place.gpu == "" else "a GPU"
        about = f"{kind.algorithm} on {kind.task}" if kind.task else kind.trainer
        return RunForecast(run.run_id, left, unknown=f"no measured speed of {about} on {on}")
    start = basis.start or 0.0
    seconds = Range(start + left / basis.high, start + left / basis.end_to_end_fps, start + left / basis.low)
    return RunForecast(run.run_id, left, seconds, basis=basis)


def _forecast_minutes(run: Run, minutes: float, status: RunStatus | None, basis: Basis | None) -> RunForecast:
    """Forecast a run that ends after a number of minutes of collecting and learning.

    Its reported frames give the part that is left; finished runs give the extra time of evaluations and
    checkpoints.
    """
    done = (status.frames or 0) / status.total if status is not None and status.total else 0.0
    left = minutes * _MINUTE_S * max(0.0, 1 - done)
    seconds = Range(left, left, left * _BESIDE_TRAINING)
    if basis is not None and basis.wall_per_training is not None:
        beside = max(1.0, basis.wall_per_training)
        seconds = Range(left * max(1.0, beside / _UNEVEN), left * beside, left * beside * _UNEVEN)
    return RunForecast(run.run_id, None, seconds)


def _no_length(run: Run) -> str:
    spec = get_trainer(run.trainer)
    if wrong := spec.impossible_lengths(run):
        return next(iter(wrong.values()))
    how = f": set the key {spec.frames[0]}" if spec.frames else ""
    return f"unknown number of frames of runs of {run.trainer}{how}"


def _run_json(run: RunForecast) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "frames": run.frames,
        "end_to_end_fps": run.basis and run.basis.end_to_end_fps,
        "seconds": run.seconds and run.seconds.to_json(),
        "dollars": run.dollars and run.dollars.to_json(),
        "rests_on": run.basis.words if run.basis else None,
        "unknown": run.unknown or None,
    }

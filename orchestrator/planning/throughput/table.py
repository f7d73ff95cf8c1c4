"""Collect all known speeds: of every sweep in a results folder, and shipped ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import median, quantiles

import yaml

from orchestrator.core.machine.package_files import template
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.model import DiskUse, RunKind, Speed, TrainingPlace
from orchestrator.planning.throughput.record import MeasuredRun, take_up
from orchestrator.rundir import sweeps

# With at least this many runs the range is their middle 80 %.
_ENOUGH = 5


def load_table(results: Path) -> SpeedTable:
    """Load the speeds of all sweeps, updated with newly finished runs."""
    measured: dict[tuple[RunKind, TrainingPlace], list[MeasuredRun]] = {}
    starts: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    lengths: dict[tuple[RunKind, str], list[int]] = {}
    disk: dict[RunKind, list[DiskUse]] = {}
    for sweep_dir in sweeps(results):
        record = take_up(sweep_dir)
        for one in record.runs.values():
            measured.setdefault((one.kind, one.place), []).append(one)
            lengths.setdefault((one.kind, one.length), []).append(one.frames)
            disk.setdefault(one.kind, []).append(one.disk)
        for job in record.jobs.values():
            starts.setdefault(job.target, []).append(job.start)
            waits.setdefault(job.target, []).append(job.waited)
    entries = [_entry(kind, place, found) for (kind, place), found in measured.items()]
    return SpeedTable([*entries, *reported()], _medians(starts), _medians(waits), lengths, disk)


def _entry(kind: RunKind, place: TrainingPlace, found: list[MeasuredRun]) -> Speed:
    fps = sorted(one.end_to_end_fps for one in found)
    low, high = fps[0], fps[-1]
    if len(fps) >= _ENOUGH:
        tenths = quantiles(fps, n=10, method="inclusive")
        low, high = tenths[0], tenths[-1]
    starts = [one.start for one in found if one.start is not None]
    frames = int(median(one.frames for one in found))
    middle = median(fps)
    start = median(starts) if starts else None
    shares = [one.wall_per_training for one in found if one.wall_per_training is not None]
    return Speed(
        kind,
        place,
        middle,
        min(low, middle),
        max(high, middle),
        start,
        frames,
        len(found),
        wall_per_training=median(shares) if shares else None,
    )


def _medians(values: Mapping[str, Iterable[float]]) -> dict[str, float]:
    return {target: median(found) for target, found in values.items()}


@cache
def reported() -> tuple[Speed, ...]:
    """Return the shipped speeds, of machines of this project and of others."""
    rows = yaml.safe_load(template("speeds.yaml").read_text(encoding="utf-8"))
    return tuple(
        Speed(
            RunKind(row.get("trainer", ""), row["task"], row["algorithm"], ""),
            TrainingPlace(None, row.get("cpu"), row.get("gpu", "")),
            float(row["end_to_end_fps"]),
            float(row.get("low", row["end_to_end_fps"])),
            float(row.get("high", row["end_to_end_fps"])),
            runs=0,
            source=row["source"],
        )
        for row in rows
    )

"""Summarise sweeps: speed by group and hardware, the table that `collect` prints, warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.comparability import UNRANKED, ReturnTerms, differences, mixed_code
from orchestrator.analysis.groups.generalization import Generalization, generalizations
from orchestrator.analysis.groups.grouping import (
    Final,
    Members,
    SeedGroup,
    diverged,
    final_returns,
    groups,
    known,
)
from orchestrator.analysis.run_table import FINAL_MEASURE, FINAL_VALUES, GAP, LAST, TRAINING_LEVELS, RunRow
from orchestrator.analysis.statistics.bootstrap import finite, middle
from orchestrator.analysis.statistics.significance import FEW_SEEDS, INTERVAL_SEEDS, NOMINAL_SEEDS
from orchestrator.config.returns import is_evaluation
from orchestrator.core.formatting import count, listed
from orchestrator.planning.throughput.measure import END_TO_END, PROVISIONAL, TRAINING
from orchestrator.planning.without_return import without_return

SINGLE = "the final return rests on a single evaluation, as runs have so few"
SINGLE_IN_TRAINING = "the final return rests on a single return of training, as runs have so few"
_TIMES = ("seconds_per_iteration", "collection_seconds", "learning_seconds")
_MOST_NAMED = 8
# What fewer seeds than these do not allow.
_COVERAGE = "the 95 % intervals cover less than 95 %"
_NO_VERDICT = f"fewer than {FEW_SEEDS} seeds, so there is no verdict"
_LIMITS = {
    INTERVAL_SEEDS: f"{_NO_VERDICT}, nor an interval below {INTERVAL_SEEDS}",
    FEW_SEEDS: f"{_NO_VERDICT}, and {_COVERAGE}",
    NOMINAL_SEEDS: f"fewer than {NOMINAL_SEEDS} seeds, so {_COVERAGE}",
}
SUMMARY_COLUMNS = (
    "group",
    "n",
    "states",
    "final return (IQM)",
    "training frames/s",
    "end-to-end frames/s",
    "s/iteration",
)
LEVEL_COLUMNS = ("levels of training (IQM)", "gap (IQM)")

# (sweep, run id) → US dollars for an hour of that run.
Prices = Mapping[tuple[str, str], float]
HOUR_S = 3600.0


@dataclass(frozen=True)
class SpeedSummary:
    """A group's speed on one kind of hardware.

    Both throughputs of each run that has them, and the medians over runs of the seconds per iteration and of
    two parts of these. ``provisional``: the end-to-end throughput of some run is. ``peak``: the median share
    of the peak FLOP/s, where runs record it.
    """

    group: SeedGroup
    hardware: str
    training_fps: tuple[float, ...]
    end_to_end_fps: tuple[float, ...]
    seconds_per_iteration: float | None
    collection_seconds: float | None
    learning_seconds: float | None
    provisional: bool
    peak: float | None = None

    def split(self) -> tuple[float, float, float]:
        """Return the seconds per iteration of collection, of learning, and of the rest."""
        whole = self.seconds_per_iteration or 0.0
        collection = min(self.collection_seconds or 0.0, whole)
        learning = min(self.learning_seconds or 0.0, whole - collection)
        return collection, learning, whole - collection - learning


def speeds(found: Sequence[SeedGroup]) -> list[SpeedSummary]:
    """Return each group's speed on each kind of hardware it ran on."""
    rows = []
    for group in found:
        by_hardware: dict[str, list[Mapping[str, Any]]] = {}
        for row in group.counted()[0]:
            by_hardware.setdefault(hardware(row), []).append(row)
        for name, alike in sorted(by_hardware.items()):
            training, end_to_end = (known(alike, column) for column in (TRAINING, END_TO_END))
            whole, collection, learning = (middle(known(alike, column)) for column in _TIMES)
            seconds, marked = (whole, collection, learning), is_provisional(alike)
            peak = middle([share for row in alike if (share := peak_share(row)) is not None])
            rows.append(SpeedSummary(group, name, training, end_to_end, *seconds, marked, peak))
    return rows


def is_provisional(rows: Sequence[RunRow]) -> bool:
    """Return whether the end-to-end throughput of any of these runs is provisional."""
    return any(row["provisional"] for row in rows)


def machine(row: RunRow) -> str | None:
    """Describe the GPU and the processor of a run; ``None`` where unknown."""
    return " + ".join(filter(None, (row["gpu_model"], row["cpu_model"]))) or None


def hardware(row: RunRow) -> str:
    """Describe the hardware that decides a run's speed: GPU, CPU, threads."""
    threads, name = row["threads"], machine(row) or "unknown CPU"
    return name if threads is None else f"{name}, {count(threads, 'thread')}"


def peak_share(row: RunRow) -> float | None:
    """Return the share of the measured peak FLOP/s of its cores that a run's training takes, if known."""
    frame, core, fps = row["flop_per_frame"], row["machine_flops_per_core"], row[TRAINING]
    if not (frame and core and fps and row["threads"]):
        return None
    cores = processes_of(row) * row["threads"]
    return float(fps * frame / (min(cores, row["run_cores"] or cores) * core))


def actors_of(row: RunRow) -> int:
    """Return a run's number of actors."""
    return row["actors"] if isinstance(row["actors"], int) and row["actors"] > 0 else 1


def processes_of(row: RunRow) -> int:
    """Return the number of a run's processes, each with its threads: more than actors if others learn."""
    return row["processes"] or actors_of(row)


def warnings(finals: Sequence[Final]) -> list[str]:
    """Return the limits of the intervals, one line per kind, with the groups concerned."""
    about: dict[str, list[str]] = {}
    for final in finals:
        for fewer, limit in _LIMITS.items():
            if 0 < len(final.values) < fewer:
                about.setdefault(limit, []).append(f"{final.group.label} (n={len(final.values)})")
                break
    for final in finals:
        if final.note:
            about.setdefault(final.note, []).append(final.group.label)
    found = [f"{what}: {listed(labels, _MOST_NAMED)}" for what, labels in about.items()]
    return [*unranked(finals), *found, *provisional([final.group for final in finals])]


def provisional(found: Sequence[SeedGroup]) -> list[str]:
    """Return a line that names the groups with provisional end-to-end throughput, if there are any."""
    labels = [group.label for group in found if is_provisional(group.counted()[0])]
    return [f"{PROVISIONAL}: {listed(labels, _MOST_NAMED)}"] if labels else []


def single_values(found: Sequence[SeedGroup]) -> list[str]:
    """Return lines that name the groups with final returns of one value, unless that was chosen."""
    about: dict[str, list[str]] = {}
    for group in found:
        if limit := single_value(group):
            about.setdefault(limit, []).append(group.label)
    return [f"{limit}: {listed(labels, _MOST_NAMED)}" for limit, labels in about.items()]


def single_value(members: Members) -> str:
    """Return the limit if a final return of these runs is one value, empty if none is or that was chosen."""
    single = [
        row["return_metric"] or ""
        for row in members.counted()[0]
        if row.get(FINAL_VALUES) == 1 and row[FINAL_MEASURE] != LAST
    ]
    if not single:
        return ""
    return SINGLE if any(map(is_evaluation, single)) else SINGLE_IN_TRAINING


def returns_lacking(collected: Collected, found: Sequence[SeedGroup]) -> list[str]:
    """Return a line for each trainer with finished runs without a return, and one for runs that diverged."""
    lacking: dict[str | None, list[tuple[str, str]]] = {}
    ended: dict[str, list[str]] = {}
    for group in found:
        rows = group.counted()[0]
        for row in rows:
            if row["return_metric"] is None:
                lacking.setdefault(row["trainer"], []).append((row["sweep"], row["run_id"]))
        for metric in {row["return_metric"]: 0 for row in rows if diverged(row)}:
            number = sum(diverged(row) and row["return_metric"] == metric for row in rows)
            ended.setdefault(metric, []).append(f"{number} of {group.label}")
    return [
        *(without_return(len(runs), trainer, _logged(collected, runs)) for trainer, runs in lacking.items()),
        *(
            f"the last value of {metric} is not finite, so these runs diverged: {listed(who, _MOST_NAMED)}"
            for metric, who in ended.items()
        ),
    ]


def _logged(collected: Collected, runs: Sequence[tuple[str, str]]) -> list[str]:
    own = pl.DataFrame(runs, schema={"sweep": pl.String, "run_id": pl.String}, orient="row")
    logged = collected.metrics.join(own, on=["sweep", "run_id"], how="semi")
    return list(logged["name"].unique())


def unranked(finals: Sequence[Final]) -> list[str]:
    """Return task by task why final returns are not ranked.

    First come the groups that average results of different code.
    """
    panels: dict[str, list[tuple[str, ReturnTerms]]] = {}
    for final in finals:
        if final.estimate is not None:
            panels.setdefault(final.group.task, []).append((final.group.label, final.terms))
    return [
        *mixed_code([named for panel in panels.values() for named in panel]),
        *(
            f"{UNRANKED}, {task or 'all runs'}: {text}"
            for task, panel in panels.items()
            for text in differences(panel)
        ),
    ]


def summary_table(collected: Collected) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows that `collect` prints, one row per group. Intervals are in the report.

    Where evaluations play levels of training too, the return there and the gap follow the final return.
    """
    found = groups(collected)
    levels = _levels(found)
    rows = []
    for final in final_returns(found, intervals=False):
        own = speeds([final.group])
        rows.append(
            [
                final.group.label,
                str(len(final.values)),
                final.group.states_text,
                "" if final.estimate is None else f"{final.estimate.value:.4g}",
                *(_level_texts(levels.get(id(final.group))) if levels else ()),
                _per_hardware(own, lambda speed: middle(speed.training_fps), "{:,.0f}"),
                _per_hardware(own, lambda speed: middle(speed.end_to_end_fps), "{:,.0f}", mark=True),
                _per_hardware(own, lambda speed: speed.seconds_per_iteration, "{:.3g}"),
            ]
        )
    at = SUMMARY_COLUMNS.index("training frames/s")
    return [*SUMMARY_COLUMNS[:at], *(LEVEL_COLUMNS if levels else ()), *SUMMARY_COLUMNS[at:]], rows


def _levels(found: Sequence[SeedGroup]) -> dict[int, Generalization]:
    """Return the generalization of the groups that have one, by the group's identity."""
    return {id(one.group): one for one in generalizations(found, intervals=False)}


def _level_texts(one: Generalization | None) -> list[str]:
    if one is None:
        return [""] * len(LEVEL_COLUMNS)
    return [f"{sample.estimate.value:.4g}" for sample in (one.training, one.gap)]


def summary_json(collected: Collected) -> list[dict[str, Any]]:
    """Return the groups of :func:`summary_table` with numbers, their speeds by hardware."""
    found = groups(collected)
    levels = _levels(found)
    return [
        {
            "group": final.group.label,
            "point": _typed(final.group, collected),
            "n": len(final.values),
            "states": dict(final.group.states),
            "final_return": final.estimate and final.estimate.value,
            **_level_numbers(levels.get(id(final.group))),
            "speeds": [
                {
                    "hardware": _hardware_json(one),
                    TRAINING: middle(one.training_fps),
                    END_TO_END: middle(one.end_to_end_fps),
                    "provisional": one.provisional,
                    "seconds_per_iteration": one.seconds_per_iteration,
                }
                for one in speeds([final.group])
            ],
        }
        for final in final_returns(found, intervals=False)
    ]


def _typed(group: SeedGroup, collected: Collected) -> dict[str, Any]:
    """Return the group's keys with values as they are written in the grid."""
    written = collected.points.get((group.rows[0]["sweep"], group.rows[0]["run_id"]), {})
    return {key: written.get(key.removeprefix("grid."), value) for key, value in group.point.items()}


def _hardware_json(one: SpeedSummary) -> dict[str, Any]:
    row = next(row for row in one.group.counted()[0] if hardware(row) == one.hardware)
    return {name: row[name] for name in ("gpu_model", "cpu_model", "threads")}


def _level_numbers(one: Generalization | None) -> dict[str, float]:
    if one is None:
        return {}
    return {TRAINING_LEVELS: one.training.estimate.value, GAP: one.gap.estimate.value}


def _per_hardware(
    own: Sequence[SpeedSummary],
    pick: Callable[[SpeedSummary], float | None],
    layout: str,
    *,
    mark: bool = False,
) -> str:
    """Format one number per kind of hardware; ``mark`` adds an asterisk to provisional ones."""
    told = ((speed, value) for speed in own if (value := pick(speed)) is not None)
    return " / ".join(layout.format(value) + "*" * (mark and speed.provisional) for speed, value in told)


def dollars_of(row: RunRow, prices: Prices) -> float | None:
    """Return what a run cost in US dollars, by its wall time; ``None`` where that or its price is unknown."""
    hour = prices.get((row["sweep"], row["run_id"]))
    if hour is None or not finite(row["wall_time"]):
        return None
    cost: float = hour * row["wall_time"] / HOUR_S
    return cost if math.isfinite(cost) else None

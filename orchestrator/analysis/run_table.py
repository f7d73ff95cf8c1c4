"""Turn readings of runs into tables: their columns, types and order. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.analysis.statistics.bootstrap import finite
from orchestrator.config.returns import EPISODES, EVALUATIONS, return_figures, return_metric
from orchestrator.config.trainers import returns_of
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row

# A run as a row of the table of runs.
RunRow = Mapping[str, Any]


@dataclass(frozen=True)
class RunReading:
    """A run as found in its folder. ``facts`` are the known columns of the table of runs.

    ``codes`` are the ids of the code that trained it, in order. A ``foreign`` run was trained without this
    program, so this program's defaults do not apply to it.
    """

    sweep: str
    index: IndexRow
    state: RunState
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Row] = ()
    problems: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    foreign: bool = False


# A result's columns


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _by_name(value: Any) -> str:
    """Return values by name as text."""
    if not isinstance(value, dict):
        raise TypeError(f"found {value!r}, expected values by name")
    return _text(value)


def _in_turn(values: Any) -> str:
    return ", ".join(map(str, values))


def _count(value: Any) -> int:
    if (number := _whole(value)) is None:
        raise ValueError(f"found {value!r}, expected a whole number of 64 bits")
    return number


def _count_if_any(value: Any) -> int | None:
    return None if isinstance(value, bool) else _whole(value)


def _sum(values: Mapping[str, int]) -> int:
    """Return the sum of the counts of lines and of values."""
    return _count(values["lines"]) + _count(values["values"])


def _commit(value: str) -> str:
    """Return the commit without the suffix that marks different code."""
    return value.partition("+")[0]


def _dirty(value: str) -> bool:
    """Return whether the code differed from its commit."""
    return "+" in value


# The column by which runs with identical metrics are found; empty where no other run can have the same.
METRICS_HASH = "metrics_hash"
VERIFIED = "verified"
# Columns in the table's order: the part of the result that holds each, its key there, and its conversion.
_COLUMNS: Mapping[str, tuple[str, str, Callable[[Any], Any]]] = {
    "target": ("", "targets", _in_turn),
    "attempt": ("", "attempt", _count),
    "attempts": ("", "attempts", _count),
    "device": ("", "devices", _in_turn),
    "environments": ("", "environments", _count),
    "frames": ("", "frames", _count),
    "iterations": ("", "iterations", _count),
    "wall_time": ("", "wall_time", float),
    "train_time": ("", "wall_time", float),
    "training_fps": ("speed", "training_fps", float),
    "end_to_end_fps": ("speed", "end_to_end_fps", float),
    "steady_iterations": ("speed", "steady_iterations", _count),
    "provisional": ("speed", "provisional", bool),
    "seconds_per_iteration": ("speed", "seconds_per_iteration", float),
    "collection_seconds": ("speed", "collection_seconds", float),
    "learning_seconds": ("speed", "learning_seconds", float),
    "training_episodes": ("", "episodes", _count_if_any),
    "initial_return": ("", "initial_return", float),
    "final_return": ("", "final_return", float),
    "best_return": ("", "best_return", float),
    "evaluation_episodes": ("evaluation", "episodes", _count_if_any),
    "dropped_metrics": ("", "dropped_metrics", _sum),
    "caught_error": ("", "caught_error", str),
    "exactness": ("", "exactness", str),
    "hostname": ("host", "hostname", str),
    "cpu_model": ("host", "cpu_model", str),
    "cpu_capability": ("host", "cpu_capability", str),
    "cores": ("host", "cores", _count),
    "gpu_model": ("host", "gpu_model", str),
    "gpu_capability": ("host", "gpu_capability", _text),
    "actors": ("config", "actors", _count_if_any),
    "processes": ("", "processes", _count_if_any),
    "threads": ("", "threads", _count),
    "run_cores": ("", "cores", _count),
    "peak_memory_mb": ("", "peak_memory_mb", float),
    "flop_per_frame": ("", "flop_per_frame", float),
    "machine_flops_per_core": ("", "machine_flops_per_core", float),
    "versions": ("", "versions", _by_name),
    "code_id": ("", "code_id", str),
    # The code that it counts as, after `orchestrate accept` or as its files agree with those of other runs.
    "accepted_as": ("", "accepted_as", str),
    "prefix": ("prefix", "run_id", str),
    "adopted_from": ("", "adopted_from", str),
    # When and where `orchestrate verify` trained it again, or what differed.
    VERIFIED: ("", VERIFIED, str),
    "commit": ("", "commit", _commit),
    "dirty": ("", "commit", _dirty),
    "config_hash": ("", "config_hash", str),
    METRICS_HASH: ("", METRICS_HASH, str),
    "started": ("", "started", float),
    "ended": ("", "ended", float),
}


def facts_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a result.

    A missing value is null, as are those of a part that is no mapping; one of another kind raises.
    """
    facts: dict[str, Any] = {}
    for name, (part, key, convert) in _COLUMNS.items():
        held = fields.get(part) if part else fields
        value = held.get(key) if type(held) is dict else None
        facts[name] = None if value is None else convert(value)
    return facts


# Columns of runs that are evaluated on unseen levels: the last return on the levels of training, and how much
# more that is. With their metrics.
TRAINING_LEVELS, GAP = "training_levels_return", "generalization_gap"
LEVEL_METRICS = {TRAINING_LEVELS: f"{EVALUATIONS}{TRAINING_LEVELS}", GAP: f"{EVALUATIONS}{GAP}"}
# Columns that say how the final return was measured; verdict.final_measure adds them.
LAST_RETURN, FINAL_MEASURE, FINAL_VALUES, INTERVAL = MEASURE_COLUMNS = (
    "last_return",
    "final_measure",
    "final_values",
    "evaluation_interval",
)
# Columns of a table of runs whose returns are values of another metric.
CHOSEN_METRIC, LOWER_IS_BETTER = "chosen_metric", "lower_is_better"
# The measure that is the last evaluation.
LAST = "last"


# Tables


def runs_table(
    readings: Sequence[RunReading], trainers: Mapping[str, str], chosen: ChosenMetric | None = None
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Build the table of runs; return it with the names of the columns that come from the grid.

    With a ``chosen`` metric all returns are values of it, two columns more say so, and there are no returns
    on levels of training.
    """
    if chosen is not None:
        readings = [_with_metric(reading, chosen) for reading in readings]
    types = {
        _count: pl.Int64,
        _count_if_any: pl.Int64,
        _sum: pl.Int64,
        _dirty: pl.Boolean,
        bool: pl.Boolean,
        float: pl.Float64,
    }
    own = {name: types.get(one[2], pl.String) for name, one in _COLUMNS.items() if name != "attempt"}
    columns = {
        "run_id": pl.Series([reading.index.run_id for reading in readings], dtype=pl.String),
        "sweep": pl.Series([reading.sweep for reading in readings], dtype=pl.String),
        "trainer": pl.Series([trainers.get(reading.sweep) for reading in readings], dtype=pl.String),
        "in_grid": pl.Series(_in_grid(readings), dtype=pl.Boolean),
    }
    points = [reading.index.point for reading in readings]
    # These are keys of the grid and facts of results, and share the fact's column.
    counted = all(_count_if_any(point.get("actors", 1)) is not None for point in points)
    shared = ["threads", *(["actors"] if counted else []), "target"]
    keys = _key_columns(
        (key for point in points for key in point if key not in shared),
        {*columns, *own, "return_metric", *LEVEL_METRICS, *MEASURE_COLUMNS, "state", "reason"},
    )
    for key, name in keys.items():
        columns[name] = _key_series([point.get(key, _ABSENT) for point in points])
    columns["state"] = pl.Series([reading.state.value for reading in readings], dtype=pl.String)
    for name, dtype in own.items():
        values = [reading.facts.get(name) for reading in readings]
        if name == "evaluation_episodes":
            values = [_episodes(reading) for reading in readings]
        columns[name] = pl.Series(values, dtype=dtype)
        if name == "best_return":
            metrics = [_return_metric(reading, trainers.get(reading.sweep), chosen) for reading in readings]
            columns["return_metric"] = pl.Series(metrics, dtype=pl.String)
            for level, metric in LEVEL_METRICS.items():
                values = [_last(reading, metric) if chosen is None else None for reading in readings]
                columns[level] = pl.Series(values, dtype=pl.Float64)
    for key in shared:
        if any(key in point for point in points):
            asked = [_asked(reading, key) for reading in readings]
            columns[key] = columns[key].fill_null(pl.Series(asked, dtype=own[key]))
            keys[key] = key
    if chosen is not None:
        columns[CHOSEN_METRIC] = pl.Series([chosen.name] * len(readings), dtype=pl.String)
        columns[LOWER_IS_BETTER] = pl.Series([chosen.lower] * len(readings), dtype=pl.Boolean)
    columns["reason"] = pl.Series([reading.reason or None for reading in readings], dtype=pl.String)
    return pl.DataFrame(columns), tuple(keys.values())


def _in_grid(readings: Sequence[RunReading]) -> list[bool]:
    """Return which runs are points of the grid; those that such points fork from are their beginnings."""
    forks = [_is_fork(reading.index.point) for reading in readings]
    forking = {reading.sweep for reading, is_fork in zip(readings, forks, strict=True) if is_fork}
    return [
        reading.index.in_grid and (is_fork or reading.sweep not in forking)
        for reading, is_fork in zip(readings, forks, strict=True)
    ]


def _is_fork(point: Mapping[str, Any]) -> bool:
    return "@" in str(point.get("fork", ""))


def _asked(reading: RunReading, key: str) -> Any:
    """Return a key of the run's point, or what it is by default."""
    usual = 1 if key == "threads" and not reading.foreign else None
    value = reading.index.point.get(key, usual)
    return value if key == "target" else _whole(value)


def return_names(row: RunRow) -> tuple[str, ...]:
    """Return the metrics that can be the return of a row of the table of runs, best first."""
    chosen = row.get(CHOSEN_METRIC)
    return (chosen,) if chosen is not None else returns_of(row["trainer"])


def _return_metric(reading: RunReading, trainer: str | None, chosen: ChosenMetric | None) -> str | None:
    """Return the metric of the final return of a run that has ended."""
    names = returns_of(trainer) if chosen is None else (chosen.name,)
    return return_metric(reading.history, names) if _has_ended(reading) else None


def _has_ended(reading: RunReading) -> bool:
    return reading.state in (RunState.DONE, RunState.STALE)


def _with_metric(reading: RunReading, chosen: ChosenMetric) -> RunReading:
    """Return a run that has ended with values of the metric as its returns."""
    if not _has_ended(reading):
        return reading
    figures = return_figures(reading.history, [chosen.name], lower=chosen.lower)
    return replace(reading, facts={**reading.facts, **figures})


def _episodes(reading: RunReading) -> int | None:
    """Return how many episodes an evaluation has: as configured, else as the last one that says it."""
    if (known := reading.facts.get("evaluation_episodes")) is not None:
        return int(known)
    episodes = next(
        (row.metrics[EPISODES] for row in reversed(reading.history) if EPISODES in row.metrics), 0.0
    )
    return int(episodes) if 1 <= episodes < 2**63 else None


def _last(reading: RunReading, metric: str) -> float | None:
    """Return the last value of a metric that a run with a final return recorded."""
    if reading.facts.get("final_return") is None:
        return None
    return next((row.metrics[metric] for row in reversed(reading.history) if metric in row.metrics), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**63 else None


def _key_columns(keys: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Map the grid's keys, seed last, to names of columns: the key itself unless that is taken."""
    names: dict[str, str] = {}
    for key in sorted(dict.fromkeys(keys), key=lambda key: key == "seed"):
        name = key
        while name in taken:
            name = f"grid.{name}"
        taken.add(name)
        names[key] = name
    return names


# In the place of a key that a run does not have, as one that `for` sets for others.
_ABSENT = object()


def _key_series(given: Sequence[Any]) -> pl.Series:
    """Store a key's values in the narrowest type that holds them all; mixed types become text.

    Null as a value becomes text, too: an empty cell is a key that the run does not have.
    """
    values = [None if value is _ABSENT else value for value in given]
    if any(value is None for value in given):
        texts = (None if value is _ABSENT else "null" if value is None else _text(value) for value in given)
        return pl.Series(list(texts), dtype=pl.String)
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    if kinds == {int} and all(_whole(value) is not None for value in values if value is not None):
        return pl.Series(values, dtype=pl.Int64)
    if kinds in ({float}, {int, float}):
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    return pl.Series([None if value is None else _text(value) for value in values], dtype=pl.String)


def metrics_table(readings: Sequence[RunReading]) -> pl.DataFrame:
    """Build the table of metrics in long form: a row per run, iteration and metric."""
    runs, rows = [], []
    lengths: list[int] = []
    names: list[str] = []
    values: list[float] = []
    for number, reading in enumerate(readings):
        for row in reading.history:
            runs.append(number)
            rows.append(row)
            lengths.append(len(row.metrics))
            names.extend(row.metrics)
            values.extend(row.metrics.values())
    steps = pl.DataFrame(
        {
            "run": pl.Series(runs, dtype=pl.UInt32),
            "iteration": pl.Series([row.iteration for row in rows], dtype=pl.Int64),
            "frames": pl.Series([row.frames for row in rows], dtype=pl.Int64),
            "wall_time": pl.Series([row.wall_time for row in rows], dtype=pl.Float64).fill_nan(None),
        }
    )
    long = (
        steps[np.repeat(np.arange(len(rows)), lengths)]
        .with_columns(
            name=pl.Series(names, dtype=pl.String), value=pl.Series(values, dtype=pl.Float64, strict=False)
        )
        .sort("run", "iteration", "name", maintain_order=True)
    )
    identities = pl.DataFrame(
        {
            "sweep": pl.Series([reading.sweep for reading in readings], dtype=pl.String),
            "run_id": pl.Series([reading.index.run_id for reading in readings], dtype=pl.String),
        }
    )
    return pl.concat([identities[long["run"]], long.drop("run")], how="horizontal").select(
        "sweep", "run_id", "iteration", "frames", "name", "value", "wall_time"
    )


def diverged(row: RunRow) -> bool:
    """Return whether a finished run recorded a return, but no finite one in the end."""
    return row["return_metric"] is not None and not finite(row["final_return"])


def known(rows: Iterable[RunRow], column: str) -> tuple[float, ...]:
    """Return the finite values of a column."""
    return tuple(row[column] for row in rows if finite(row[column]))


def places(rows: Sequence[RunRow]) -> dict[str, str]:
    """Return for the runs that do not count, by id, what they are."""
    begun_with = {row["prefix"] for row in rows}
    return {
        row["run_id"]: "beginning of others" if row["run_id"] in begun_with else "outside the grid"
        for row in rows
        if not row["in_grid"]
    }


def distinct(rows: Iterable[RunRow]) -> list[RunRow]:
    """Return the rows, the first one of those with identical metrics."""
    first: dict[Any, RunRow] = {}
    for row in rows:
        first.setdefault(row.get(METRICS_HASH) or id(row), row)
    return list(first.values())

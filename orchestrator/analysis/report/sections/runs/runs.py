"""All runs, with details on a click."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column, Table
from orchestrator.analysis.report.blocks import Block, Details, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.sections.runs.run_details import run_details
from orchestrator.analysis.run_table import GAP, TRAINING_LEVELS, RunRow, places
from orchestrator.core.labels import short_keys, varying_keys
from orchestrator.core.types import RunState
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING

# Most runs that a browser sorts and filters without a pause; results.csv has all.
_MOST_ROWS = 1000


def section(data: ReportData) -> Section:
    """Return the section."""
    shown = data.rows[:_MOST_ROWS]
    several = len({row["sweep"] for row in data.rows}) > 1
    table = runs_table(shown, data.collected.keys, several=several)
    details = Details(run_details(data.sweep_dirs, shown, data.collected.points))
    blocks: tuple[Block, ...] = (table, details)
    if len(data.rows) > len(shown):
        blocks = (
            *blocks,
            Text(f"{len(data.rows) - len(shown):,} more runs are in results.csv.", note=True),
        )
    return Section("runs", "Runs", blocks)


def runs_table(rows: Sequence[RunRow], keys: Sequence[str], *, several: bool) -> Table:
    """Return the table of runs; ``several`` adds a column for the sweep."""
    points = [{key: row[key] for key in keys if row[key] is not None} for row in rows]
    varying = varying_keys(points)
    if len({row["target"] for row in rows} - {None}) > 1 and "target" not in varying:
        varying = [*varying, "target"]
    short = short_keys(varying)
    numbers = [
        (name, column)
        for name, column in _RUN_NUMBERS
        if column not in _NOT_OF_ALL or any(row[column] is not None for row in rows)
    ]
    heads = (
        *cells.columns("run", *(["sweep"] if several else [])),
        *(Column(short[key], _numbers(rows, key)) for key in varying),
        *cells.columns("state", *(f"#{name}" for name, _ in numbers), "host", "config"),
    )
    apart = places(rows)
    told = [
        (
            Cell(row["run_id"][:8], title=row["run_id"]),
            *([Cell(row["sweep"])] if several else []),
            *(cells.cell(row[key]) for key in varying),
            Cell(_state(row, apart), title=row["reason"] or "", state=row["state"]),
            *(cells.number(row[column]) for _, column in numbers),
            Cell(row["hostname"] or cells.MISSING),
            Cell((row["config_hash"] or cells.MISSING)[:8], title=row["config_hash"] or ""),
        )
        for row in rows
    ]
    counted = Counter(row["state"] for row in rows)
    states = tuple((state.value, counted[state.value]) for state in RunState if counted[state.value])
    return Table("runs", heads, tuple(told), states, most=len(told))


def _numbers(rows: Sequence[RunRow], key: str) -> bool:
    values = [row[key] for row in rows if row[key] is not None]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _state(row: RunRow, apart: Mapping[str, str]) -> str:
    return ", ".join(filter(None, (str(row["state"]), apart.get(row["run_id"]))))


_RUN_NUMBERS = (
    ("attempts", "attempts"),
    ("frames", "frames"),
    ("initial return", "initial_return"),
    ("final return", "final_return"),
    ("best return", "best_return"),
    ("on levels of training", TRAINING_LEVELS),
    ("gap", GAP),
    ("training frames/s", TRAINING),
    ("end-to-end frames/s", END_TO_END),
    ("s/iteration", "seconds_per_iteration"),
    ("wall time (s)", "wall_time"),
    ("train time (s)", "train_time"),
    ("peak memory (MiB)", "peak_memory_mb"),
    ("episodes", "training_episodes"),
)

# Left out of a table without values.
_NOT_OF_ALL = ("training_episodes", "initial_return", TRAINING_LEVELS, GAP)

"""Runs without a usable result, with the next command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.collect import Missing
from orchestrator.analysis.report.blocks import Section
from orchestrator.analysis.report.data import ReportData
from orchestrator.core.labels import Point, labeller
from orchestrator.core.types import RunState

_MOST_MISSING = 200


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    missing = data.collected.missing
    if not missing:
        return None
    label = labeller(list(data.collected.points.values()))
    table = replace(missing_table(missing, label), most=_MOST_MISSING)
    return Section("missing", "Failed, skipped and missing", (table,))


def missing_table(missing: Sequence[Missing], label: Callable[[Point], str]) -> Table:
    """Return the table of runs without a usable result: state, reason, and the next command.

    ``label`` names a run's keys.
    """
    rows = (
        {
            "run": Cell(f"{item.run_id[:8]} {label(item.point)}".strip(), title=item.run_id),
            "state": Cell(item.state.value, state=item.state.value),
            "reason": Cell(item.reason or cells.MISSING),
            "next": Cell(_next(item), source=True),
        }
        for item in missing
    )
    return cells.table("missing runs", rows)


def _next(item: Missing) -> str:
    name = f"{item.sweep} {item.run_id}"
    commands = {
        RunState.FAILED: f"orchestrate logs {name}\norchestrate retry {name}",
        RunState.CANCELLED: f"orchestrate retry {name}",
        RunState.UNKNOWN: f"orchestrate logs {name}",
        RunState.RUNNING: f"orchestrate logs {name} -f",
        RunState.STALLED: f"orchestrate logs {name} -f",
        RunState.QUEUED: f"orchestrate status {item.sweep}",
        RunState.SKIPPED: "orchestrate sweep --grid GRID --on TARGET",
    }
    return commands.get(item.state, "orchestrate sweep --grid GRID")

"""Metrics that a finished program left in its working folder, where none were recorded while it ran.

A section `metrics` that the grid has got since says which file to read: no run is trained again for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.config.grid import parse_grid
from orchestrator.config.returns import return_figures
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.metric_files.folder import MetricFolder
from orchestrator.rundir import Row, SweepDir, add_row


def metrics_section(sweep_dir: SweepDir) -> Mapping[str, str]:
    """Return the section `metrics` of a sweep's latest grid; empty if it cannot be read here."""
    latest = sweep_dir.latest_grid()
    try:
        return parse_grid(latest[1], str(sweep_dir.path)).metrics if latest else {}
    except OrchestrateError:
        return {}


def left_metrics(folder: Path, declared: Mapping[str, str], *, timed: bool = False) -> list[Row]:
    """Return the rows of what a program left in its folder, as the grid declares it.

    Wall times are unknown, or if ``timed`` count from the first row.
    """
    files = MetricFolder(folder, declared, {})
    files.ended()
    rows: list[Row] = []
    began = math.nan
    while found := files.last_rows():
        for row in found:
            last = rows[-1] if rows else Row(0, -1)
            if row.frames >= last.frames:
                number = last.iteration + (row.frames != last.frames)
                seconds = row.time if timed and row.time is not None else math.nan
                began = began if rows else seconds
                add_row(rows, Row(number, row.frames, seconds - began, row.values))
    return rows


def figures_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the columns of the table of runs that these rows decide."""
    if not rows:
        return {}
    reached = {"frames": rows[-1].frames, "iterations": rows[-1].iteration}
    return {**reached, **return_figures(rows, COMMAND.returns)}

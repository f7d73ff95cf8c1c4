"""Cells of tables with a row for each group: what names it, and its throughputs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.blocks import Block, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.planning.throughput.measure import PROVISIONAL


def places(groups: Sequence[SeedGroup]) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    """Return the columns that name a group: sweep and task where there are several, and its label."""
    sweeps, tasks = {group.sweep for group in groups}, {group.task for group in groups}
    labels = names([group.point for group in groups], ("task", "sweep"))
    heads = (
        *(cells.columns("sweep") if len(sweeps) > 1 else ()),
        *(cells.columns("task") if len(tasks) > 1 else ()),
        *cells.columns("group"),
    )
    return heads, [
        (
            *((Cell(group.sweep),) if len(sweeps) > 1 else ()),
            *((Cell(group.task or cells.MISSING),) if len(tasks) > 1 else ()),
            Cell(label),
        )
        for group, label in zip(groups, labels, strict=True)
    ]


THROUGHPUTS = ("#training frames/s", "#end-to-end frames/s")


def end_to_end(values: Sequence[float], provisional: bool) -> Cell:
    """Return the median of these throughputs, with an asterisk if it is provisional."""
    told = cells.number(middle(values))
    if not values or not provisional:
        return told
    return Cell(f"{told.text}*", told.sort, more=(("note", "provisional"),))


def provisional_note(data: ReportData) -> tuple[Block, ...]:
    """Return the footnote to throughputs with an asterisk, if there are any."""
    marked = any(speed.provisional for speed in data.speeds)
    return (Text(f"* {PROVISIONAL}.", note=True),) if marked else ()

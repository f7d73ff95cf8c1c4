"""Cells of tables with a row for each group: what names it, and its throughputs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.blocks import Block, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.planning.throughput.measure import PROVISIONAL


def places(groups: Sequence[SeedGroup]) -> list[dict[str, Cell]]:
    """Return the cells that name each group: sweep and task where there are several, and its label."""
    labels = names([group.point for group in groups], ("task", "sweep"))
    told = {
        "sweep": [group.sweep for group in groups],
        "task": [group.task or cells.MISSING for group in groups],
    }
    several = {key: texts for key, texts in told.items() if len(set(texts)) > 1} | {"group": labels}
    return [{key: Cell(texts[at]) for key, texts in several.items()} for at in range(len(groups))]


def throughputs(training: Sequence[float], end_to_end: Sequence[float], provisional: bool) -> dict[str, Cell]:
    """Return the medians of both, the end-to-end throughput with an asterisk if it is provisional."""
    whole = cells.number(middle(end_to_end))
    if end_to_end and provisional:
        whole = Cell(f"{whole.text}*", whole.sort, more=(("note", "provisional"),))
    return {"#training frames/s": cells.number(middle(training)), "#end-to-end frames/s": whole}


def provisional_note(data: ReportData) -> tuple[Block, ...]:
    """Return the footnote to throughputs with an asterisk, if there are any."""
    marked = any(speed.provisional for speed in data.speeds)
    return (Text(f"* {PROVISIONAL}.", note=True),) if marked else ()

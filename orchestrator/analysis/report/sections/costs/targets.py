"""Targets of a sweep side by side."""

from __future__ import annotations

from itertools import count

from orchestrator.analysis.compare import target_comparisons
from orchestrator.analysis.compare.wording import verdict
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.comparison import comparison_blocks, comparison_pictures
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    blocks: list[Block] = []
    drawn = count(1)
    comparisons = target_comparisons(data.sweep_dirs, data.collected, data.prices)
    for sweep, comparison in comparisons.items():
        blocks.append(Text((f"{sweep}: " if len(comparisons) > 1 else "") + verdict(comparison)))
        blocks += [
            Gallery(tuple(plotting.first(comparison_pictures(comparison, "targets", drawn)))),
            *comparison_blocks(comparison),
        ]
    return Section("targets", "Targets", tuple(blocks)) if blocks else None

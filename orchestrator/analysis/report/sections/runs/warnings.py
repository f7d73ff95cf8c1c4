"""Limits of the results, to be read first."""

from __future__ import annotations

from orchestrator.analysis.groups.limits import lacking_returns, warnings
from orchestrator.analysis.report.blocks import Points, Section
from orchestrator.analysis.report.data import ReportData

_MOST_WARNINGS = 100


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    lacking = lacking_returns(data.collected, data.groups)
    lines = [("", text) for text in (*lacking, *warnings(data.finals), *data.collected.warnings)]
    lines += [("damaged:", text) for text in data.collected.problems]
    if not lines:
        return None
    shown = lines[:_MOST_WARNINGS]
    if len(lines) > len(shown):
        shown.append(("", f"{len(lines) - len(shown):,} more: orchestrate collect SWEEP prints them all"))
    return Section("warnings", "Before you read on", (Points(tuple(shown)),))

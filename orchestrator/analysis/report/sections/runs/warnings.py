"""Limits of the results, to be read first."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.analysis.groups.limits import lacking_returns, warnings
from orchestrator.analysis.report.blocks import Points, Section
from orchestrator.analysis.report.data import ReportData

_MOST_WARNINGS = 100


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    lacking = lacking_returns(data.collected, data.groups)
    texts = (*lacking, *_overstated(data), *warnings(data.finals), *data.collected.warnings)
    lines = [("", text) for text in texts]
    lines += [("damaged:", text) for text in data.collected.problems]
    if not lines:
        return None
    shown = lines[:_MOST_WARNINGS]
    if len(lines) > len(shown):
        shown.append(("", f"{len(lines) - len(shown):,} more: orchestrate collect SWEEP prints them all"))
    return Section("warnings", "Before you read on", (Points(tuple(shown)),))


def _overstated(data: ReportData) -> Iterator[str]:
    """Yield a warning for each sweep with results that are said to be more exact than an audit found."""
    for sweep_dir in data.sweep_dirs:
        codes = {row["code_id"] for row in data.by_sweep[sweep_dir.name]}
        for audit in sweep_dir.audits.read():
            if audit.overstated and audit.code_id in codes:
                yield audit.warning(sweep_dir.name)

"""The fairness audit: a row for each condition, red where it differs."""

from __future__ import annotations

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell
from orchestrator.analysis.groups.speeds import FEWEST_RUNS
from orchestrator.analysis.report.blocks import Folded, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.verdict.fairness import FairnessCheck, red_flags
from orchestrator.core.formatting import count

_MOST_FLAGS = 20

_AUDIT = (
    "A red flag is a condition that is not equal for all variants of a task, so it may explain a difference "
    "between them. Unequal hardware and threads distort speed, and equal seeds need not give equal returns. "
    f"Speed over time: a busy hour, or a machine that got slower; it takes {FEWEST_RUNS} finished runs."
)

_TITLE = "Fairness audit"

_NOTHING = "There is nothing to compare yet: no task has two variants with finished runs."


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` for a single group."""
    if len(data.groups) < 2:
        return None
    if not any(check.compared for check in data.audit):
        return Section("audit", _TITLE, (Text(_NOTHING),))
    words = data.collected.in_words
    rows = (
        {
            "condition": Cell(words(check.name)),
            "between variants": _judged(check),
            "red flag": Cell(words("\n".join(check.flags[:_MOST_FLAGS]))),
        }
        for check in data.audit
    )
    blocks = (cells.table("conditions", rows, headed=True), Text(_AUDIT, note=True))
    if red_flags(data.audit):
        return Section("audit", _TITLE, blocks)
    told = sum(check.compared for check in data.audit)
    return Section("audit", _TITLE, (Folded(f"No red flag in {count(told, 'condition')}", blocks),))


def _judged(check: FairnessCheck) -> Cell:
    if check.flags:
        return Cell("differs", state="failed")
    if check.varied:
        return Cell("varied by the grid")
    return Cell("no difference found" if check.compared else "nothing to compare")

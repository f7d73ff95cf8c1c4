"""The section of the fairness audit: a row for each condition, red where it differs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.report.blocks import Cell, Section, Table, Text, columns
from orchestrator.analysis.verdict.fairness import Check

_MOST_FLAGS = 20
_AUDIT = (
    "A red flag is a condition that is not equal for all variants of a task, so it may explain a difference "
    "between them. Unequal hardware and threads distort speed, and equal seeds need not give equal returns. "
    "Speed over time: a busy hour, or a machine that got slower."
)


def audit_section(checks: Sequence[Check]) -> Section:
    """Return the section of these checks."""
    rows = [
        (
            Cell(check.name),
            Cell("differs", state="failed") if check.flags else Cell("no difference found"),
            Cell("\n".join(check.flags[:_MOST_FLAGS])),
        )
        for check in checks
    ]
    table = Table(
        "conditions", columns("condition", "between variants", "red flag"), tuple(rows), headed=True
    )
    return Section("audit", "Fairness audit", (table, Text(_AUDIT, note=True)))

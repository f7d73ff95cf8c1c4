"""The page's sections, one module each: its ``section`` returns it, ``None`` if there is nothing to show."""

from __future__ import annotations

from orchestrator.analysis.report.blocks import Section, reworded
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing.plotting import Picture
from orchestrator.analysis.report.sections.costs import (
    cost,
    money,
    scaling,
    speed,
    targets,
    thresholds,
    where,
)
from orchestrator.analysis.report.sections.returns import (
    answer,
    effects,
    evidence,
    final,
    generalization,
    groups,
    improvement,
    learning,
    losses,
    profiles,
)
from orchestrator.analysis.report.sections.runs import (
    audit,
    baselines,
    evaluations,
    missing,
    provenance,
    runs,
    sweeps,
    warnings,
)
from orchestrator.core.progress import counted

# In the page's order.
_SECTIONS = (
    *(answer.section, learning.section, evidence.section, audit.section, warnings.section, sweeps.section),
    *(groups.section, final.section, generalization.section, profiles.section, improvement.section),
    *(thresholds.section, cost.section, effects.section, baselines.section, evaluations.section),
    *(losses.section, speed.section, scaling.section, where.section, money.section, targets.section),
    *(missing.section, runs.section, provenance.section),
)
# First of a grid that asks what is fastest.
_OF_SPEED = (answer.section, speed.section, where.section, scaling.section)
_PICTURES = {
    "learning": learning.pictures,
    "losses": losses.pictures,
    "final": final.pictures,
    "speed": speed.pictures,
}


def sections(data: ReportData) -> list[Section]:
    """Build the sections that have content."""
    order = tuple(dict.fromkeys((*_OF_SPEED, *_SECTIONS))) if data.fastest else _SECTIONS
    made = (section(data) for section in counted(order, "working out sections", len(order)))
    return [reworded(section, data.collected.in_words) for section in made if section is not None]


def pictures(data: ReportData, kind: str) -> list[Picture]:
    """Draw the pictures of ``learning`` curves, ``losses``, ``final`` returns or ``speed``."""
    return [picture.reworded(data.collected.in_words) for picture in _PICTURES[kind](data)]

"""Losses over training frames."""

from __future__ import annotations

from itertools import islice

from orchestrator.analysis.groups.curves import curves_of, loss_metrics
from orchestrator.analysis.report.blocks import Section, drawn_section
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing.plotting import LINES, Picture
from orchestrator.analysis.report.sections.returns.learning import learning_pictures

_MOST_LOSSES = 6


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    drawn = pictures(data)
    many = len(data.groups) > MOST_DRAWN or len(drawn) == _MOST_LOSSES
    return drawn_section("losses", "Losses", drawn, "", many=many) if drawn else None


def pictures(data: ReportData) -> tuple[Picture, ...]:
    """Draw the first losses of the first groups."""
    names = loss_metrics(data.collected)[:_MOST_LOSSES]
    found = curves_of(data.collected, data.groups[:MOST_DRAWN], names)
    # The pictures hold no more; a metric that they begin is whole.
    losses = list(islice(found, _MOST_LOSSES * LINES + MOST_DRAWN))
    return tuple(islice(learning_pictures(losses, "losses"), _MOST_LOSSES))

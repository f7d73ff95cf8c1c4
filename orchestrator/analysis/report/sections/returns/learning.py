"""Learning curves: a chart to explore, and pictures for paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.groups.curves import Curve
from orchestrator.analysis.report.blocks import Block, Chart, Folded, Section, Text, drawn_section
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.report.sections.returns import chart_data
from orchestrator.analysis.statistics.significance import INTERVAL_SEEDS, Floats


def section(data: ReportData) -> Section:
    """Return the section."""
    many = len(data.groups) > MOST_DRAWN
    figures = pictures(data)
    recorded = any(row["return_metric"] is not None for row in data.rows)
    nothing = "No run has recorded a finite return." if recorded else "No run has recorded a return yet."
    drawn = drawn_section("learning", "Learning", figures, nothing, many=many)
    if not figures:
        return drawn
    lines = chart_data.charted(data.curves)
    finals = {id(final.group): cells.shown(final.estimate.value) for final in data.finals if final.estimate}
    blocks: list[Block] = [Chart(chart_data.chart_data(lines, data.prices, finals))]
    if left := len(data.curves) - len(lines):
        blocks.append(Text(f"{left:,} more lines are left out, those with the worst returns.", note=True))
    return Section("learning", "Learning", (*blocks, Folded("As pictures, for a paper", drawn.blocks)))


def pictures(data: ReportData) -> tuple[Picture, ...]:
    """Draw the first groups."""
    return plotting.first(learning_pictures(data.curves[:MOST_DRAWN]))


def learning_pictures(curves: Sequence[Curve], kind: str = "learning") -> Iterator[Picture]:
    """Draw one picture per task and metric, split where lines are too many; small where there are several.

    ``kind``: how their names begin.
    """
    panels = plotting.panels(curves, lambda curve: (curve.group.task, curve.metric), plotting.LINES)
    for number, (part, title, panel, small) in enumerate(panels, 1):
        yield plotting.picture(
            f"{kind}-{number}",
            title,
            _learning(part, title, _limits(panel), small=small),
            caption=_learning_caption(part),
            alt=_learning_alt(part, title, "Learning curves" if kind == "learning" else "Losses"),
            small=small,
        )


def _learning(
    part: Sequence[tuple[Curve, str]], title: str, limits: tuple[float, float] | None, *, small: bool
) -> Draw:
    labels = [f"{label} (n={len(curve.scores)})" for curve, label in part]

    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(
            (3.4 if small else 4.3) + plotting.legend_height(labels, small=small), small=small
        )
        lines = []
        for curve, _ in part:
            number, side = curve.group.number, curve.group.side
            line = ":" if curve.unfinished else plotting.dash(number, side)
            for scores in _seeds(curve):
                on.plot(curve.x, scores, color=theme.line(number), linewidth=0.7, alpha=0.45)
            lines.append(plotting.band(on, curve, line, plotting.marker(number, side), theme.line(number)))
        plotting.heading(on, title, small=small)
        on.set_xlabel("training frames")
        on.set_ylabel(plotting.return_name(part[0][0].metric))
        on.xaxis.set_major_formatter(plotting.compact)
        on.set_xlim(left=0)
        if limits is not None:
            on.set_ylim(limits)
        plotting.legend(figure, lines, labels, small=small)
        return figure

    return draw


def _seeds(curve: Curve) -> list[Floats]:
    """Return the seeds to draw themselves: those of a curve that has too few for an interval."""
    few = curve.band[1] is None and len(curve.scores) > 1
    return list(curve.scores) if few else []


def _limits(panel: Sequence[Curve]) -> tuple[float, float] | None:
    """Return the range of returns that all pictures of a task share, so that they can be compared."""
    if len(panel) <= plotting.LINES:
        return None
    drawn = (end for curve in panel for end in (*curve.band, *_seeds(curve)) if end is not None)
    return plotting.shared_range([float(value) for end in drawn for value in end])


def _learning_caption(part: Sequence[tuple[Curve, str]]) -> str:
    metric = part[0][0].metric
    lines = [
        f"{metric}: interquartile mean over seeds and, from {INTERVAL_SEEDS} seeds on, its 95 % "
        "interval at each point; thin lines are the seeds of a line that has fewer."
    ]
    lines += [f"{label}: {curve.note}." for curve, label in part if curve.note]
    return " ".join(lines)


def _learning_alt(part: Sequence[tuple[Curve, str]], title: str, what: str) -> str:
    ends = [f"{label} ends at {curve.band[0][-1]:.4g}" for curve, label in part]
    metric = part[0][0].metric
    over = f"{plotting.return_name(metric)} over training frames"
    return f"{what}{plotting.about(title)}: {over}. {plotting.listed(ends)}."

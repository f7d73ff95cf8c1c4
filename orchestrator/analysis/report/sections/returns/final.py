"""Final returns: each run, and the interquartile means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.report.blocks import Section, drawn_section
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.core.formatting import count


def section(data: ReportData) -> Section:
    """Return the section."""
    drawn = pictures(data)
    return drawn_section("final", "Final returns", drawn, "No finished run has a finite final return.")


def pictures(data: ReportData) -> tuple[Picture, ...]:
    """Draw the first groups."""
    return plotting.first(final_pictures(data.returning[:MOST_DRAWN]))


def final_pictures(finals: Sequence[Final]) -> Iterator[Picture]:
    """Draw one picture per task of every group that has a final return; small where there are several."""
    returning = [final for final in finals if final.estimate is not None]
    panels = plotting.panels(returning, lambda final: (final.group.task,), plotting.BARS)
    for number, (part, title, panel, small) in enumerate(panels, 1):
        means = [f"{name}: {final.estimate}, {count(len(final.values), 'seed')}" for final, name in part]
        yield plotting.picture(
            f"final-{number}",
            title,
            _finals(part, title, _range(panel), small=small),
            caption=(
                "Final return of each run (dots), their interquartile mean (diamond) and its 95 % "
                "interval (bar; none below four seeds). Raw returns, not normalised."
            ),
            alt=f"Final returns{plotting.about(title)}. {plotting.listed(means)}.",
            small=small,
        )


def _range(panel: Sequence[Final]) -> tuple[float, float] | None:
    """Return the range of returns that all pictures of a task share, ``None`` for a single picture."""
    if len(panel) <= plotting.BARS:
        return None
    return plotting.shared_range([value for final in panel for value in final.values])


def _finals(
    part: Sequence[tuple[Final, str]], title: str, limits: tuple[float, float] | None, *, small: bool
) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(1.2 + 0.42 * len(part), small=small)
        for row, (final, _) in enumerate(part):
            assert final.estimate is not None
            colour = theme.line(final.group.number)
            on.plot(final.values, [row] * len(final.values), "o", color=colour, markersize=4, alpha=0.7)
            plotting.diamond(on, row, final.estimate, colour, theme)
        plotting.heading(on, title, small=small)
        plotting.rows(on, [f"{label} (n={len(final.values)})" for final, label in part], 22 if small else 30)
        on.set_xlabel("final return")
        if limits is not None:
            on.set_xlim(*limits)
        return figure

    return draw

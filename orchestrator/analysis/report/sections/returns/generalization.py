"""Returns on levels of training and on unseen ones, and the gap between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.generalization import Generalization, Sample, generalizations
from orchestrator.analysis.report.blocks import Gallery, Section, Text
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.report.group_cells import places

_NOTE = (
    "Of runs whose evaluations also play episodes on the levels of training. Unseen levels: the final "
    "return. Levels of training, and the gap, by which they return more: of the same evaluations, measured "
    "in the same way. Each is the interquartile mean over seeds (up to three seeds, their mean), with a 95 % "
    "interval by bootstrap over seeds, from four seeds on. Where the interval of a gap contains zero, these "
    "seeds do not show that unseen levels return less. A gap is the estimate of the seeds' gaps, which need "
    "not be the difference of the other two."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no run was evaluated on levels of training as well."""
    generalized = generalizations(data.groups)[:MOST_DRAWN]
    if not generalized:
        return None
    drawn = Gallery(plotting.first(_pictures(generalized)))
    return Section("generalization", "Generalization", (drawn, _table(generalized), Text(_NOTE, note=True)))


def _pictures(generalized: Sequence[Generalization]) -> Iterator[Picture]:
    panels = plotting.panels(generalized, lambda one: (one.group.task,), plotting.BARS)
    for number, (part, title, *_) in enumerate(panels, 1):
        gaps = [f"{name}: {one.gap.estimate}, {len(one.gap.values)} seeds" for one, name in part]
        yield plotting.picture(
            f"generalization-{number}",
            title,
            _drawn(part, title),
            caption=(
                "Left: final return of each run (small), and their interquartile mean with its 95 % "
                "interval (bar; none below four seeds): full on unseen levels, hollow on "
                "those of training. Right: the gap of each run, and the same of them."
            ),
            alt=f"Gap between levels of training and unseen levels{plotting.about(title)}. "
            f"{plotting.listed(gaps)}.",
        )


def _drawn(part: Sequence[tuple[Generalization, str]], title: str) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, left = plotting.axes(1.7 + 0.5 * len(part), columns=2)
        right = figure.axes[1]
        for row, (generalization, _) in enumerate(part):
            colour = theme.line(generalization.group.number)
            _sample(left, row - 0.17, generalization.unseen, colour, theme)
            _sample(left, row + 0.17, generalization.training, colour, theme, hollow=True)
            _sample(right, row, generalization.gap, colour, theme)
        right.axvline(0, color=theme.ink, linewidth=0.8, linestyle=":")
        plotting.heading(left, title)
        plotting.rows(left, [f"{label} (n={len(one.gap.values)})" for one, label in part], 22)
        plotting.rows(right, [""] * len(part))
        left.set_xlabel("final return")
        right.set_xlabel("gap: levels of training less unseen levels")
        mark = {"marker": "D", "linestyle": "", "color": theme.ink}
        plotting.style_legend(
            figure,
            [("unseen levels", mark), ("levels of training", {**mark, "fillstyle": "none"})],
            columns=2,
        )
        return figure

    return draw


def _sample(on: Axes, row: float, sample: Sample, colour: str, theme: Theme, *, hollow: bool = False) -> None:
    fill = "none" if hollow else "full"
    at = [row] * len(sample.values)
    on.plot(sample.values, at, "o", color=colour, markersize=4, alpha=0.7, fillstyle=fill)
    plotting.diamond(on, row, sample.estimate, colour, theme)
    if hollow:
        on.plot(sample.estimate.value, row, "D", color=theme.paper, markersize=4, markeredgecolor=theme.paper)


def _table(generalized: Sequence[Generalization]) -> Table:
    """Return the table of returns on unseen levels, on those of training, and of the gaps."""
    rows = (
        name
        | {
            "#n": cells.number(len(generalization.gap.values)),
            "#unseen levels, IQM [95 %]": cells.estimated(generalization.unseen.estimate),
            "#levels of training, IQM [95 %]": cells.estimated(generalization.training.estimate),
            "#gap, IQM [95 %]": cells.estimated(generalization.gap.estimate),
            "note": Cell(generalization.note),
        }
        for generalization, name in zip(generalized, places([one.group for one in generalized]), strict=True)
    )
    return cells.table("generalization", rows)

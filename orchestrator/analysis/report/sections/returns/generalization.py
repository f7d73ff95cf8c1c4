"""Returns on levels of training and on unseen ones, and the gap between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

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
    unseen = generalizations(data.groups)[:MOST_DRAWN]
    if not unseen:
        return None
    drawn = Gallery(tuple(islice(_pictures(unseen), plotting.MOST_PICTURES)))
    return Section("generalization", "Generalization", (drawn, _table(unseen), Text(_NOTE, note=True)))


def _pictures(unseen: Sequence[Generalization]) -> list[Picture]:
    drawn: list[Picture] = []
    for task in dict.fromkeys(generalization.group.task for generalization in unseen):
        own = [generalization for generalization in unseen if generalization.group.task == task]
        named = list(zip(own, plotting.group_names([one.group for one in own]), strict=True))
        for part, title in plotting.bundles(
            named, lambda one: (one.group.number, one.group.side), plotting.BARS, task
        ):
            gaps = [f"{name}: {one.gap.estimate}, {len(one.gap.values)} seeds" for one, name in part]
            drawn.append(
                plotting.picture(
                    f"generalization-{len(drawn) + 1}",
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
            )
    return drawn


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


def _table(unseen: Sequence[Generalization]) -> Table:
    """Return the table of returns on unseen levels, on those of training, and of the gaps."""
    heads, named = places([generalization.group for generalization in unseen])
    rows = tuple(
        (
            *name,
            cells.number(len(generalization.gap.values)),
            *(
                cells.estimated(sample.estimate)
                for sample in (generalization.unseen, generalization.training, generalization.gap)
            ),
            Cell(generalization.note),
        )
        for generalization, name in zip(unseen, named, strict=True)
    )
    told = (f"#{name}, IQM [95 %]" for name in ("unseen levels", "levels of training", "gap"))
    return Table("generalization", (*heads, *cells.columns("#n", *told, "note")), rows)

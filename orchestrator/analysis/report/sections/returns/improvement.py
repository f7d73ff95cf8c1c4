"""Probability of improvement: one variant against the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.improvement import Improvement, standing
from orchestrator.analysis.groups.limits import unranked
from orchestrator.analysis.report.blocks import Block, Gallery, Points, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.statistics.pairs import FEW_PAIRS
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.analysis.verdict.leaders import countable


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    comparison = standing(data.returning, overall=countable(data.returning))
    if not comparison.pairs and not comparison.left_out:
        return None
    left_out = [("left out:", text) for text in comparison.left_out]
    flags = [("", text) for text in unranked(data.finals)]
    blocks: list[Block] = [Points((*flags, *left_out))] if flags or left_out else []
    if comparison.pairs:
        drawn = Gallery(tuple(plotting.first(improvement_pictures(comparison.pairs))))
        note = _PAIRS + _WITHIN * any(pair.pairs for pair in comparison.pairs)
        blocks += [drawn, improvement_table(comparison.pairs), Text(note, note=True)]
    else:
        blocks.insert(0, Text(_NO_PAIR))
    return Section("improvement", "Probability of improvement", tuple(blocks))


_NO_PAIR = (
    f"No verdict: that takes two variants of a task with {FEW_SEEDS} seeds each, and final returns of the "
    "same metric, after as many frames, in as many evaluation episodes."
)

_PAIRS = (
    "P(X > Y) is the chance that a run of X returns more than a run of Y, a tie counting half, with its "
    "95 % interval by bootstrap over seeds, of that pair by itself; it says how often, not by how much. X "
    "has the highest interquartile mean of the variants with two thirds of the most seeds in its task or "
    "more, over all tasks it is the one that beats the others most often, and P the mean over tasks. Y are "
    "the next ones, up to 50 of a task. Significant: p is the higher p-value of two tests, corrected "
    "for all that is compared, as X was picked from it. Where alike variants have the same "
    "distribution of returns, at most one page in twenty has a yes by luck. "
    f"Variants with fewer than {FEW_SEEDS} seeds are left out."
)

_WITHIN = (
    f" Forks with common prefix and seed, {FEW_PAIRS} pairs or more, are compared within pairs: P is the "
    "share of pairs that X wins, its interval by bootstrap of pairs, and p of Wilcoxon's signed rank test."
)

# Most pairs in a picture that can still be read.
_MOST_PAIRS = 12

# A profile's line rises or falls at its thresholds; half way down it, half of the runs are left.
_HALF = 0.5


def improvement_pictures(improvements: Sequence[Improvement]) -> Iterator[Picture]:
    """Draw each reference variant against the others, one picture per reference."""
    by_first = gathered(((pair.tasks, id(pair.better)), pair) for pair in improvements)
    small = len(by_first) > 1
    for number, ((tasks, _), pairs) in enumerate(by_first.items(), 1):
        title = tasks[0] if len(tasks) == 1 else f"All {len(tasks)} tasks"
        shown = pairs[:_MOST_PAIRS]
        first = pairs[0].better.label
        caption = (
            f"Chance that a run of {first} returns more than one of the variant at the left, and the 95 % "
            f"interval of each by itself. {_verdict_text(pairs)}"
        )
        if len(pairs) > len(shown):
            caption += f" The {len(shown)} that come nearest to it; the table has more."
        said = [f"than {pair.other.label}: {pair}" for pair in shown]
        yield plotting.picture(
            f"improvement-{number}",
            title,
            _improvements(shown, title, small=small),
            caption=caption,
            alt=f"Probability that a run of {first} returns more{plotting.about(title)}. "
            f"{plotting.listed(said)}.",
            small=small,
        )


def _verdict_text(pairs: Sequence[Improvement]) -> str:
    """Name the variants that differ significantly."""
    apart = [pair.other.label for pair in pairs if pair.beyond_chance]
    return f"Significant: {plotting.listed(apart)}." if apart else "None of these differences is significant."


def _improvements(pairs: Sequence[Improvement], title: str, *, small: bool) -> Draw:
    first = plotting.short(pairs[0].better.label)

    def draw(theme: Theme) -> Figure:
        lines = plotting.wrapped(f"P({first} > …)", 40).count("\n")
        figure, on = plotting.axes(1.3 + 0.36 * len(pairs) + 0.2 * lines, small=small)
        on.axvline(_HALF, color=theme.ink, linewidth=1, linestyle=":")
        for row, pair in enumerate(pairs):
            colour = theme.line(pair.other.number)
            plotting.diamond(on, row, pair, colour, theme)
        plotting.heading(on, title, small=small)
        plotting.rows(on, [plotting.short(pair.other.label) for pair in pairs], 22 if small else 30)
        on.set_xlim(-0.02, 1.02)
        on.set_xlabel(plotting.wrapped(f"P({first} > …)", 40))
        return figure

    return draw


def improvement_table(improvements: Sequence[Improvement]) -> Table:
    """Return the table of pairs: the chance that one variant beats the other, and the verdict."""
    rows = (
        {
            "task": Cell(_tasks(improvement.tasks)),
            "X": Cell(improvement.better.label),
            "Y": Cell(improvement.other.label),
            "#P(X > Y) [95 %]": cells.estimated(improvement, "{:.2f}".format),
            "significant": Cell(
                improvement.verdict, None if improvement.beyond_chance is None else improvement.chance
            ),
            "runs of X and Y": Cell(f"{improvement.better.n} and {improvement.other.n}"),
        }
        for improvement in improvements
    )
    return cells.table("pairs", rows)


def _tasks(tasks: Sequence[str]) -> str:
    return f"all {len(tasks)} tasks" if len(tasks) > 1 else tasks[0] or cells.MISSING

"""Write a LaTeX table of final returns: variants by task, the leaders in bold.

Numbers are aligned at their points by ``r@{.}l``, which plain LaTeX has: an ``S`` column of siunitx needs
that package, and special treatment of bold numbers. A column has one number of decimals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.report.export import latex_text
from orchestrator.analysis.report.paper.figures import Paper, iqm, scores
from orchestrator.analysis.statistics.bootstrap import Estimate

_HEAD = (
    "% Interquartile means of final returns over seeds, with 95 % bootstrap intervals. Bold: the report's",
    "% leaders, which are the best and all that do not differ significantly from it, where a variant does.",
    "% Needs the package booktabs.",
)


class _Column(NamedTuple):
    """A column: its heading, the estimate of each variant that has one, and the leaders, by label."""

    title: str
    estimates: Mapping[str, Estimate | None]
    leaders: Collection[str]

    @property
    def decimals(self) -> int:
        """The number of decimals, for three digits of the largest value."""
        most = max((abs(one.value) for one in self.estimates.values() if one), default=0.0)
        return max(0, 2 - math.floor(math.log10(most))) if most > 0 else 0

    @property
    def width(self) -> int:
        """The number of columns of LaTeX."""
        return 3 if self.decimals else 2

    def cell(self, label: str) -> str:
        """Return the cells of a variant: before the point, behind it, and the interval."""
        estimate, decimals = self.estimates.get(label), self.decimals
        if estimate is None:
            return rf"\multicolumn{{{self.width}}}{{c}}{{--}}"
        parts = [_minus(part) for part in f"{estimate.value:.{decimals}f}".split(".")]
        told = " & ".join(rf"\textbf{{{part}}}" if label in self.leaders else part for part in parts)
        if estimate.low is None or estimate.high is None:
            return f"{told} &"
        ends = ", ".join(_minus(f"{end:.{decimals}f}") for end in (estimate.low, estimate.high))
        return rf"{told} & {{\scriptsize [{ends}]}}"


def table(paper: Paper) -> str:
    """Return the table as LaTeX."""
    columns = list(_columns(paper))
    kinds = " ".join(("r@{.}l" if column.decimals else "r") + "@{ }l" for column in columns)
    heads = [rf"\multicolumn{{{one.width}}}{{c}}{{{latex_text(one.title)}}}" for one in columns]
    rows = [[latex_text(label), *(one.cell(own.label) for one in columns)] for own, label in paper.variants]
    lines = [" & ".join(row) + r" \\" for row in (["", *heads], *rows)]
    begin = rf"\begin{{tabular}}{{l {kinds}}}"
    end = (r"\bottomrule", r"\end{tabular}", "")
    return "\n".join((*_HEAD, begin, r"\toprule", lines[0], r"\midrule", *lines[1:], *end))


def _columns(paper: Paper) -> Iterator[_Column]:
    """Yield the column of each task, and that of scores over all of them."""
    leaders = gathered(
        ("" if answer.overall else answer.tasks[0], paper.key(leader))
        for answer in paper.data.answers
        if answer.behind and paper.panels.keys() >= set(answer.tasks)
        for leader in answer.leaders
    )

    def bold(task: str) -> set[str]:
        return {one.label for one, _ in paper.variants if paper.key(one) in leaders.get(task, ())}

    of = {(final.group.task, paper.key(final.group)): final.estimate for final in paper.data.returning}
    for task, title in paper.panels.items():
        own = {one.label: of.get((task, paper.key(one))) for one, _ in paper.variants}
        yield _Column(title or "final return", own, bold(task))
    if paper.aggregate is not None:
        yield _Column("IQM of scores", scores(paper.aggregate, iqm), bold(""))


def _minus(text: str) -> str:
    return re.sub(r"^-", "$-$", text)

"""Final returns of variants by task, and each pair of variants on a click."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell
from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.report.blocks import PairDetails, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.analysis.verdict.evidence import Evidence, evidence

_HOW_TO_READ = (
    "Interquartile means over seeds with 95 % intervals. Bold: the leaders of a task, which do not differ "
    "significantly from its best; grey: significantly behind; neither: a task without a verdict. A click on "
    "a return compares its variant with the best {} of the task, one by one: the chance that a run of it "
    "returns more, a tie counting half, and whether that is significant, corrected for all that is "
    f"compared on this page. There is no verdict below {FEW_SEEDS} seeds of either, nor where the corrected "
    "test could not be significant for any returns of so few."
)

# Numbers of seeds that its script knows.
_MOST_COUNTS = 10_000


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` for a single variant."""
    tested = evidence(data.returning)
    if len(tested.rows) < 2:
        return None
    states = {
        (answer.tasks[0], id(values)): state
        for answer in data.answers
        if not answer.overall and answer.behind
        for state, variants in (("leader", answer.leaders), ("behind", answer.behind))
        for variant in variants
        for values in variant.scores.values()
    }

    def cell(task: str, final: Final | None) -> Cell:
        if final is None:
            return Cell(cells.MISSING)
        return replace(cells.estimated(final.estimate), state=states.get((task, id(final.values)), ""))

    rows = [
        {"variant": Cell(variant.label)}
        | {f"#{task or 'final return'}": cell(task, finals.get(task)) for task in tested.tasks}
        for variant, finals in tested.rows
    ]
    blocks = (
        cells.table("variants", rows),
        PairDetails(_pairs(tested)),
        Text(_HOW_TO_READ.format(tested.paired), note=True),
    )
    return Section("evidence", "Variants by task", blocks)


def _pairs(tested: Evidence) -> str:
    """Return the pairs for the page's script: per task [row, row, chance, verdict], and its rows' seeds."""
    paired = {at for pairs in tested.pairs.values() for pair in pairs for at in pair}
    most = min(cells.MOST_ROWS, _MOST_COUNTS // max(1, len(tested.tasks)))
    known = {at: row for at, row in enumerate(tested.rows) if at < most or at in paired}
    tasks = [
        {
            "name": task,
            "seeds": {at: len(own[task].values) for at, (_, own) in known.items() if task in own},
            "pairs": [[*at, round(pair.value, 3), pair.verdict] for at, pair in tested.pairs[task].items()],
        }
        for task in tested.tasks
    ]
    return cells.safe_json(
        {"labels": {at: cells.clipped(variant.label) for at, (variant, _) in known.items()}, "tasks": tasks}
    )

"""Which values of the compared key return most, by the test that the report's cards have."""

from __future__ import annotations

from orchestrator.analysis.compare.model import ComparedValue, KeyComparison
from orchestrator.analysis.stats import Final, Group
from orchestrator.analysis.verdict.leaders import Answer, answers

# Of two values the comparison with the baseline says it all.
_FEWEST_VALUES = 3
_MOST_NAMED = 3


def leading_text(found: KeyComparison) -> str:
    """Return a sentence on the returns of all values; empty for fewer than three that can be ranked."""
    if found.across_tasks:
        return ""
    finals = [
        _final(found, cell, one.label)
        for one in found.combinations
        for cell in one.cells
        if cell.returns or cell.n
    ]
    if len({final.group.number for final in finals if final.values}) < _FEWEST_VALUES:
        return ""
    every = answers(finals)
    whole = [one for one in every if one.overall] or every
    told = "; ".join(_said(one, len(every) > 1) for one in whole[:_MOST_NAMED])
    more = len(whole) - _MOST_NAMED
    return f"Returns of all values: {told}" + (f"; and {more} more combinations" if more > 0 else "")


def _final(found: KeyComparison, cell: ComparedValue, combination: str) -> Final:
    """Return the final returns of a cell as those of a variant, with the combination in a task's place."""
    number, variant = found.values.index(cell.value), {found.short: cell.value}
    point = {"task": combination, **variant}
    group = Group(cell.members.rows, "", number, 0, found.named(cell.value), point, variant)
    return Final(group, cell.returns, cell.final, cell.note, cell.terms)


def _said(answer: Answer, several: bool) -> str:
    where = f"over {len(answer.tasks)} combinations, " if answer.overall else ""
    where = where or (f"{answer.tasks[0]}: " if several else "")
    return where + ", ".join(filter(None, (answer.verdict, answer.remedy, answer.left_out)))

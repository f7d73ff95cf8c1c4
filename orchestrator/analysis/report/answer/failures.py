"""State what failed in a task, in one line per kind of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.analysis.stats import Group, finite
from orchestrator.analysis.variant_ranking import names
from orchestrator.core.formatting import count, listed
from orchestrator.core.types import RunState

_MOST_NAMED = 4
_MOST_REASONS = 12
_LOST = {RunState.FAILED, RunState.UNKNOWN, RunState.CANCELLED, RunState.SKIPPED}


def failures(groups: Sequence[Group]) -> Iterator[str]:
    """Yield a line per reason for missing results: the number of runs, and the variants concerned."""
    found: dict[str, Counter[str]] = {}
    for group, label in zip(groups, names([group.point for group in groups]), strict=True):
        for row in group.rows:
            state = RunState(row["state"])
            if state is RunState.DONE and not finite(row["final_return"]):
                why = "without a finite return"
            elif state in _LOST:
                why = state.value + (f", {row['reason'].partition(':')[0]}" if row["reason"] else "")
            elif state in (RunState.DONE, RunState.STALE):
                continue
            else:
                why = "not finished"
            found.setdefault(why, Counter())[label] += 1
    for why, labels in list(found.items())[:_MOST_REASONS]:
        who = [label if number == 1 else f"{number} of {label}" for label, number in labels.items()]
        yield f"{count(labels.total(), 'run')} {why}: {listed(who, _MOST_NAMED)}"
    if rest := list(found.values())[_MOST_REASONS:]:
        runs = sum(labels.total() for labels in rest)
        yield f"{count(runs, 'run')} for {count(len(rest), 'other reason')}: see the table of runs"

"""Compare all pairs of variants in each task: how often one returns more, and whether significantly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from orchestrator.analysis.groups.comparability import classes
from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.groups.improvement import Comparisons, Improvement, against
from orchestrator.analysis.groups.variants import Variant, over_tasks, variants
from orchestrator.analysis.verdict.leaders import countable

# Most variants of a task that are compared with each other, the best ones, and most pairs of all tasks.
_MOST_PAIRED = 20
_MOST_PAIRS = 5000


@dataclass(frozen=True)
class Evidence:
    """Final returns of all variants in all tasks.

    ``rows``: the variants over all tasks, with their final return in each task that they have. ``pairs``: per
    task by the positions of two rows, the higher interquartile mean first; only rows with returns that can be
    ranked against each other, of the best ``paired`` variants of each task.
    """

    tasks: tuple[str, ...]
    rows: tuple[tuple[Variant, Mapping[str, Final]], ...]
    pairs: Mapping[str, Mapping[tuple[int, int], Improvement]]
    paired: int = _MOST_PAIRED


def evidence(finals: Sequence[Final]) -> Evidence:
    """Compare these final returns.

    Verdicts are corrected as those of :func:`standing` are; a pair that it tests has the same one.
    """
    returning = [final for final in finals if final.values]
    page = Comparisons.of(returning, overall=countable(returning))
    of_values = {id(final.values): final for final in returning}
    rows = tuple(
        (variant, {task: of_values[id(values)] for task, values in variant.scores.items()})
        for variant in over_tasks(returning)
        if variant.scores
    )
    place = {
        (task, final.group.number, final.group.side): at
        for at, (_, own) in enumerate(rows)
        for task, final in own.items()
    }
    pairs: dict[str, dict[tuple[int, int], Improvement]] = {}
    paired = _paired(len({final.group.task for final in returning}))
    for task, panel in variants(returning).items():
        pairs[task] = {
            (place[task, one.number, one.side], place[task, other.number, other.side]): page.corrected(
                against(one, other, (task,), intervals=False)
            )
            for members in classes((variant, variant.terms[task]) for variant in panel[:paired])
            for one, other in combinations(members, 2)
        }
    return Evidence(tuple(dict.fromkeys(final.group.task for final in returning)), rows, pairs, paired)


def _paired(tasks: int) -> int:
    """Return how many variants of each task can be compared."""
    return next(
        (some for some in range(_MOST_PAIRED, 2, -1) if tasks * some * (some - 1) // 2 <= _MOST_PAIRS), 2
    )

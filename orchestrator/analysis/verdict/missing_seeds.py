"""Bound the returns of missing seeds by the worst and the best that they could have been, as far as is known.

Seeds that failed or diverged are seldom a random part of all seeds: an algorithm that crashes where it learns
badly looks better by what is left. A missing return lies between the lowest return of the task, initial ones
included, and the highest final one. A variant without any return is bounded by these two alone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.groups.comparability import ReturnTerms, classes
from orchestrator.analysis.groups.grouping import Final, SeedGroup, by_task
from orchestrator.analysis.groups.variants import names, panels_of_pairs
from orchestrator.analysis.run_table import known
from orchestrator.analysis.statistics.bootstrap import estimate_of, finite
from orchestrator.analysis.verdict.leaders import TaskAnswer, answers
from orchestrator.core.types import RunState

_LOST = {RunState.FAILED.value, RunState.UNKNOWN.value, RunState.CANCELLED.value}


@dataclass(frozen=True)
class Bounds:
    """A variant of a task with ``missing`` of its ``seeds``.

    ``plain``: interquartile mean of the others, ``None`` where there are none. ``low`` and ``high``: with the
    worst and the best returns for the missing ones. ``place`` among ``of`` variants: by ``plain``; ``worst``
    and ``best``, where the missing seeds of all variants are against it or in its favour.
    """

    task: str
    label: str
    seeds: int
    missing: int
    plain: float | None
    low: float
    high: float
    place: int | None
    worst: int
    best: int
    of: int


def missing_of(group: SeedGroup) -> int:
    """Return the number of seeds that failed, or finished without a finite return."""
    counted = group.counted()[0]
    lost = sum(row["state"] in _LOST for row in group.rows)
    return lost + sum(not finite(row["final_return"]) for row in counted)


def missing_seeds(finals: Sequence[Final]) -> list[Bounds]:
    """Return the bounds of every variant with missing seeds, by task; none in a task without a return."""
    return [bounds for panel in _panels(finals, once=True) for bounds in _bounds(panel) if bounds.missing]


def lead_holds(answer: TaskAnswer, finals: Sequence[Final]) -> bool | None:
    """Return whether a single leader leads also if all missing seeds of its task are against it.

    ``None`` where several lead, no seed is missing, or it leads within pairs, as missing seeds have none.
    """
    if len(answer.leaders) > 1 or not answer.behind or answer.overall:
        return None
    if any(panels_of_pairs((answer.leaders[0], other), answer.tasks) for other in answer.behind):
        return None
    task, (leader,) = answer.tasks[0], answer.leaders
    own = next(panel for panel in _panels(finals) if any(_is(final, answer) for final in panel))
    if not any(missing_of(final.group) for final in own):
        return None
    low, high = _range(own)
    terms = next(final.terms for final in own if _is(final, answer))
    against = {id(final): _filled(final, low if _is(final, answer) else high, terms) for final in own}
    again = answers([against.get(id(final), final) for final in finals])
    same = [(leader.number, leader.side)]
    return any(one.tasks == (task,) and [(o.number, o.side) for o in one.leaders] == same for one in again)


def _is(final: Final, answer: TaskAnswer) -> bool:
    """Return whether these returns are those of the answer's first leader."""
    leader = answer.leaders[0]
    group = final.group
    return (group.task, group.number, group.side) == (answer.tasks[0], leader.number, leader.side)


def _panels(finals: Sequence[Final], *, once: bool = False) -> Iterator[list[Final]]:
    """Yield the final returns that can be ranked against each other, per task.

    Variants that lost all of theirs are in every class of their task, or ``once`` in the first, as it is
    unknown what they would have been ranked against.
    """
    for own in by_task(finals).values():
        lost = [final for final in own if not final.values and missing_of(final.group)]
        for members in classes((final, final.terms) for final in own if final.values):
            yield [*members, *lost]
            lost = [] if once else lost


def _bounds(panel: Sequence[Final]) -> Iterator[Bounds]:
    low, high = _range(panel)
    plain = [None if final.estimate is None else final.estimate.value for final in panel]
    worst, best = ([_mean(_filled(final, value)) for final in panel] for value in (low, high))
    known_means = [mean for mean in plain if mean is not None]
    labels = names([final.group.point for final in panel])
    better = operator.lt if panel[0].terms.lower else operator.gt
    for number, final in enumerate(panel):
        missing = missing_of(final.group)
        others = [other for other in range(len(panel)) if other != number]
        own = plain[number]
        yield Bounds(
            final.group.task,
            labels[number],
            len(final.values) + missing,
            missing,
            own,
            worst[number],
            best[number],
            None if own is None else 1 + sum(better(mean, own) for mean in known_means),
            1 + sum(better(best[other], worst[number]) for other in others),
            1 + sum(better(worst[other], best[number]) for other in others),
            len(panel),
        )


def _range(panel: Sequence[Final]) -> tuple[float, float]:
    """Return the worst return of a task, initial ones included, and the best final one."""
    finals = [value for final in panel for value in final.values]
    initial = [value for final in panel for value in known(final.group.rows, "initial_return")]
    if panel[0].terms.lower:
        return max([*finals, *initial]), min(finals)
    return min([*finals, *initial]), max(finals)


def _filled(final: Final, value: float, terms: ReturnTerms | None = None) -> Final:
    """Return the final returns with this value for each missing seed; ``terms`` are for those without any."""
    values = (*final.values, *[value] * missing_of(final.group))
    own = final.terms if final.values or terms is None else terms
    return replace(final, values=values, estimate=estimate_of(values, intervals=False), terms=own)


def _mean(final: Final) -> float:
    assert final.estimate is not None
    return final.estimate.value

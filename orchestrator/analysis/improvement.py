"""The probability that one variant beats another, and whether that is more than luck.

As rliable defines it, of final returns; made here so that seeds may differ in number from task to task.
Intervals are 95 % percentile intervals of a bootstrap over the seeds of each task, by always the same draws.
Whether a pair differs by more than luck is said by a test of ranks that is corrected for all pairs, and only
of variants with five seeds in each task whose returns can be ranked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.analysis.comparability import classes
from orchestrator.analysis.significance import FEW_SEEDS, LEVEL, chance_of_wins, holm, least_chance, wins
from orchestrator.analysis.stats import Final
from orchestrator.analysis.variant_ranking import (
    SEED,
    Variant,
    over_tasks,
    rankable,
    values_by_task,
    variants,
    weights,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Of the variants that come nearest to the best of their task.
_MOST_PAIRS = 50
_MOST_NAMED = 8


@dataclass(frozen=True)
class Improvement:
    """The chance that a run of ``better`` returns more than one of ``other``, a tie counting half.

    Over several ``tasks`` it is the mean of theirs. No interval below five seeds of either in a task.
    ``chance``: of so many wins or losses by luck alone, corrected for the ``among`` pairs that were compared
    with it; ``None`` where it was not compared.
    """

    tasks: tuple[str, ...]
    better: Variant
    other: Variant
    value: float
    low: float | None
    high: float | None
    chance: float | None = None
    among: int = 1

    @property
    def beyond_chance(self) -> bool | None:
        """Whether they differ by more than luck; ``None`` where so few seeds cannot tell that of any pair."""
        if self.chance is None:
            return None
        if self.chance <= LEVEL:
            return True
        least = least_chance([(len(self.better.scores[t]), len(self.other.scores[t])) for t in self.tasks])
        return None if least * self.among > LEVEL else False

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


@dataclass(frozen=True)
class CorrectedPairs:
    """``pairs`` whose chances are corrected for all that were compared: over all tasks first, then by task.

    ``left_out``: variants that are in no pair of their task, and why.
    """

    pairs: tuple[Improvement, ...]
    left_out: tuple[str, ...]


def standing(finals: Sequence[Final], *, overall: bool = True) -> CorrectedPairs:
    """In every task, and over all of them, one variant against the others that it can be ranked with.

    It is the one with the highest interquartile mean among those of the most seeds; over all tasks, the one
    that beats the others most often.
    """
    panels = _by_task(finals)
    by_task = [league for panel in panels.values() for league in _leagues(panel)]
    leagues = [*(_overall_leagues(finals) if overall else ()), *by_task]
    pairs = [pair for league in leagues for pair in league.pairs()]
    among = sum(math.comb(len(league.members), 2) for league in leagues)
    chances = holm([pair.chance or 0.0 for pair in pairs], among)
    corrected = (
        replace(pair, chance=chance, among=among) for pair, chance in zip(pairs, chances, strict=True)
    )
    return CorrectedPairs(tuple(corrected), tuple(_left_out(panels, by_task)))


@dataclass(frozen=True)
class _League:
    """Variants with enough seeds in these tasks whose returns can be ranked; the first is the reference."""

    tasks: tuple[str, ...]
    members: tuple[Variant, ...]

    def pairs(self) -> Iterator[Improvement]:
        first, *others = self.members
        for other in others[:_MOST_PAIRS]:
            yield against(first, other, self.tasks)


def _by_task(finals: Sequence[Final]) -> dict[str, list[Variant]]:
    """In each task every variant that has a final return, the highest interquartile mean first."""
    returning = [final for final in finals if final.estimate is not None]
    best_first = sorted(returning, key=lambda final: -final.estimate.value if final.estimate else 0.0)
    panels = variants(best_first)
    order = dict.fromkeys(final.group.task for final in returning)
    return {task: panels[task] for task in order}


def _leagues(panel: Sequence[Variant]) -> Iterator[_League]:
    """Of one task; ``panel`` is the best first."""
    able = [variant for variant in panel if variant.fewest >= FEW_SEEDS]
    found = classes((variant, terms) for variant in able for terms in variant.terms.values())
    for members in sorted(found, key=lambda members: min((one.side, one.number) for one in members)):
        if len(members) > 1:
            yield _League(tuple(members[0].scores), _most_seeds_first(members, members))


def _most_seeds_first(members: Sequence[Variant], by_merit: Sequence[Variant]) -> tuple[Variant, ...]:
    """The best of those with the most seeds, then the others: few seeds reach extremes by luck."""
    most = max(variant.n for variant in members)
    first = next(variant for variant in by_merit if variant.n == most)
    return (first, *(variant for variant in by_merit if variant is not first))


def _overall_leagues(finals: Sequence[Final]) -> Iterator[_League]:
    """Over all tasks, of variants that have them all; nothing without two tasks and two such variants."""
    every = over_tasks(finals)
    tasks = tuple(values_by_task(every))
    able = [variant for variant in every if variant.scores.keys() >= set(tasks)]
    able = [variant for variant in able if variant.fewest >= FEW_SEEDS]
    for members in rankable(able, tasks):
        if len(tasks) > 1 and len(members) > 1:
            often = {
                id(one): sum(_chance(one, other, tasks) for other in members if other is not one)
                for one in members
            }
            by_merit = sorted(members, key=lambda one: -often[id(one)])
            yield _League(tasks, _most_seeds_first(members, by_merit))


def _left_out(panels: Mapping[str, Sequence[Variant]], leagues: Sequence[_League]) -> Iterator[str]:
    """Of each task of several variants those that none is held against."""
    ranked = {id(one) for league in leagues for one in league.members}
    for task, panel in panels.items():
        few = [one for one in panel if one.fewest < FEW_SEEDS]
        alone = [one for one in panel if one.fewest >= FEW_SEEDS and id(one) not in ranked]
        of = f"{task}: " if len(panels) > 1 and task else ""
        if few and len(panel) > 1:
            seeds = _some([f"{one.label} (n={one.fewest})" for one in few])
            yield f"{of}fewer than {FEW_SEEDS} seeds, which cannot tell a difference from luck: {seeds}"
        if alone and len(panel) - len(few) > 1:
            labels = _some([one.label for one in alone])
            yield f"{of}no other variant whose returns came about alike: {labels}"


def _some(labels: Sequence[str]) -> str:
    left = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def against(better: Variant, other: Variant, tasks: tuple[str, ...]) -> Improvement:
    """How one variant does against another in tasks that both have; its chance is not corrected.

    Below five seeds of either in a task there is no interval, and no chance.
    """
    import numpy as np

    mine = [np.array(better.scores[task]) for task in tasks]
    theirs = [np.array(other.scores[task]) for task in tasks]
    value, low, high = probability_of_improvement(mine, theirs)
    if min(map(len, (*mine, *theirs))) < FEW_SEEDS:
        return Improvement(tasks, better, other, value, None, None)
    return Improvement(tasks, better, other, value, low, high, chance_of_wins(mine, theirs))


def probability_of_improvement(
    mine: Sequence[Floats], theirs: Sequence[Floats]
) -> tuple[float, float | None, float | None]:
    """P(mine > theirs), ties counting half, meaned over tasks, and its interval.

    Both hold one number a run, per task; runs are resampled task by task and independently of each other. No
    interval where a task has one run of either.
    """
    import numpy as np

    won = [wins(*pair) for pair in zip(mine, theirs, strict=True)]
    value = float(np.mean([matrix.mean() for matrix in won]))
    if any(min(matrix.shape) < 2 for matrix in won):
        return value, None, None
    generator = np.random.default_rng(SEED)
    draws = np.mean(
        [
            ((weights(generator, matrix.shape[0]) @ matrix) * weights(generator, matrix.shape[1])).sum(axis=1)
            for matrix in won
        ],
        axis=0,
    )
    # What adds up to a half by rounding is a half, and nothing is less than impossible or more than certain.
    low, high = np.clip(np.round(np.quantile(draws, (0.025, 0.975)), 12), 0, 1)
    return value, float(low), float(high)


def _chance(one: Variant, other: Variant, tasks: Sequence[str]) -> float:
    import numpy as np

    return float(
        np.mean([wins(np.array(one.scores[task]), np.array(other.scores[task])).mean() for task in tasks])
    )

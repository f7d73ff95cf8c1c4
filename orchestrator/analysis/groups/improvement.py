"""Probability that one variant beats another, and whether the difference exceeds luck.

Follows rliable's definition for final returns, but seeds may differ in number from task to task. Intervals
are 95 % percentile intervals of a bootstrap over the seeds of each task, with fixed draws. The verdict on a
pair is a test of ranks corrected for the whole page, and only for variants with five seeds in each task and
returns that can be ranked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from orchestrator.analysis.groups.comparability import classes
from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.groups.variants import (
    SEED,
    Variant,
    over_tasks,
    panels_of_pairs,
    rankable,
    values_by_task,
    variants,
)
from orchestrator.analysis.statistics.bootstrap import weights
from orchestrator.analysis.statistics.page_correction import FamilyTest, PageTest, any_pair
from orchestrator.analysis.statistics.pairs import chance_of_pairs, in_words, least_of_pairs, pairs_won
from orchestrator.analysis.statistics.significance import (
    FEW_SEEDS,
    LEVEL,
    Floats,
    chance_alike,
    chance_of_wins,
    chances_to_win,
    least_chance,
    wins,
)
from orchestrator.core.formatting import listed

# Most pairs per task: those of the best with the variants that come nearest to it.
_MOST_PAIRS = 50
_MOST_NAMED = 8
# With a seed or two missing a variant can still be the reference.
_ABOUT_THE_MOST = 2 / 3


@dataclass(frozen=True)
class Improvement:
    """Chance that a run of ``better`` returns more than one of ``other``, a tie counting half.

    Over several ``tasks`` it is the mean of theirs. No interval below five seeds of either in a task.
    ``chance``: p-value of the wins and losses, corrected for the page; ``None`` where the pair was not
    tested. ``least``: the lowest that it could have been with so many seeds, given all other p-values.
    ``pairs``: of runs with common luck, if these were compared: then the chance is the share of pairs won.
    """

    tasks: tuple[str, ...]
    better: Variant
    other: Variant
    value: float
    low: float | None
    high: float | None
    chance: float | None = None
    least: float = 0.0
    pairs: int = 0

    @property
    def least_alone(self) -> float:
        """The lowest p-value that so many seeds can have without a correction."""
        if self.pairs:
            return least_of_pairs(self.pairs)
        return least_chance(
            [(len(self.better.scores[task]), len(self.other.scores[task])) for task in self.tasks]
        )

    @property
    def beyond_chance(self) -> bool | None:
        """Whether they differ significantly; ``None`` where so few seeds could not show it."""
        if self.chance is None:
            return None
        if self.chance <= LEVEL:
            return True
        return None if self.least > LEVEL else False

    @property
    def verdict(self) -> str:
        """Whether they differ significantly, in words."""
        if self.chance is None:
            return "too few seeds"
        if self.beyond_chance is None:
            return "too few seeds for so many variants"
        paired = f", {in_words([self.pairs])}" if self.pairs else ""
        return f"{'yes' if self.beyond_chance else 'no'}, p = {self.chance:.2g}{paired}"

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


@dataclass(frozen=True)
class CorrectedPairs:
    """Pairs with p-values corrected for all that were compared: over all tasks first, then by task.

    ``left_out``: variants in no pair of their task, with the reason.
    """

    pairs: tuple[Improvement, ...]
    left_out: tuple[str, ...]


def standing(
    finals: Sequence[Final], *, overall: bool = True, intervals: bool = True, most: int | None = _MOST_PAIRS
) -> CorrectedPairs:
    """Compare one reference variant with all that it can be ranked with, in every task and over all of them.

    The reference has the highest interquartile mean among the variants with two thirds of the most seeds or
    more; over all tasks, it is the variant that beats the others most often. ``most``: pairs per
    task, ``None`` for all.
    """
    page = Comparisons.of(finals, overall=overall)
    pairs = [pair for family in page.families for pair in family.pairs(most, intervals=intervals)]
    return CorrectedPairs(tuple(map(page.corrected, pairs)), page.left_out)


@dataclass(frozen=True)
class Family:
    """Variants with enough seeds in these tasks and rankable returns; the first is the reference."""

    tasks: tuple[str, ...]
    members: tuple[Variant, ...]

    def pairs(self, most: int | None = None, *, intervals: bool = False) -> Iterator[Improvement]:
        """Yield the pairs of the reference with ``most`` others; their p-values are not corrected."""
        first, *others = self.members
        for other in others[:most]:
            yield against(first, other, self.tasks, intervals=intervals)

    def tested(self) -> FamilyTest:
        """Test the reference against each other one, and all of them together."""
        pairs = list(self.pairs())
        panels = [[member.merits(task) for member in self.members] for task in self.tasks]
        shared = panels_of_pairs(self.members, self.tasks)
        chances = tuple(1.0 if pair.chance is None else pair.chance for pair in pairs)
        exact = any_pair(len(self.members), min(chances))
        return FamilyTest(
            len(self.members),
            chance_alike(shared or panels, exact, paired=bool(shared)) if len(pairs) > 1 else 0.0,
            chances,
            all(pair.value > 1 / 2 for pair in pairs),
        )


@dataclass(frozen=True)
class Comparisons:
    """The families of a page: over all tasks first, then by task. ``left_out``: as of the pairs."""

    families: tuple[Family, ...]
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, finals: Sequence[Final], *, overall: bool) -> Comparisons:
        """Find the families of these final returns; ``overall``: also over all tasks."""
        panels = variants(finals)
        by_task = [family for panel in panels.values() for family in _families(panel)]
        families = (*(_overall_families(finals) if overall else ()), *by_task)
        return cls(families, tuple(_left_out(panels, by_task)))

    @cached_property
    def _test(self) -> PageTest:
        return PageTest(tuple(family.tested() for family in self.families))

    @cached_property
    def _places(self) -> dict[_Place, tuple[int, int]]:
        """The number of each variant's family, and its own there, by tasks, number and side."""
        return {
            (family.tasks, member.number, member.side): (at, place)
            for at, family in enumerate(self.families)
            for place, member in enumerate(family.members)
        }

    def corrected(self, pair: Improvement) -> Improvement:
        """Correct the p-value of a pair, if it has one; without one if its variants are in no family."""
        if pair.chance is None:
            return pair
        places = (self._places.get((pair.tasks, one.number, one.side)) for one in (pair.better, pair.other))
        (at, one), (same, other) = (place or (-1, 0) for place in places)
        if at < 0 or at != same:
            return replace(pair, chance=None)
        family = self._test.families[at]
        among = bool(one and other)
        chance = family.pair(pair.chance) if among else family.against_first()[max(one, other) - 1]
        least = family.least(pair.least_alone, of_first=not among)
        corrected, lowest = (self._test.corrected(at, own) for own in (chance, least))
        return replace(pair, chance=corrected, least=lowest)


# Tasks, number and side of a variant.
_Place = tuple[tuple[str, ...], int, int]


def _families(panel: Sequence[Variant]) -> Iterator[Family]:
    """Yield the families of one task; ``panel`` is the best first."""
    able = [variant for variant in panel if variant.fewest >= FEW_SEEDS]
    families = classes((variant, terms) for variant in able for terms in variant.terms.values())
    for members in sorted(
        families, key=lambda members: min((member.side, member.number) for member in members)
    ):
        if len(members) > 1:
            yield Family(tuple(members[0].scores), _most_seeds_first(members, members))


def _most_seeds_first(members: Sequence[Variant], by_merit: Sequence[Variant]) -> tuple[Variant, ...]:
    """Put the best variant with about the most seeds first: few seeds reach extremes by luck."""
    most = max(variant.n for variant in members)
    first = next(variant for variant in by_merit if variant.n >= _ABOUT_THE_MOST * most)
    return (first, *(variant for variant in by_merit if variant is not first))


def _overall_families(finals: Sequence[Final]) -> Iterator[Family]:
    """Yield families over all tasks, of variants that have them all; none without two of each."""
    every = over_tasks(finals)
    tasks = tuple(values_by_task(every))
    able = [variant for variant in every if variant.scores.keys() >= set(tasks)]
    able = [variant for variant in able if variant.fewest >= FEW_SEEDS]
    for members in rankable(able, tasks):
        if len(tasks) > 1 and len(members) > 1:
            yield Family(tasks, _most_seeds_first(members, by_wins(members, tasks)))


def by_wins(members: Sequence[Variant], tasks: Sequence[str]) -> list[Variant]:
    """Sort variants by how often they beat the others in these tasks, which all of them have; most first."""
    if len(members) < 2:
        return list(members)
    often = np.sum([chances_to_win([one.merits(task) for one in members]) for task in tasks], axis=0).round(9)
    return [members[number] for number in np.argsort(-often, kind="stable")]


def _left_out(panels: Mapping[str, Sequence[Variant]], families: Sequence[Family]) -> Iterator[str]:
    """Name the variants that are in no pair, per task with several variants."""
    ranked = {id(member) for family in families for member in family.members}
    for task, panel in panels.items():
        few = [variant for variant in panel if variant.fewest < FEW_SEEDS]
        alone = [variant for variant in panel if variant.fewest >= FEW_SEEDS and id(variant) not in ranked]
        of = f"{task}: " if len(panels) > 1 and task else ""
        if few and len(panel) > 1:
            seeds = listed([f"{variant.label} (n={variant.fewest})" for variant in few], _MOST_NAMED)
            yield f"{of}fewer than {FEW_SEEDS} seeds, too few for a verdict: {seeds}"
        if alone and len(panel) - len(few) > 1:
            labels = listed([variant.label for variant in alone], _MOST_NAMED)
            yield f"{of}no other variant with comparable returns: {labels}"


def against(
    better: Variant, other: Variant, tasks: tuple[str, ...], *, intervals: bool = True
) -> Improvement:
    """Compare two variants over tasks that both have, pair by pair where they share luck.

    The p-value is not corrected. Below five seeds of either in a task there is no interval and no p-value.
    """
    if (panels := panels_of_pairs((better, other), tasks)) is not None:
        apart, pairs = [one - another for one, another in panels], sum(panel.shape[1] for panel in panels)
        won = pairs_won(apart, intervals=intervals)
        return Improvement(tasks, better, other, *won, chance=chance_of_pairs(apart), pairs=pairs)
    mine = [better.merits(task) for task in tasks]
    theirs = [other.merits(task) for task in tasks]
    if intervals:
        value, low, high = probability_of_improvement(mine, theirs)
    else:
        value, low, high = _chance(better, other, tasks), None, None
    if min(map(len, (*mine, *theirs))) < FEW_SEEDS:
        return Improvement(tasks, better, other, value, None, None)
    return Improvement(tasks, better, other, value, low, high, chance_of_wins(mine, theirs))


def probability_of_improvement(
    mine: Sequence[Floats], theirs: Sequence[Floats]
) -> tuple[float, float | None, float | None]:
    """Return P(mine > theirs), ties counting half, averaged over tasks, and its interval.

    Both hold one number per run, per task; runs are resampled within each task, independently on both sides.
    There is no interval where a task has one run of either.
    """
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
    # Without rounding errors: a half stays a half, and the interval stays within 0 and 1.
    low, high = np.clip(np.round(np.quantile(draws, (0.025, 0.975)), 12), 0, 1)
    return value, float(low), float(high)


def _chance(variant: Variant, other: Variant, tasks: Sequence[str]) -> float:
    return float(np.mean([wins(variant.merits(task), other.merits(task)).mean() for task in tasks]))

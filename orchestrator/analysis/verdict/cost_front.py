"""Set returns against what a run costs: which variants no other one beats in both."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from orchestrator.analysis.groups.comparability import classes
from orchestrator.analysis.groups.grouping import Final, by_task
from orchestrator.analysis.run_table import known
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.analysis.verdict.run_cost import Prices, median_dollars
from orchestrator.analysis.verdict.thresholds import TimeToThreshold

# Costs that differ by no more than this count as equal.
_EQUAL_COST = 1.05


@dataclass(frozen=True)
class Costed:
    """A variant in a task with the medians over its runs.

    ``seconds``: wall time of a run, ``dollars``: its price, ``None`` where unknown. ``on_front``: no variant
    of its class returns more for about as much or less, or as much for less. ``censored``: the cost is a
    lower bound, so the variant is never on the front.
    """

    final: Final
    seconds: float
    dollars: float | None
    on_front: bool = False
    censored: bool = False

    @property
    def value(self) -> float:
        """The final return: the interquartile mean over seeds."""
        assert self.final.estimate is not None
        return self.final.estimate.value

    @property
    def merit(self) -> float:
        """The final return as a number that is higher for a better one."""
        return self.final.merit


@dataclass(frozen=True)
class CostClass:
    """Variants of a task with returns that can be ranked, the cheapest first; dollars if all are priced.

    ``threshold``: costs are those until this return; ``None`` for costs of whole runs.
    """

    task: str
    members: tuple[Costed, ...]
    threshold: float | None = None

    @property
    def priced(self) -> bool:
        """Whether all have a price."""
        return all(member.dollars is not None for member in self.members)

    def cost(self, variant: Costed) -> float:
        """Return what the class is compared by: dollars, or seconds of wall time."""
        return variant.dollars if self.priced and variant.dollars is not None else variant.seconds


def cost_classes(finals: Sequence[Final], prices: Prices) -> list[CostClass]:
    """Return every class of two variants or more with a final return and a wall time, by task."""
    return [
        with_front(CostClass(task, members))
        for task, members in costed_classes(finals, lambda final: _costed(final, prices))
    ]


def costed_classes(
    finals: Sequence[Final], costed: Callable[[Final], Costed | None]
) -> Iterator[tuple[str, tuple[Costed, ...]]]:
    """Yield task and members of every class of two variants or more that can be ranked and have a cost."""
    for task, own in by_task(final for final in finals if final.estimate is not None).items():
        for members in classes((final, final.terms) for final in own):
            variants = tuple(variant for final in members if (variant := costed(final)) is not None)
            if len(variants) > 1:
                yield task, variants


def _costed(final: Final, prices: Prices) -> Costed | None:
    rows = final.group.counted()[0]
    seconds = middle(known(rows, "wall_time"))
    if not seconds:
        return None
    return Costed(final, seconds, median_dollars(rows, prices))


def with_front(cost_class: CostClass) -> CostClass:
    """Sort by cost; mark each that no variant as cheap exceeds, and that no cheaper one equals.

    Variants with a censored cost come last, and neither are on the front nor keep another off it.
    """
    in_order = sorted(
        cost_class.members, key=lambda member: (member.censored, cost_class.cost(member), -member.merit)
    )
    exact = [member for member in in_order if not member.censored]
    costs = [cost_class.cost(member) for member in exact]
    highest = [-math.inf, *accumulate((member.merit for member in exact), max)]

    def on_front(variant: Costed) -> bool:
        as_cheap = highest[bisect_right(costs, _EQUAL_COST * cost_class.cost(variant))]
        cheaper = highest[bisect_left(costs, cost_class.cost(variant) / _EQUAL_COST)]
        return not variant.censored and cheaper < variant.merit >= as_cheap

    return replace(
        cost_class, members=tuple(replace(member, on_front=on_front(member)) for member in in_order)
    )


def threshold_classes(finals: Sequence[Final], times: Sequence[TimeToThreshold]) -> list[CostClass]:
    """Return the classes in seconds, each followed by the same in dollars if all variants have a price.

    A class is left out where no variant has a median, and a variant where a wall time is unknown. The cost of
    a variant without a median is a bound: the shortest training of a seed that did not reach the threshold.
    """
    by_group = {id(time.group): time for time in times}
    timed = []
    for task, members in costed_classes(
        finals, lambda final: _costed_until(final, by_group.get(id(final.group)))
    ):
        if all(member.censored for member in members):
            continue
        level = by_group[id(members[0].final.group)].threshold
        in_seconds = tuple(replace(member, dollars=None) for member in members)
        several = (in_seconds, members) if all(one.dollars is not None for one in members) else (in_seconds,)
        timed += [with_front(CostClass(task, own, level)) for own in several]
    return timed


def _costed_until(final: Final, time: TimeToThreshold | None) -> Costed | None:
    if time is None or time.seconds is None:
        return None
    censored = not math.isfinite(time.seconds.median)
    seconds = time.seconds.trained if censored else time.seconds.median
    price = time.dollars_per_second
    return Costed(final, seconds, None if price is None else price * seconds, censored=censored)

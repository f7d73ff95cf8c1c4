"""Set returns against what it costs to reach a threshold: the front among variants that did reach it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.stats import Final
from orchestrator.analysis.verdict.cost_front import CostClass, Costed, costed_classes, with_front
from orchestrator.analysis.verdict.thresholds import TimeToThreshold


def threshold_classes(finals: Sequence[Final], times: Sequence[TimeToThreshold]) -> list[CostClass]:
    """Return the classes in seconds, each followed by the same in dollars if all variants have a price.

    A class is left out where no variant has a median, and a variant where a wall time is unknown. The cost of
    a variant without a median is a bound: the shortest training of a seed that did not reach the threshold.
    """
    by_group = {id(one.group): one for one in times}
    found = []
    for task, members in costed_classes(finals, lambda final: _costed(final, by_group.get(id(final.group)))):
        if all(one.censored for one in members):
            continue
        level = by_group[id(members[0].final.group)].threshold
        in_seconds = tuple(replace(one, dollars=None) for one in members)
        several = (in_seconds, members) if all(one.dollars is not None for one in members) else (in_seconds,)
        found += [with_front(CostClass(task, own, level)) for own in several]
    return found


def _costed(final: Final, time: TimeToThreshold | None) -> Costed | None:
    if time is None or time.seconds is None:
        return None
    censored = not math.isfinite(time.seconds.median)
    seconds = time.seconds.trained if censored else time.seconds.median
    price = time.dollars_per_second
    return Costed(final, seconds, None if price is None else price * seconds, censored=censored)

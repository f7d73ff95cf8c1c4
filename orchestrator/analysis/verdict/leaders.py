"""Find the variants that lead: all that cannot be told apart from the best, per task and over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import UNRANKED, classes
from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.groups.improvement import Improvement, by_wins, standing
from orchestrator.analysis.groups.variants import (
    Variant,
    names,
    over_tasks,
    panels_of_pairs,
    rankable,
    values_by_task,
    variants,
)
from orchestrator.analysis.statistics.pairs import FEW_PAIRS, in_words
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.analysis.verdict.seeds_needed import MOST, MoreSeeds, more_pairs, more_seeds
from orchestrator.core.formatting import count, listed

# Most comparisons of variants over all tasks; beyond them there is only an answer per task.
_MOST_OVERALL = 60_000
_MOST_NAMED = 3


@dataclass(frozen=True)
class TaskAnswer:
    """Variants of ``tasks`` with comparable returns; or, not ``ranked``, those comparable with no other.

    ``leaders`` cannot be told apart from the best, best first; ``behind`` can, significantly. ``more``:
    seeds that would tell the first two leaders apart, ``None`` where one leads. ``overall``: over all tasks.
    ``without``: variants without a return in some of the tasks, which are not compared. ``part``: the
    number of this answer and of all answers of these tasks; variants of two answers are not ranked against
    each other.
    """

    tasks: tuple[str, ...]
    leaders: tuple[Variant, ...]
    behind: tuple[Variant, ...]
    more: MoreSeeds | None
    overall: bool = False
    without: tuple[str, ...] = ()
    ranked: bool = True
    part: tuple[int, int] = (1, 1)

    @property
    def few(self) -> tuple[Variant, ...]:
        """The leaders with too few seeds for a verdict."""
        return tuple(leader for leader in self.leaders if leader.fewest < FEW_SEEDS and self.ranked)

    @property
    def compared(self) -> bool:
        """Whether it is a verdict on several variants."""
        return self.ranked and len(self.leaders) + len(self.behind) > 1

    @property
    def seeds(self) -> str:
        """Number of seeds of a leader in a task, as text."""
        numbers = [len(leader.scores[task]) for leader in self.leaders for task in self.tasks]
        least, most = min(numbers), max(numbers)
        return count(least, "seed") if least == most else f"{least}–{most} seeds"

    def paired(self, fewest: int = FEW_PAIRS) -> str:
        """Say that all are compared within pairs of runs; empty unless they are, or have ``fewest`` pairs."""
        members = (*self.leaders, *self.behind)
        panels = panels_of_pairs(members, self.tasks, fewest) if self.compared else None
        return in_words(panel.shape[1] for panel in panels or ())

    @property
    def title(self) -> str:
        """The task, or a name for all of them."""
        name = f"all tasks ({len(self.tasks)})" if self.overall else self.tasks[0] or "all runs"
        number, parts = self.part
        return f"{name}, part {number} of {parts}" if parts > 1 else name

    @property
    def verdict(self) -> str:
        """One sentence: who leads, or that it cannot be told."""
        first, *others = self.leaders
        labels = listed([leader.label for leader in self.leaders], _MOST_NAMED)
        if not self.ranked:
            told = f"{UNRANKED}: {labels}" if others else f"{labels} is ranked against no other"
            return f"{told} ({self.seeds})"
        if not others and not self.behind:
            return f"only {first.label} has a return ({self.seeds})"
        if not others:
            return f"{first.label} leads significantly ({self.paired() or self.seeds})"
        paired = f" ({told})" if (told := self.paired(fewest=1)) else ""
        return f"cannot tell from {self.seeds} which is best of {labels}{paired}"

    @property
    def remedy(self) -> str:
        """What would settle it; empty where one leads."""
        return "" if self.more is None else f"{self.more} would be needed"

    @property
    def left_out(self) -> str:
        """Names the variants that are not compared, and why; empty without any."""
        why = "without a return in every task" if self.overall else "without a return"
        return f"left out, {why}: {listed(self.without, _MOST_NAMED)}" if self.without else ""

    def as_dict(self) -> dict[str, object]:
        """Return it in JSON types."""
        return {
            "tasks": list(self.tasks),
            "leaders": [leader.label for leader in self.leaders if self.ranked],
            "behind": [variant.label for variant in self.behind],
            "more_seeds": None if self.more is None or self.more.more > MOST else self.more.more,
            "left_out": list(self.without),
            "not_ranked": [leader.label for leader in self.leaders if not self.ranked],
            "verdict": str(self),
        }

    def __str__(self) -> str:
        return f"{self.title}: {'; '.join(filter(None, (self.verdict, self.remedy, self.left_out)))}"


def answers(finals: Sequence[Final]) -> list[TaskAnswer]:
    """Return the answer over all tasks, if there are several, and the one of each task.

    Variants with returns that cannot be ranked against each other are in different answers, those that can
    be ranked against no other in the last one of their tasks.
    """
    returning = [final for final in finals if final.values]
    panels = [*_overall(returning), *_by_task(returning)]
    families = sum(len(panel.members) > 1 and panel.ranked for panel in panels)
    pairs = standing(returning, overall=countable(returning), intervals=False, most=None).pairs
    beaten = gathered((pair.tasks, one) for pair in pairs for one in _beaten(pair))
    return [
        replace(
            _answer(panel, set(beaten.get(panel.tasks, ())), families), without=_without(finals, panel.tasks)
        )
        for panel in panels
    ]


def no_overall(finals: Sequence[Final]) -> str:
    """Return why there is no answer over all tasks although there are several; empty if there is one."""
    returning = [final for final in finals if final.values]
    if len({final.group.task for final in returning}) < 2 or next(_overall(returning), None):
        return ""
    if not countable(returning):
        return f"no answer over all tasks: {count(len(returning), 'variant')} are too many to compare there"
    return "no answer over all tasks: no variant has a return in every task"


def _without(finals: Sequence[Final], tasks: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the variants that lack a return in some of these tasks.

    Of a single task without those that were skipped, which the card names with the reason.
    """
    if len(tasks) > 1:
        return tuple(one.label for one in over_tasks(finals) if not one.scores.keys() >= set(tasks))
    own = [final for final in finals if final.group.task == tasks[0] and not final.group.is_skipped]
    labels = names([final.group.point for final in own])
    return tuple(label for label, final in zip(labels, own, strict=True) if not final.values)


def countable(finals: Sequence[Final]) -> bool:
    """Return whether the variants are few enough to compare them over all tasks."""
    return len(finals) ** 2 / max(1, len({final.group.task for final in finals})) <= _MOST_OVERALL


_Key = tuple[str, int, int]


def _key(variant: Variant) -> _Key:
    return variant.label, variant.number, variant.side


def _beaten(pair: Improvement) -> Iterator[_Key]:
    if pair.beyond_chance:  # the reference can lose too, as it is chosen by its mean
        yield _key(pair.other if pair.value > 0.5 else pair.better)


class _Panel(NamedTuple):
    """The members of an answer, the best first, and its other fields."""

    tasks: tuple[str, ...]
    members: Sequence[Variant]
    ranked: bool = True
    part: tuple[int, int] = (1, 1)


def _parts(tasks: tuple[str, ...], variantses: Sequence[Sequence[Variant]]) -> Iterator[_Panel]:
    """Yield the panels of the same tasks, given their classes of comparable variants."""
    several = [own for own in variantses if len(own) > 1]
    alone = [variant for own in variantses if len(own) == 1 for variant in own]
    panels = [_Panel(tasks, own) for own in several]
    if alone:
        panels.append(_Panel(tasks, alone, ranked=len(variantses) == 1))
    for number, panel in enumerate(panels, 1):
        yield panel._replace(part=(number, len(panels)))


def _overall(finals: Sequence[Final]) -> Iterator[_Panel]:
    every = over_tasks(finals) if countable(finals) else []
    tasks = tuple(values_by_task(every))
    if len(tasks) > 1:
        able = [variant for variant in every if variant.scores.keys() >= set(tasks)]
        yield from _parts(tasks, [by_wins(own, tasks) for own in rankable(able, tasks) if own])


def _by_task(finals: Sequence[Final]) -> Iterator[_Panel]:
    for task, panel in variants(finals).items():
        yield from _parts((task,), classes((variant, variant.terms[task]) for variant in panel))


def _answer(panel: _Panel, beaten: set[_Key], families: int) -> TaskAnswer:
    """Return the answer for a panel; ``families``: that share the level."""
    tasks, members, ranked, part = panel
    leaders = [member for member in members if _key(member) not in beaten]
    behind = [member for member in members if _key(member) in beaten]
    times = families * max(1.0, (len(members) - 1) / 2)
    more = _more(leaders, tasks, times) if len(leaders) > 1 and ranked else None
    overall = len(tasks) > 1
    return TaskAnswer(tasks, tuple(leaders), tuple(behind), more, overall, ranked=ranked, part=part)


def _more(leaders: Sequence[Variant], tasks: Sequence[str], times: float) -> MoreSeeds:
    if (panels := panels_of_pairs(leaders[:2], tasks, fewest=1)) is not None:
        return more_pairs([one - other for one, other in panels], times)
    mine, theirs = ([leader.merits(task) for task in tasks] for leader in leaders[:2])
    return more_seeds(mine, theirs, times)

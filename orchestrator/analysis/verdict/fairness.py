"""Audit whether compared runs had equal conditions: length, code, hardware, measure, and time of start."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import (
    ALIKE,
    IDENTICAL,
    MIXED_EPISODES,
    MIXED_LENGTHS,
    MIXED_METRICS,
    MOST_APART,
    differences,
    mixed_code,
    similar_lengths,
    span,
)
from orchestrator.analysis.groups.grouping import Final, SeedGroup
from orchestrator.analysis.groups.speeds import FEWEST_RUNS, drift_of, machine
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.run_table import INTERVAL, RunRow
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.core.formatting import listed

_MOST_NAMED, _MOST_PARTS = 4, 8
# Keys by which a grid chooses a machine, or threads, for some of its runs.
_SELECTS_HARDWARE = re.compile(r"(^|[._])(device|target)$")
_SELECTS_THREADS = re.compile(r"^threads$")
# Checks of final returns, and how the sentences about them begin.
_OF_RETURNS = {
    "identical metrics": (IDENTICAL, ALIKE),
    "return metric": ("final returns are of different metrics", MIXED_METRICS),
    "frames": ("trained for different lengths", MIXED_LENGTHS),
    "evaluation episodes": ("evaluated in different numbers", MIXED_EPISODES),
    "code": ("trained by different code",),
}
SPACING = "evaluation interval"
HARDWARE, THREADS, DRIFT = SPEED = "hardware", "threads", "speed over time"


@dataclass(frozen=True)
class FairnessCheck:
    """One condition. ``flags``: a sentence for each task in which it differs; none where it is equal.

    ``compared``: it is known of two variants of a task, or, of speed over time, of enough runs. ``varied``:
    a key of the grid chooses it, so that it differs by design; only runs with equal values are compared.
    """

    name: str
    flags: tuple[str, ...]
    compared: bool = True
    varied: bool = False


def audit(groups: Sequence[SeedGroup], finals: Sequence[Final]) -> list[FairnessCheck]:
    """Check that the runs of each task had the same conditions; those that differ first."""
    flags: dict[str, list[str]] = {name: [] for name in (*_OF_RETURNS, SPACING, HARDWARE, THREADS, DRIFT)}
    compared = {DRIFT} if sum(len(group.counted()[0]) for group in groups) >= FEWEST_RUNS else set()
    varied: set[str] = set()
    for task in dict.fromkeys(group.task for group in groups):
        of = f"{task}: " if task else ""
        own = [final for final in finals if final.group.task == task and final.estimate is not None]
        labels = names([final.group.point for final in own])
        terms = [(label, final.terms) for label, final in zip(labels, own, strict=True)]
        for sentence in differences(terms):
            name = next(name for name, starts in _OF_RETURNS.items() if sentence.startswith(starts))
            flags[name].append(of + sentence)
        flags["code"] += [of + sentence for sentence in mixed_code(terms)]
        if len(own) > 1:
            compared |= {*_OF_RETURNS}
        if sum(_interval(final) is not None for final in own) > 1:
            compared.add(SPACING)
        flags[SPACING] += [of + text for text in _spacing(own, labels)]
        trained = [group for group in groups if group.task == task]
        if sum(bool(group.counted()[0]) for group in trained) > 1:
            compared |= {HARDWARE, THREADS}
        for name, selects, value in (
            (HARDWARE, _SELECTS_HARDWARE, machine),
            (THREADS, _SELECTS_THREADS, lambda row: row["threads"]),
        ):
            parts = list(_parts(trained, selects))
            varied |= {name} if len(parts) > 1 else set()
            flags[name] += [of + text for part in parts for text in _unequal(part, value)]
    if (drift := drift_of(groups)) is not None:
        flags[DRIFT].append(str(drift))
    checks = [
        FairnessCheck(name, tuple(flags), name in compared or bool(flags), name in varied)
        for name, flags in flags.items()
    ]
    return sorted(checks, key=lambda check: (not check.flags, not check.compared))


def red_flags(checks: Iterable[FairnessCheck]) -> list[str]:
    """Return the names of the conditions that differ."""
    return [check.name for check in checks if check.flags]


def _spacing(finals: Sequence[Final], labels: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if groups were evaluated after different numbers of frames."""
    known = [
        (label, interval)
        for final, label in zip(finals, labels, strict=True)
        if (interval := _interval(final)) is not None
    ]
    lengths = similar_lengths(interval for _, interval in known)
    if len(lengths) > 1:
        parts = [
            f"every {span(own)} ({listed([label for label, frames in known if frames in own], _MOST_NAMED)})"
            for own in lengths
        ]
        yield f"evaluated at different intervals: {'; '.join(parts)}"


def _interval(final: Final) -> float | None:
    """Return the usual number of frames between evaluations of a group, ``None`` where unknown."""
    return middle([interval for row in final.group.counted()[0] if (interval := row.get(INTERVAL))])


def _parts(groups: Sequence[SeedGroup], selects: re.Pattern[str]) -> Iterable[list[SeedGroup]]:
    """Split groups by the values of the keys that select what is checked: the grid compares these."""

    def chosen(group: SeedGroup) -> str:
        return repr(sorted(one for one in group.point.items() if selects.search(one[0])))

    return gathered((chosen(group), group) for group in groups).values()


def _unequal(groups: Sequence[SeedGroup], value: Callable[[RunRow], Any]) -> Iterator[str]:
    """Yield a sentence with each group's number of runs by value, if their shares are not about equal.

    Nor are they where a group has none of a value that others have.
    """
    known = ([value(row) for row in group.counted()[0]] for group in groups)
    counted = [Counter(str(one) for one in own if one is not None) for own in known]
    counts = [own for own in counted if own]
    if any(_apart(count, counts) for count in {one for own in counts for one in own}):
        named = zip(counted, names([group.point for group in groups]), strict=True)
        members = gathered((_mixture(own), label) for own, label in named if own)
        parts = [f"{text} ({listed(labels, _MOST_NAMED)})" for text, labels in members.items()]
        more = len(parts) - _MOST_PARTS
        yield "; ".join(parts[:_MOST_PARTS]) + (f"; and {more} other mixtures" if more > 0 else "")


def _mixture(own: Counter[str]) -> str:
    return ", ".join(one if len(own) == 1 else f"{number} × {one}" for one, number in sorted(own.items()))


def _apart(value: str, counts: Sequence[Counter[str]]) -> bool:
    shares = [Fraction(own[value], own.total()) for own in counts]
    return min(shares) == 0 or max(shares) - min(shares) > MOST_APART

"""Audit whether compared runs had equal conditions: length, code, hardware, measure, and time of start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.comparability import (
    MIXED_EPISODES,
    MIXED_LENGTHS,
    MIXED_METRICS,
    differences,
    mixed_code,
)
from orchestrator.analysis.speed_drift import drift_of
from orchestrator.analysis.stats import Final, Group
from orchestrator.analysis.summary import machine
from orchestrator.analysis.variant_ranking import names
from orchestrator.core.formatting import listed

_MOST_NAMED = 4
# Checks of final returns, and how the sentences about them begin.
_OF_RETURNS = {
    "return metric": ("final returns are of different metrics", MIXED_METRICS),
    "frames": ("trained for different lengths", MIXED_LENGTHS),
    "evaluation episodes": ("evaluated in different numbers", MIXED_EPISODES),
    "code": ("trained by different code",),
}
HARDWARE, THREADS, DRIFT = SPEED = "hardware", "threads", "speed over time"


@dataclass(frozen=True)
class Check:
    """One condition. ``flags``: a sentence for each task in which it differs; none where it is equal."""

    name: str
    flags: tuple[str, ...]


def audit(groups: Sequence[Group], finals: Sequence[Final]) -> list[Check]:
    """Check that the runs of each task had the same conditions; those that differ first."""
    found: dict[str, list[str]] = {name: [] for name in (*_OF_RETURNS, HARDWARE, THREADS, DRIFT)}
    for task in dict.fromkeys(group.task for group in groups):
        of = f"{task}: " if task else ""
        own = [final for final in finals if final.group.task == task and final.estimate is not None]
        labels = names([final.group.point for final in own])
        terms = [(label, final.terms) for label, final in zip(labels, own, strict=True)]
        for sentence in differences(terms):
            name = next(name for name, starts in _OF_RETURNS.items() if sentence.startswith(starts))
            found[name].append(of + sentence)
        found["code"] += [of + sentence for sentence in mixed_code(terms)]
        trained = [group for group in groups if group.task == task]
        found[HARDWARE] += [of + text for text in _unequal(trained, machine)]
        if not any("threads" in group.point for group in trained):  # else it is what the grid compares
            found[THREADS] += [of + text for text in _unequal(trained, lambda row: row["threads"])]
    if (drift := drift_of(groups)) is not None:
        found[DRIFT].append(str(drift))
    checks = [Check(name, tuple(flags)) for name, flags in found.items()]
    return sorted(checks, key=lambda check: not check.flags)


def red_flags(checks: Iterable[Check]) -> list[str]:
    """Return the names of the conditions that differ."""
    return [check.name for check in checks if check.flags]


def _unequal(groups: Sequence[Group], value: Callable[[Mapping[str, Any]], Any]) -> Iterator[str]:
    """Yield a sentence if not all groups have the same set of values, with the groups that have each."""
    members: dict[str, list[str]] = {}
    for group, label in zip(groups, names([group.point for group in groups]), strict=True):
        values = {str(found) for row in group.counted()[0] if (found := value(row)) is not None}
        if values:
            members.setdefault(" and ".join(sorted(values)), []).append(label)
    if len(members) > 1:
        yield "; ".join(f"{text} ({listed(labels, _MOST_NAMED)})" for text, labels in members.items())

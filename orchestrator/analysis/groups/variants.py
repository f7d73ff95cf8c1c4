"""Variants side by side, in a task and over all of them, and their performance profiles.

Profiles of final returns follow rliable's definition, but seeds may differ in number from task to task.
Within a task they need no scale; across tasks a profile needs scores on one scale, which is then named.
Intervals are 95 % percentile intervals of a bootstrap over the seeds of each task, with fixed draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import ReturnTerms, classes
from orchestrator.analysis.groups.grouping import Final, best_first, by_task
from orchestrator.analysis.statistics.bootstrap import weights
from orchestrator.analysis.statistics.pairs import FEW_PAIRS, paired
from orchestrator.analysis.statistics.significance import INTERVAL_SEEDS, Floats
from orchestrator.core.labels import Point, labeller

SEED = 20
_THRESHOLDS = 100


@dataclass(frozen=True)
class Variant:
    """A variant over tasks: for each, its final returns, one per seed, and their conditions.

    ``number`` and ``side`` are those of its groups.
    """

    label: str
    number: int
    side: int
    scores: Mapping[str, tuple[float, ...]]
    terms: Mapping[str, ReturnTerms]

    def merits(self, task: str) -> Floats:
        """The returns in a task as numbers that are higher for better ones."""
        return self.terms[task].merits(self.scores[task])

    @property
    def n(self) -> int:
        """Number of runs over all tasks."""
        return sum(map(len, self.scores.values()))

    @property
    def fewest(self) -> int:
        """Number of seeds in the task that has the fewest."""
        return min(map(len, self.scores.values()), default=0)


@dataclass(frozen=True, eq=False)
class PerformanceProfile:
    """Share of a variant's runs that score above each threshold; no band where a task has too few seeds.

    Between two thresholds the share is that of the lower one.
    """

    variant: Variant
    thresholds: Floats
    value: Floats
    low: Floats | None
    high: Floats | None


@dataclass(frozen=True)
class Profiles:
    """Profiles that share an axis: of one task in raw returns, or of several ``tasks`` scaled by ``spans``.

    ``spans``: per task the returns scaled to 0 and 1. ``left_out``: variants that lack one of the tasks.
    """

    tasks: tuple[str, ...]
    profiles: tuple[PerformanceProfile, ...]
    spans: Mapping[str, tuple[float, float]]
    left_out: tuple[str, ...] = ()


# Variants


def variants(finals: Sequence[Final]) -> dict[str, list[Variant]]:
    """Return per task every group with a final return, the best first, labelled by the keys that vary."""
    panels = by_task(final for final in finals if final.values)
    return {task: list(_named(task, best_first(panel))) for task, panel in panels.items()}


def _named(task: str, panel: Sequence[Final]) -> Iterator[Variant]:
    points = [final.group.point for final in panel]
    for final, label in zip(panel, names(points), strict=True):
        group = final.group
        yield Variant(label, group.number, group.side, {task: final.values}, {task: final.terms})


def names(points: Sequence[Point], without: Sequence[str] = ("task",)) -> list[str]:
    """Label each point by the keys that vary, except the keys in ``without``."""
    label = labeller(points, without)
    plain = [label(point) if len(points) > 1 else "" for point in points]
    return [
        name or str(point.get("algorithm") or point.get("sweep") or "all runs")
        for name, point in zip(plain, points, strict=True)
    ]


def over_tasks(finals: Sequence[Final]) -> list[Variant]:
    """Return every variant over all its tasks; sweeps are kept apart only if two of them share a task."""
    sweeps = gathered((final.group.task, final.group.sweep) for final in finals)
    several = any(len(set(named)) > 1 for named in sweeps.values())
    members = gathered(
        ((final.group.sweep if several else "", *final.group.variant.items()), final) for final in finals
    )
    points = [
        {**({"sweep": own[0].group.sweep} if several else {}), **own[0].group.variant}
        for own in members.values()
    ]
    return [
        Variant(
            label,
            own[0].group.number,
            own[0].group.side if several else 0,
            {final.group.task: final.values for final in own if final.values},
            {final.group.task: final.terms for final in own if final.values},
        )
        for label, own in zip(names(points), members.values(), strict=True)
    ]


def rankable(every: Sequence[Variant], tasks: Iterable[str]) -> list[list[Variant]]:
    """Split variants into classes that can be ranked in each of the tasks, which all of them have."""
    panels = [list(every)]
    for task in tasks:
        panels = [
            part for some in panels for part in classes((variant, variant.terms[task]) for variant in some)
        ]
    return panels


def panels_of_pairs(
    members: Sequence[Variant], tasks: Sequence[str], fewest: int = FEW_PAIRS
) -> list[Floats] | None:
    """Return per task a (members, pairs) matrix of runs with common luck; ``None`` unless all have one."""
    panels = [
        paired([one.merits(task) for one in members], [one.terms[task].luck for one in members], fewest)
        for task in tasks
    ]
    known = [panel for panel in panels if panel is not None]
    return known if len(known) == len(panels) else None


# Performance profiles


def task_profiles(finals: Sequence[Final]) -> list[Profiles]:
    """Return profiles in raw returns, per task with several rankable variants of which one has two seeds."""
    profiles = []
    for task, every in variants(finals).items():
        for panel in rankable(every, (task,)):
            if len(panel) > 1 and any(variant.n > 1 for variant in panel):
                profiles.append(_profiles(panel, (task,), {}))
    return profiles


def overall_profiles(
    every: Sequence[Variant], scores: Mapping[str, tuple[float, float]] | None = None
) -> list[Profiles]:
    """Return profiles over all tasks, of rankable variants that have them all; none without two of each.

    A task's returns are scaled by the worst and the best final return of these variants, or by ``scores``;
    a task with equal returns is left out.
    """
    tasks = tuple(_spans(every))
    whole = [variant for variant in every if variant.scores.keys() >= set(tasks)]
    left_out = tuple(variant.label for variant in every if variant.scores and variant not in whole)
    profiles = []
    for panel in rankable(whole, tasks):
        worst_to_best = {
            task: span[::-1] if panel[0].terms[task].lower else span for task, span in _spans(panel).items()
        }
        spans = {task: (scores or {}).get(task, span) for task, span in worst_to_best.items()}
        if len(spans) > 1 and len(panel) > 1:
            profiles.append(_profiles(panel, tuple(spans), spans, left_out))
    return profiles


def scaled(variant: Variant, task: str, spans: Mapping[str, tuple[float, float]]) -> Floats:
    """Return a variant's final returns in a task, scaled to 0 and 1 where ``spans`` has the task."""
    low, high = spans.get(task, (0.0, 1.0))
    return (np.array(variant.scores[task]) - low) / (high - low)


def _spans(every: Iterable[Variant]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest final return of each task, where these differ."""
    values = values_by_task(every)
    return {task: (min(own), max(own)) for task, own in values.items() if max(own) > min(own)}


def values_by_task(every: Iterable[Variant]) -> dict[str, list[float]]:
    """Return the final returns of all variants by task."""
    return gathered((task, value) for one in every for task, own in one.scores.items() for value in own)


def _thresholds(values: Floats) -> Floats:
    """Return the scores at which a profile changes, with a margin at both ends; an even grid if too many."""
    thresholds = np.unique(values)
    if len(thresholds) > _THRESHOLDS:
        thresholds = np.linspace(thresholds[0], thresholds[-1], _THRESHOLDS)
    margin = 0.03 * (thresholds[-1] - thresholds[0]) or 0.03 * abs(thresholds[0]) or 1.0
    return np.concatenate([[thresholds[0] - margin], thresholds, [thresholds[-1] + margin]])


def _profiles(
    panel: Sequence[Variant],
    tasks: tuple[str, ...],
    spans: Mapping[str, tuple[float, float]],
    left_out: tuple[str, ...] = (),
) -> Profiles:
    """Return the profiles of rankable variants over these tasks, scaled by ``spans`` if there are any."""
    scores = [[scaled(variant, task, spans) for task in tasks] for variant in panel]
    axis = _thresholds(np.concatenate([part for own in scores for part in own]))
    profiles = (
        PerformanceProfile(variant, axis, *performance_profile(own, axis))
        for variant, own in zip(panel, scores, strict=True)
    )
    return Profiles(tasks, tuple(profiles), spans, left_out)


def performance_profile(
    scores: Sequence[Floats], thresholds: Floats
) -> tuple[Floats, Floats | None, Floats | None]:
    """Return the share of runs above each threshold, and its interval, all of shape (thresholds,).

    ``scores``: per task one number per run. Every task weighs the same; with as many runs in each it is
    rliable's score distribution. No interval where a task has too few runs.
    """
    above = [(own[:, None] > thresholds).astype(float) for own in scores]
    value = np.mean([matrix.mean(axis=0) for matrix in above], axis=0)
    if any(len(own) < INTERVAL_SEEDS for own in scores):
        return value, None, None
    generator = np.random.default_rng(SEED)
    draws = np.mean([weights(generator, len(matrix)) @ matrix for matrix in above], axis=0)
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return value, low, high

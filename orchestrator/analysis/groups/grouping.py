"""Group runs by seed, and estimate their final returns.

A group is all runs of a sweep that differ in nothing but the seed. Returns are raw: groups are compared
within a task and never averaged across tasks. Estimates are interquartile means over seeds, with 95 %
intervals by bootstrap over seeds, as rliable defines them; fewer than four seeds have none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import ReturnTerms, terms_of
from orchestrator.analysis.run_table import RunRow, distinct, known
from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of
from orchestrator.core.labels import Point, run_labels
from orchestrator.core.types import RunState

# Colours of lines: one per algorithm, and of its variants each has another dash.
HUES = 8


@dataclass(frozen=True)
class Members:
    """Runs that differ only in their seed: their rows of the table of runs."""

    rows: tuple[RunRow, ...]

    @property
    def states(self) -> dict[str, int]:
        """Number of runs in each state."""
        counted = Counter(row["state"] for row in self.rows)
        return {state.value: counted[state.value] for state in RunState if counted[state.value]}

    @property
    def states_text(self) -> str:
        """Number of runs in each state, as text."""
        return ", ".join(f"{count} {state}" for state, count in self.states.items())

    @property
    def is_skipped(self) -> bool:
        """Whether all of them were skipped."""
        return {row["state"] for row in self.rows} == {RunState.SKIPPED.value}

    def counted(self) -> tuple[list[RunRow], str]:
        """Return the finished runs, or stale ones if there is nothing else, and a note on those left out."""
        done = [row for row in self.rows if row["state"] == RunState.DONE.value]
        stale = [row for row in self.rows if row["state"] == RunState.STALE.value]
        if done:
            return done, f"{len(stale)} stale left out" if stale else ""
        return stale, f"all {len(stale)} stale" if stale else ""


@dataclass(frozen=True)
class SeedGroup(Members):
    """Runs of one sweep that differ only in their seed.

    ``variant`` is the part of ``point`` that other tasks and other sweeps may have as well. ``number``
    of the variant and ``side``, which counts sweeps from 0, fix colour and dash in every picture.
    """

    sweep: str
    number: int
    side: int
    label: str
    point: Point
    variant: Point

    @property
    def task(self) -> str:
        """The task, empty if the grid names none."""
        return str(self.point.get("task", ""))


@dataclass(frozen=True)
class Final:
    """A group's final returns: one per seed (finite ones only), and their estimate if there is any."""

    group: SeedGroup
    values: tuple[float, ...]
    estimate: Estimate | None
    note: str
    terms: ReturnTerms

    @property
    def merit(self) -> float:
        """The estimate as a number that is higher for a better one; of groups without one the lowest."""
        return float(self.terms.merits([self.estimate.value])[0]) if self.estimate else -math.inf


@lru_cache(maxsize=1)
def groups(collected: Collected) -> tuple[SeedGroup, ...]:
    """Return the groups of the present grids, in the order of their first run."""
    rows = [row for row in collected.runs.iter_rows(named=True) if row["in_grid"]]
    parted = by_point(rows, ["sweep", *(key for key in collected.keys if key != "seed")])
    points = [point for point, _ in parted]
    variants = _variants(points, [own[0]["trainer"] for _, own in parted])
    sides = list(dict.fromkeys(point["sweep"] for point in points))
    return tuple(
        SeedGroup(tuple(own), point["sweep"], number, sides.index(point["sweep"]), label, point, variant)
        for (point, own), number, label, variant in zip(
            parted, _numbers(variants), group_labels(points), variants, strict=True
        )
    )


def by_point(rows: Iterable[RunRow], keys: Sequence[str]) -> list[tuple[dict[str, Any], list[RunRow]]]:
    """Group rows with the same values of ``keys``: these values, without unknown ones, and the rows."""
    return [
        ({key: value for key, value in zip(keys, values, strict=True) if value is not None}, own)
        for values, own in gathered((tuple(row[key] for key in keys), row) for row in rows).items()
    ]


def _variants(points: Sequence[Point], trainers: Sequence[str]) -> list[dict[str, Any]]:
    """Return each point's variant: its algorithm, and the keys that vary within a task of a sweep.

    Other keys are settings of the whole sweep or task, as the number of frames often is. No two points of a
    sweep and task have the same variant.
    """
    alike = gathered(((point["sweep"], point.get("task")), point) for point in points)
    kept = dict.fromkeys(("algorithm", "model"))
    for several in alike.values():
        for key in dict.fromkeys(key for point in several for key in point):
            if any(point.get(key) != several[0].get(key) for point in several):
                kept[key] = None
    kept.pop("task", None)
    variants = [{key: point[key] for key in point if key in kept} for point in points]
    if len(set(trainers)) > 1:
        return [{"trainer": name, **variant} for name, variant in zip(trainers, variants, strict=True)]
    return variants


def _numbers(variants: Sequence[Mapping[str, Any]]) -> list[int]:
    """Number each variant: its algorithm's colour, plus ``HUES`` times its place among those of that colour.

    Where all variants have one algorithm, each has a colour of its own.
    """
    identities = [tuple(variant.items()) for variant in variants]
    algorithms = [variant.get("algorithm", variant.get("trainer")) for variant in variants]
    kinds = algorithms if len(set(algorithms)) > 1 else identities
    hues = {kind: number % HUES for number, kind in enumerate(dict.fromkeys(kinds))}
    taken: Counter[int] = Counter()
    numbers: dict[Any, int] = {}
    for identity, kind in zip(identities, kinds, strict=True):
        if identity not in numbers:
            numbers[identity] = hues[kind] + HUES * taken[hues[kind]]
            taken[hues[kind]] += 1
    return [numbers[identity] for identity in identities]


def group_labels(points: Sequence[Point], without: tuple[str, ...] = ()) -> list[str]:
    """Label each point by the keys that vary, or by its algorithm where none does."""
    if len(points) > 1 and all(labels := run_labels(points, without)):
        return labels
    return [str(point.get("algorithm", point["sweep"])) for point in points]


# Returns


def final_returns(seed_groups: Sequence[SeedGroup], *, intervals: bool = True) -> list[Final]:
    """Return the final returns of every group, in order; without ``intervals`` in a tenth of the time."""
    finals = []
    for group in seed_groups:
        rows, note = group.counted()
        values, lost = final_values(rows)
        estimate = estimate_of(values, intervals=intervals)
        finals.append(Final(group, values, estimate, joined([note, lost]), terms_of(rows)))
    return finals


def by_task(finals: Iterable[Final]) -> dict[str, list[Final]]:
    """Return the final returns of each task."""
    return gathered((final.group.task, final) for final in finals)


def best_first(finals: Iterable[Final]) -> list[Final]:
    """Sort by the interquartile mean, groups without one last."""
    return sorted(finals, key=lambda one: -one.merit)


def final_values(rows: Sequence[RunRow]) -> tuple[tuple[float, ...], str]:
    """Return the finite final returns, one of runs with identical metrics, and a note on runs left out."""
    several = distinct(rows)
    values, returning = known(several, "final_return"), known(rows, "final_return")
    lost, alike = len(rows) - len(returning), len(returning) - len(values)
    notes = {"without a finite return": lost, "left out, as metrics are identical to another seed's": alike}
    return values, joined(f"{number} of {len(rows)} {what}" for what, number in notes.items() if number)


def joined(notes: Iterable[str]) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)

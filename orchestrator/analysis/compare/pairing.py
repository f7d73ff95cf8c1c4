"""Turn the table of runs into a comparison: match groups and calculate their figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from orchestrator.analysis.cells import text
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.compare.axis import ComparedKey, find_axis, find_baseline, find_key, with_key
from orchestrator.analysis.compare.model import (
    DOLLARS,
    MEMORY,
    Combination,
    ComparedValue,
    KeyComparison,
    ValueRatios,
)
from orchestrator.analysis.compare.returns import Returns, returns_between
from orchestrator.analysis.groups.comparability import terms_of
from orchestrator.analysis.groups.curves import series_of
from orchestrator.analysis.groups.grouping import Members, by_point, final_values, group_labels, joined
from orchestrator.analysis.groups.keys import HARDWARE, SWEEP, TARGET, follows
from orchestrator.analysis.groups.speeds import machine
from orchestrator.analysis.run_table import RunRow, known
from orchestrator.analysis.statistics.bootstrap import estimate_of
from orchestrator.analysis.statistics.ratios import Side, ratio
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.labels import Point
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING, comparable

PER_THREAD, PER_CORE, PER_DOLLAR = "thread", "core", "dollar"
_FRAMES_PER_HOUR = 1e6 / 3600.0


def compare_by(
    collected: Collected,
    key: str,
    *,
    baseline: str | None = None,
    prices: Prices | None = None,
    intervals: bool = True,
) -> KeyComparison:
    """Compare runs of the present grids that differ in nothing but ``key`` and their seed.

    Without ``intervals`` returns have none, which is quicker; ratios always have theirs. Raises
    :class:`OrchestrateError` if there is nothing to compare by that key, or no such baseline.
    """
    rows = [
        {**row, HARDWARE: machine(row), DOLLARS: _dollars(row, prices or {})}
        for row in collected.runs.iter_rows(named=True)
        if row["in_grid"]
    ]
    if not rows:
        raise OrchestrateError(
            "there are no runs to compare", hint="begin with: orchestrate sweep --grid GRID"
        )
    by = find_key(rows, collected.keys, key)
    stayed = [row for row in rows if by != TARGET or "," not in (row[TARGET] or "")]
    axis = find_axis(stayed, collected.keys, by)
    axis = replace(axis, typed=_as_written(axis, stayed, collected))
    if by == TARGET:  # a first run that moved does not change the order
        order = list(dict.fromkeys((row[TARGET] or "").partition(",")[0] for row in rows))
        axis = replace(axis, typed={value: value for value in sorted(axis.values, key=order.index)})
    sets = list(_sets(stayed, collected.keys, axis))
    base = find_baseline(axis, baseline, {value: _seeds(sets, value) for value in axis.values})
    counted = [row for matched in sets for group in matched.groups.values() for row in group.counted()[0]]
    figure, per = comparable(counted), _per(sets, counted, axis)
    measures = _measures(figure, per)
    series = series_of(collected, counted)
    return KeyComparison(
        tuple(dict.fromkeys(row["sweep"] for row in rows)),
        axis.key,
        axis.short,
        axis.typed,
        base,
        axis.together,
        per,
        tuple(
            _combination(
                matched, returns_between(list(matched.groups.values()), series), base, measures, intervals
            )
            for matched in sets
        ),
        tuple(_ratios(sets, value, base, measures, len(axis.values) - 1) for value in axis.values),
        len(rows) - len(stayed),
        figure,
    )


def _as_written(axis: ComparedKey, rows: Iterable[RunRow], collected: Collected) -> dict[str, Any]:
    """Return the values with their types in the grid, which columns of mixed types hold as text."""
    typed = dict(axis.typed)
    for row in rows:
        point = collected.points.get((row[SWEEP], row["run_id"]), {})
        key = axis.key if axis.key in point else axis.key.removeprefix("grid.")
        if key in point and axis.key in collected.keys:
            typed[text(row[axis.key])] = point[key]
    return typed


def _dollars(row: RunRow, prices: Prices) -> float | None:
    """Return the cost of a million frames at the end-to-end throughput, ``None`` without a price."""
    price, speed = prices.get((row[SWEEP], row["run_id"])), row[END_TO_END]
    return price / speed * _FRAMES_PER_HOUR if price and speed else None


# Matching groups


@dataclass(frozen=True)
class _Set:
    """Groups that differ in nothing but the key, by its value."""

    label: str
    point: Point
    groups: Mapping[str, Members]

    def differs_in(self, column: str) -> bool:
        """Return whether values of the key differ in a column, in which runs of one value are all alike."""
        counted = filter(None, (group.counted()[0] for group in self.groups.values()))
        told = [frozenset(row[column] for row in rows) for rows in counted]
        return len(set(told)) > 1 and all(len(own) == 1 and None not in own for own in told)

    def side(self, value: str, measure: _Measure) -> dict[tuple[Any, ...], dict[Any, float]]:
        """Return a figure of each run that counts, by its seed."""
        rows = self.groups[value].counted()[0] if value in self.groups else []
        figures = {
            row.get("seed"): own for row in rows if (own := measure(row)) is not None and 0 < own < math.inf
        }
        identity = tuple((key, text(value)) for key, value in self.point.items())
        return {identity: figures} if figures else {}


def _sets(rows: Sequence[RunRow], keys: Sequence[str], axis: ComparedKey) -> Iterator[_Set]:
    own = [key for key in (SWEEP, *keys) if key not in (axis.key, "seed", *axis.together)]
    parted = by_point(with_key(rows, keys, axis.key), own)
    labels = group_labels([{SWEEP: "all", **point} for point, _ in parted])
    for (point, members), label in zip(parted, labels, strict=True):
        of_value = {value: [row for row in members if text(row[axis.key]) == value] for value in axis.values}
        yield _Set(label, point, {value: Members(tuple(some)) for value, some in of_value.items() if some})


def _seeds(sets: Iterable[_Set], value: str) -> int:
    """Count the seeds of a value that have finished runs."""
    groups = (matched.groups[value] for matched in sets if value in matched.groups)
    return len({row.get("seed") for group in groups for row in group.counted()[0]})


# The figures


# A figure of a run, ``None`` where unknown.
_Measure = Callable[[RunRow], float | None]


def _measures(figure: str, per: str) -> dict[str, _Measure]:
    """Return the figures that ratios are taken of, by the ratio's name in :class:`ValueRatios`."""

    def efficiency(row: RunRow) -> float | None:
        if per == PER_DOLLAR:
            return 1 / row[DOLLARS] if row[DOLLARS] else None
        spent = row["threads"] or 1 if per == PER_THREAD else row["run_cores"]
        return row[figure] / spent if per and row[figure] and spent else None

    columns = {"speed": figure, "end_to_end": END_TO_END, "memory": MEMORY}
    return {**{name: itemgetter(column) for name, column in columns.items()}, "efficiency": efficiency}


def _per(sets: Iterable[_Set], rows: Sequence[RunRow], axis: ComparedKey) -> str:
    """Choose threads, or else cores, if the values differ in them and no GPU is used; else known dollars."""
    cpu_only = not any(row["gpu_model"] or "cuda" in (row["device"] or "") for row in rows)
    several = len({row["threads"] for row in rows}) > 1
    if axis.key == "threads" or (cpu_only and several and follows(rows, "threads", axis.key)):
        return PER_THREAD
    if cpu_only and any(matched.differs_in("run_cores") for matched in sets):
        return PER_CORE
    return PER_DOLLAR if any(row[DOLLARS] for row in rows) else ""


def _ratios(
    sets: Sequence[_Set], value: str, base: str, measures: Mapping[str, _Measure], among: int
) -> ValueRatios:
    """Return the ratios over all sets; ``among``: how many values are compared with the baseline."""

    def side(of: str, measure: _Measure) -> Side:
        return {point: own for matched in sets for point, own in matched.side(of, measure).items()}

    return ValueRatios(
        value,
        **{
            name: ratio(value, base, side(value, measure), side(base, measure), among=max(1, among))
            for name, measure in measures.items()
        },
    )


def _combination(
    matched: _Set, returns: Sequence[Returns], base: str, measures: Mapping[str, _Measure], intervals: bool
) -> Combination:
    among = len(matched.groups) - 1
    cells = tuple(
        _cell(group, own, _ratios([matched], value, base, measures, among), intervals)
        for (value, group), own in zip(matched.groups.items(), returns, strict=True)
    )
    return Combination(matched.label, matched.point, cells, returns[0].frames, returns[0].seconds)


def _cell(group: Members, returns: Returns, ratios: ValueRatios, intervals: bool) -> ComparedValue:
    rows, note = group.counted()
    final, lost = final_values(rows)
    samples = final, returns.at_frames, returns.at_time
    late = returns.n - len(returns.at_time)
    yet = f"{late} of {len(rows)} without a return yet at equal time" if late else ""
    at_end, at_frames, at_time = (estimate_of(sample, intervals=intervals) for sample in samples)
    return ComparedValue(
        **vars(ratios),
        members=group,
        figures={name: known(rows, name) for name in (TRAINING, END_TO_END, MEMORY, DOLLARS)},
        final=at_end,
        at_frames=at_frames,
        at_time=at_time,
        over_frames=returns.over_frames,
        over_time=returns.over_time,
        note=joined([note, lost, yet]),
        returns=final,
        terms=terms_of(rows),
    )

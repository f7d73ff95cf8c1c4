"""Turn the table of runs into a comparison: match groups and calculate their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.comparability import terms_of
from orchestrator.analysis.compare.axis import (
    HARDWARE,
    ComparedKey,
    find_axis,
    find_baseline,
    follows,
    hardware,
    text,
    with_key,
)
from orchestrator.analysis.compare.model import (
    Combination,
    ComparedValue,
    KeyComparison,
    Members,
    Overall,
    ReturnCurve,
)
from orchestrator.analysis.compare.returns import Returns, returns_between, series_of
from orchestrator.analysis.ratios import Ratio, Side, ratio
from orchestrator.analysis.stats import Estimate, estimates_of, finite, group_labels
from orchestrator.core.errors import OrchestrateError
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING, comparable

# (sweep, run id) → US dollars for an hour of that run.
Prices = Mapping[tuple[str, str], float]
PER_THREAD, PER_DOLLAR = "thread", "dollar"
_Row = Mapping[str, Any]


def compare_by(
    collected: Collected, key: str, *, baseline: str | None = None, prices: Prices | None = None
) -> KeyComparison:
    """Compare runs of the present grids that differ in nothing but ``key`` and their seed.

    Raises :class:`OrchestrateError` if there is nothing to compare by that key, or no such baseline.
    """
    rows = [
        {**row, HARDWARE: hardware(row)} for row in collected.runs.iter_rows(named=True) if row["in_grid"]
    ]
    if not rows:
        raise OrchestrateError(
            "there are no runs to compare", hint="begin with: orchestrate sweep --grid GRID"
        )
    axis = find_axis(rows, collected.keys, key)
    sets = list(_sets(rows, collected.keys, axis))
    base = find_baseline(axis, baseline, {value: _seeds(sets, value) for value in axis.values})
    counted = [row for one in sets for group in one.groups.values() for row in group.counted()[0]]
    cost = _Cost(_per(sets, axis, prices or {}), prices or {}, comparable(counted))
    return KeyComparison(
        tuple(dict.fromkeys(row["sweep"] for row in rows)),
        axis.key,
        axis.short,
        axis.values,
        base,
        axis.together,
        cost.per,
        tuple(_combinations(collected, sets, base, cost)),
        tuple(_overall(sets, value, base, cost, len(axis.values) - 1) for value in axis.values),
        cost.figure,
    )


# Matching groups


@dataclass(frozen=True)
class _Set:
    """Groups that differ in nothing but the key, by its value."""

    label: str
    point: Mapping[str, Any]
    groups: Mapping[str, Members]

    def side(self, value: str, column: str) -> dict[tuple[Any, ...], dict[Any, float]]:
        """Return a figure of each run that counts, by its seed."""
        if value not in self.groups:
            return {}
        rows = self.groups[value].counted()[0]
        figures = {row.get("seed"): row[column] for row in rows if finite(row[column]) and row[column] > 0}
        identity = tuple((key, text(value)) for key, value in self.point.items())
        return {identity: figures} if figures else {}


def _sets(rows: Sequence[_Row], keys: Sequence[str], axis: ComparedKey) -> Iterator[_Set]:
    own = [key for key in ("sweep", *keys) if key not in (axis.key, "seed", *axis.together)]
    members: dict[tuple[Any, ...], dict[str, list[_Row]]] = {}
    for row in with_key(rows, keys, axis.key):
        of_value = members.setdefault(tuple(row[key] for key in own), {})
        of_value.setdefault(text(row[axis.key]), []).append(row)
    points = [
        {key: value for key, value in zip(own, values, strict=True) if value is not None}
        for values in members
    ]
    labels = group_labels([{"sweep": "all", **point} for point in points])
    for point, label, by_value in zip(points, labels, members.values(), strict=True):
        groups = {value: Members(tuple(by_value[value])) for value in axis.values if value in by_value}
        yield _Set(label, point, groups)


def _seeds(sets: Iterable[_Set], value: str) -> int:
    """Count the seeds of a value that have finished runs."""
    groups = (one.groups[value] for one in sets if value in one.groups)
    return len({row.get("seed") for group in groups for row in group.counted()[0]})


# Cost


@dataclass(frozen=True)
class _Cost:
    """Divisor of efficiency (threads, dollars per hour, or none: empty ``per``) and compared throughput."""

    per: str
    prices: Prices
    figure: str

    def over(self, group: Members, other: Members) -> float | None:
        """Return this group's cost over the other group's; ``None`` where unknown."""
        mine, theirs = self._of(group), self._of(other)
        return mine / theirs if mine and theirs else None

    def gain(self, speed: Ratio | None, end_to_end: Ratio | None) -> Ratio | None:
        """Return the ratio to divide by cost: money pays for evaluations too."""
        return end_to_end if self.per == PER_DOLLAR else speed

    def _of(self, group: Members) -> float | None:
        rows = group.counted()[0]
        if not self.per or not rows:
            return None
        if self.per == PER_THREAD:
            return fmean(row["threads"] or 1 for row in rows)
        known = [self.prices.get((row["sweep"], row["run_id"])) for row in rows]
        paid = [price for price in known if price]
        return fmean(paid) if len(paid) == len(known) else None


def _per(sets: Iterable[_Set], axis: ComparedKey, prices: Prices) -> str:
    """Choose threads if the values differ in them and no GPU is used, else dollars if they are known."""
    rows = [row for one in sets for group in one.groups.values() for row in group.counted()[0]]
    cpu_only = not any(row["gpu_model"] or "cuda" in (row["device"] or "") for row in rows)
    several = len({row["threads"] for row in rows}) > 1
    if axis.key == "threads" or (cpu_only and several and follows(rows, "threads", axis.key)):
        return PER_THREAD
    return PER_DOLLAR if any((row["sweep"], row["run_id"]) in prices for row in rows) else ""


# The figures


def _combinations(
    collected: Collected, sets: Sequence[_Set], base: str, cost: _Cost
) -> Iterator[Combination]:
    found = series_of(collected, [group for one in sets for group in one.groups.values()])
    returns = [returns_between(list(one.groups.values()), found) for one in sets]
    samples = [
        _samples(group, own, number)
        for one, own in zip(sets, returns, strict=True)
        for number, group in enumerate(one.groups.values())
    ]
    # All at once, as the bootstrap takes the time.
    estimates = iter(estimates_of([sample for cell in samples for sample in cell.all]))
    cells = iter(samples)
    for one, own in zip(sets, returns, strict=True):
        yield Combination(
            one.label,
            one.point,
            tuple(_cell(one, value, base, cost, next(cells), estimates) for value in one.groups),
            own.frames,
            own.seconds,
        )


@dataclass(frozen=True)
class _Samples:
    """Samples for the estimates of one value, one number per run; and its curves."""

    final: list[float]
    at_frames: list[float]
    at_time: list[float]
    over_frames: ReturnCurve | None
    over_time: ReturnCurve | None
    note: str

    @property
    def all(self) -> list[list[float]]:
        return [self.final, self.at_frames, self.at_time]


def _samples(group: Members, returns: Returns, number: int) -> _Samples:
    rows, note = group.counted()
    final = [row["final_return"] for row in rows if finite(row["final_return"])]
    lost = len(rows) - len(final)
    late = len(returns.groups[number]) - len(returns.at_time(number))
    notes = [
        note,
        f"{lost} of {len(rows)} without a finite return" if lost else "",
        f"{late} of {len(rows)} without a return yet at equal time" if late else "",
    ]
    return _Samples(
        final,
        returns.at_frames(number),
        returns.at_time(number),
        returns.over_frames(number),
        returns.over_time(number),
        "; ".join(filter(None, notes)),
    )


def _cell(
    one: _Set,
    value: str,
    base: str,
    cost: _Cost,
    samples: _Samples,
    estimates: Iterator[Estimate | None],
) -> ComparedValue:
    group = one.groups[value]
    rows = group.counted()[0]
    speed, end_to_end = (
        ratio(value, base, one.side(value, column), one.side(base, column), among=max(1, len(one.groups) - 1))
        for column in (cost.figure, END_TO_END)
    )
    final, at_frames, at_time = next(estimates), next(estimates), next(estimates)
    return ComparedValue(
        value,
        group,
        tuple(row[TRAINING] for row in rows if finite(row[TRAINING])),
        tuple(row[END_TO_END] for row in rows if finite(row[END_TO_END])),
        tuple(row["peak_memory_mb"] for row in rows if finite(row["peak_memory_mb"])),
        speed,
        end_to_end,
        _efficiency(
            cost.gain(speed, end_to_end),
            cost.over(group, one.groups[base]) if base in one.groups else None,
        ),
        final,
        at_frames,
        at_time,
        samples.over_frames,
        samples.over_time,
        samples.note,
        tuple(samples.final),
        terms_of(rows),
    )


def _overall(sets: Sequence[_Set], value: str, base: str, cost: _Cost, among: int) -> Overall:
    speed, end_to_end = (_between(sets, value, base, column, among) for column in (cost.figure, END_TO_END))
    both = [one for one in sets if one.side(value, cost.figure) and one.side(base, cost.figure)]
    over = [cost.over(one.groups[value], one.groups[base]) for one in both]
    known = [math.log(times) for times in over if times]
    times = math.exp(fmean(known)) if known and len(known) == len(over) else None
    efficiency = _efficiency(cost.gain(speed, end_to_end), times)
    memory = _between(sets, value, base, "peak_memory_mb", among)
    return Overall(value, speed, end_to_end, efficiency, memory)


def _between(sets: Sequence[_Set], value: str, base: str, column: str, among: int) -> Ratio | None:
    """Return the ratio over all sets; ``among``: how many values are compared with the baseline."""
    mine: Side = {point: own for one in sets for point, own in one.side(value, column).items()}
    theirs: Side = {point: own for one in sets for point, own in one.side(base, column).items()}
    return ratio(value, base, mine, theirs, among=among)


def _efficiency(speed: Ratio | None, times: float | None) -> float | None:
    return speed.value / times if speed is not None and times else None

"""A comparison in words: one sentence, the rows of its table, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from orchestrator.compare.model import Cell, Combination, KeyComparison, Overall
from orchestrator.ratios import Ratio
from orchestrator.shown import duration, number
from orchestrator.stats import Estimate

_NOTHING = "–"
_MOST_NAMED = 4


def verdict(found: KeyComparison) -> str:
    """Which value is the fastest, by how much, whether that is noise, and what it did to returns."""
    rated = [one for one in found.overall if one.speed is not None and one.value != found.baseline]
    if not rated:
        return f"{_nothing_to_compare(found)}."
    best = max(rated, key=lambda one: one.speed.value if one.speed else 0.0)
    assert best.speed is not None
    said = _speed_said(found, best.speed, len(rated))
    if best.efficiency is not None and best.speed.value >= 1:
        said += f", at {best.efficiency:.0%} efficiency per {found.per}"
    said += _disagreement(found, best.value)
    return f"{said}; {_returns_said(found, best.value)}{_doubts(found)}."


def _nothing_to_compare(found: KeyComparison) -> str:
    trained = [
        value
        for value in found.values
        if any(cell.fps for one in found.combinations if (cell := one.cell(value)))
    ]
    if not trained:
        return "No run has finished yet, so nothing can be compared"
    if found.baseline not in trained:
        base = found.named(found.baseline)
        return f"No run with {base}, the baseline, has finished, so nothing can be compared"
    if len(trained) == 1:
        others = ", ".join(found.named(value) for value in found.values if value not in trained)
        return f"Only {found.named(trained[0])} has finished runs, and none has {others} to set against it"
    return f"No two finished runs differ in nothing but {found.short}, so nothing can be compared"


def _speed_said(found: KeyComparison, speed: Ratio, rated: int) -> str:
    best, base = found.named(speed.better), found.named(speed.other)
    others = ", the next best," if rated > 1 else ""
    if speed.beyond_noise is False:
        times = f"{speed.value:.2f} times as fast ({speed})"
        return f"No clear difference in speed between {best} and {base}: {times}"
    if speed.value < 1:
        return f"{base} trains fastest: {best}{others} trains {speed.value:.2f} times as fast ({speed})"
    return f"{best} trains {speed.value:.2f} times as fast as {base} ({speed})"


def _disagreement(found: KeyComparison, value: str) -> str:
    """Where combinations do not agree on who is faster, how far they lie apart."""
    cells = [cell for one in found.combinations if (cell := one.cell(value)) is not None]
    times = sorted(cell.speed.value for cell in cells if cell.speed is not None)
    if not times or times[0] >= 1 or times[-1] <= 1:
        return ""
    return f", from {times[0]:.2f} to {times[-1]:.2f} times in single combinations"


def _returns_said(found: KeyComparison, value: str) -> str:
    """How final returns compare, combination by combination; intervals that overlap tell nothing."""
    higher = lower = alike = unknown = 0
    for one in found.combinations:
        mine, base = one.cell(value), one.cell(found.baseline)
        if mine is None or base is None or mine.final is None or base.final is None:
            continue
        mine_low, mine_high, low, high = mine.final.low, mine.final.high, base.final.low, base.final.high
        if mine_low is None or mine_high is None or low is None or high is None:
            unknown += 1
        elif mine_low > high:
            higher += 1
        elif mine_high < low:
            lower += 1
        else:
            alike += 1
    all_ = higher + lower + alike + unknown
    if not all_:
        return "no returns to compare"
    if not higher + lower + alike:
        return "one seed says nothing about returns"
    if alike == all_:
        return "final returns cannot be told apart"
    parts = [(higher, "higher"), (lower, "lower"), (alike, "not told apart"), (unknown, "of one seed")]
    told = ", ".join(f"{what} in {count}" for count, what in parts if count)
    return f"final returns with {found.named(value)} are {told} of {all_} combinations"


def _doubts(found: KeyComparison) -> str:
    if not found.together:
        return ""
    names = ", ".join(key.rpartition(".")[2] for key in found.together)
    return f" ({names} change{'s' * (len(found.together) == 1)} with {found.short})"


# Tables


def columns(found: KeyComparison) -> list[str]:
    """Of the rows of :func:`sections`."""
    measured = ("runs", "frames/s", "speed-up", "efficiency", "return", "at frames", "at time", "MiB")
    return [found.short, *measured]


def sections(found: KeyComparison) -> list[tuple[str, list[list[str]]]]:
    """A name and a row for each value: of every combination with results, then over all of them."""
    shown = [one for one in found.combinations if _trained(one)] or found.combinations
    told = [(one.label, [_row(found, cell) for cell in one.cells]) for one in shown]
    if len(shown) > 1:
        told.append(("all, geometric mean", [_overall_row(found, whole) for whole in found.overall]))
    return told


def _overall_row(found: KeyComparison, whole: Overall) -> list[str]:
    speed = _ratio(whole.speed, whole.value == found.baseline)
    memory = f"× {whole.memory.value:.2f}" if whole.memory else _NOTHING
    return [whole.value, "", "", speed, _percent(whole.efficiency), "", "", "", memory]


def _row(found: KeyComparison, cell: Cell) -> list[str]:
    return [
        cell.value,
        _runs(cell),
        number(cell.middle_fps) or _NOTHING,
        _ratio(cell.speed, cell.value == found.baseline),
        _percent(cell.efficiency),
        *(_middle(one) for one in (cell.final, cell.at_frames, cell.at_time)),
        number(cell.peak_memory_mb) or _NOTHING,
    ]


def _runs(cell: Cell) -> str:
    states = cell.members.states
    if list(states) == ["done"]:
        return str(cell.n)
    return ", ".join(f"{count} {state}" for state, count in states.items())


def _ratio(one: Ratio | None, baseline: bool) -> str:
    if one is None:
        return _NOTHING
    if baseline:
        return "1"
    if one.low is None or one.high is None:
        return f"{one.value:.2f}"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.0%}"


def _middle(one: Estimate | None) -> str:
    return _NOTHING if one is None else f"{one.value:.3g}"


def notes(found: KeyComparison) -> list[str]:
    """What a reader of the table must know, a line each."""
    lines = []
    frames = [one.frames for one in found.combinations if one.frames is not None and len(one.cells) > 1]
    seconds = [one.seconds for one in found.combinations if one.seconds is not None and len(one.cells) > 1]
    if frames and seconds:
        most = _span([f"{value:,.0f}" for value in (min(frames), max(frames))])
        long = _span([duration(value) for value in (min(seconds), max(seconds))])
        lines.append(
            f"returns: at the end, at equal frames ({most}) and at equal wall time "
            f"({long}, evaluations and checkpoints included)"
        )
    if found.per:
        lines.append(f"efficiency: speed-up per {found.per}, over that of {found.named(found.baseline)}")
    if found.together:
        lines.append(f"changes with {found.short}: {', '.join(found.together)}")
    trained = [one for one in found.combinations if _trained(one)]
    told: dict[str, list[str]] = {}
    for one in trained:
        for cell in one.cells:
            if cell.note:
                told.setdefault(cell.note, []).append(f"{one.label} {found.named(cell.value)}".strip())
        if len(one.cells) == 1:
            only = f"only {found.named(one.cells[0].value)}, nothing to set against it"
            told.setdefault(only, []).append(one.label)
    for one in found.combinations if trained else ():
        if not _trained(one):
            told.setdefault("no finished run", []).append(one.label)
    return [*lines, *(f"{what}: {_some(labels)}" for what, labels in told.items())]


def _trained(one: Combination) -> bool:
    return any(cell.n for cell in one.cells)


def _some(labels: list[str]) -> str:
    left = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def _span(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


_CSV = (
    "combination",
    "key",
    "value",
    "baseline",
    "n",
    "fps",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "pairs",
    "efficiency",
    "efficiency_per",
    "final_return",
    "final_return_low",
    "final_return_high",
    "equal_frames",
    "return_at_equal_frames",
    "equal_seconds",
    "return_at_equal_time",
    "peak_memory_mb",
)


def as_csv(found: KeyComparison) -> str:
    """A line a cell, and for each value one over all combinations; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    for one in found.combinations:
        writer.writerows(_csv_row(found, one, cell) for cell in one.cells)
    writer.writerows(_csv_overall(found))
    return text.getvalue()


def _csv_row(found: KeyComparison, one: Combination, cell: Cell) -> list[object]:
    speed, final = cell.speed, cell.final
    return [
        one.label,
        found.key,
        cell.value,
        found.baseline,
        cell.n,
        cell.middle_fps,
        *_speed_columns(speed),
        cell.efficiency,
        found.per if cell.efficiency is not None else "",
        *((final.value, final.low, final.high) if final else ("", "", "")),
        one.frames,
        cell.at_frames.value if cell.at_frames else "",
        one.seconds,
        cell.at_time.value if cell.at_time else "",
        cell.peak_memory_mb,
    ]


def _csv_overall(found: KeyComparison) -> Iterator[list[object]]:
    for whole in found.overall:
        start = ["all (geometric mean)", found.key, whole.value, found.baseline, "", ""]
        per = found.per if whole.efficiency is not None else ""
        yield [*start, *_speed_columns(whole.speed), whole.efficiency, per, *[""] * 8]


def _speed_columns(speed: Ratio | None) -> tuple[object, ...]:
    return (speed.value, speed.low, speed.high, speed.n) if speed else ("", "", "", "")


def as_json(found: KeyComparison) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "sweeps": list(found.sweeps),
        "key": found.key,
        "values": list(found.values),
        "baseline": found.baseline,
        "changes_with_it": list(found.together),
        "efficiency_per": found.per or None,
        "combinations": [_combination_json(one) for one in found.combinations],
        "overall": [
            {
                "value": one.value,
                "speed_up": one.speed and asdict(one.speed),
                "efficiency": one.efficiency,
                "memory": one.memory and asdict(one.memory),
            }
            for one in found.overall
        ],
        "verdict": verdict(found),
    }


def _combination_json(one: Combination) -> dict[str, Any]:
    cells = [
        {
            "value": cell.value,
            "n": cell.n,
            "states": cell.members.states,
            "fps": cell.middle_fps,
            "speed_up": cell.speed and asdict(cell.speed),
            "efficiency": cell.efficiency,
            "final_return": cell.final and asdict(cell.final),
            "return_at_equal_frames": cell.at_frames and asdict(cell.at_frames),
            "return_at_equal_time": cell.at_time and asdict(cell.at_time),
            "peak_memory_mb": cell.peak_memory_mb,
            "note": cell.note,
        }
        for cell in one.cells
    ]
    return {
        "combination": one.label,
        "equal_frames": one.frames,
        "equal_seconds": one.seconds,
        "cells": cells,
    }

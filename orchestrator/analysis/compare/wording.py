"""Describe a comparison: one sentence, the rows of its table, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.analysis import csv_export
from orchestrator.analysis.comparability import UNRANKED, classes, differences, mixed_code
from orchestrator.analysis.compare.model import Combination, ComparedValue, KeyComparison, Overall
from orchestrator.analysis.ratios import Ratio
from orchestrator.analysis.significance import FEW_SEEDS, LEVEL, chance_of_wins, holm, least_chance, wins
from orchestrator.analysis.stats import Estimate
from orchestrator.analysis.summary import is_provisional
from orchestrator.core.formatting import duration, listed, number
from orchestrator.planning.throughput.measure import END_TO_END, NAMES, PROVISIONAL, TRAINING

_NOTHING = "–"
_SPEEDS = {
    TRAINING: "speed-up: by training throughput, that is collecting and learning; end-to-end: by wall time, "
    "with evaluations and checkpoints",
    END_TO_END: "speed-up: by end-to-end throughput, that is wall time with evaluations and checkpoints, as "
    "not every run reports how long collecting and learning took",
}
_MOST_NAMED = 4


def verdict(found: KeyComparison) -> str:
    """Compare the fastest value with the baseline in one sentence: speed, noise, and returns.

    A value with too few seeds is the fastest only if there are no others.
    """
    every = [one for one in found.overall if one.speed is not None and one.value != found.baseline]
    if not every:
        return f"{_nothing_to_compare(found)}."
    able = [one for one in every if one.speed and one.speed.beyond_noise is not None]
    rated = able or every
    best = max(rated, key=lambda one: one.speed.value if one.speed else 0.0)
    assert best.speed is not None
    said = _speed_text(found, best.speed, len(rated))
    if best.efficiency is not None and best.speed.value >= 1:
        said += f", at {best.efficiency:.0%} efficiency per {found.per}"
    said += _disagreement(found, best.value) + _end_to_end_text(found, best)
    few = [found.named(one.value) for one in every if one not in rated]
    left_out = f"; left out for too few seeds: {listed(few, _MOST_NAMED)}" if few else ""
    return f"{said}; {_returns_text(found, best.value)}{left_out}{_confounders_text(found)}."


def _nothing_to_compare(found: KeyComparison) -> str:
    trained = [
        value
        for value in found.values
        if any(cell.end_to_end_fps for one in found.combinations if (cell := one.cell(value)))
    ]
    if not trained:
        return "No run has finished yet, so nothing can be compared"
    if found.baseline not in trained:
        base = found.named(found.baseline)
        return f"No run with {base}, the baseline, has finished, so nothing can be compared"
    if len(trained) == 1:
        others = ", ".join(found.named(value) for value in found.values if value not in trained)
        return f"Only {found.named(trained[0])} has finished runs, and no run has finished with {others}"
    return f"No two finished runs differ in nothing but {found.short}, so nothing can be compared"


def _speed_text(found: KeyComparison, speed: Ratio, rated: int) -> str:
    best, base = found.named(speed.better), found.named(speed.other)
    others = ", the next best," if rated > 1 else ""
    if speed.beyond_noise is False or speed.even:
        times = f"{speed.value:.2f} times as fast ({speed})"
        return f"No clear difference in speed between {best} and {base}: {times}"
    if speed.beyond_noise is None:
        return f"{best} trained {speed.value:.2f} times as fast as {base} ({speed})"
    if speed.value < 1:
        return f"{base} trains fastest: {best}{others} trains {speed.value:.2f} times as fast ({speed})"
    return f"{best} trains {speed.value:.2f} times as fast as {base} ({speed})"


def _end_to_end_text(found: KeyComparison, best: Overall) -> str:
    """Add the end-to-end speed-up, or that the speed-up is end-to-end already."""
    if found.figure == END_TO_END:
        return ", by end-to-end throughput"
    return f"; end-to-end {best.end_to_end.value:.2f} times" if best.end_to_end is not None else ""


def _disagreement(found: KeyComparison, value: str) -> str:
    """Give the range of speed-ups where combinations disagree on the faster value."""
    cells = [cell for one in found.combinations if (cell := one.cell(value)) is not None]
    times = sorted(cell.speed.value for cell in cells if cell.speed is not None)
    if not times or times[0] >= 1 or times[-1] <= 1:
        return ""
    return f", from {times[0]:.2f} to {times[-1]:.2f} times in single combinations"


def _returns_text(found: KeyComparison, value: str) -> str:
    """Compare final returns, combination by combination, each tested and corrected for their number."""
    pairs = [
        (mine, base)
        for one in found.combinations
        if (mine := one.cell(value)) is not None and (base := one.cell(found.baseline)) is not None
        if mine.returns and base.returns
    ]
    if not pairs:
        return "no returns to compare"
    fair = [pair for pair in pairs if len(classes((cell, cell.terms) for cell in pair)) == 1]
    if not fair:
        return "final returns are not comparable, so they are not ranked"
    told = Counter(_higher([pair for pair in fair if _least_seeds(pair) >= FEW_SEEDS]))
    few, apart = len(fair) - told.total() + told["few"], told["higher"] + told["lower"]
    if few == len(pairs):
        seeds = min(map(_least_seeds, fair))
        able = f"{seeds} per side, {FEW_SEEDS} needed" if seeds < FEW_SEEDS else f"for {few} combinations"
        return f"too few seeds to tell final returns apart ({able})"
    if not apart and not few and len(fair) == len(pairs):
        return "final returns cannot be told apart"
    parts = (
        (told["higher"], "higher"),
        (told["lower"], "lower"),
        (told["alike"], "not told apart"),
        (few, "of too few seeds"),
        (len(pairs) - len(fair), "not ranked"),
    )
    listed = ", ".join(f"{what} in {count}" for count, what in parts if count)
    return f"final returns with {found.named(value)} are {listed} of {len(pairs)} combinations"


_Pair = tuple[ComparedValue, ComparedValue]


def _least_seeds(pair: _Pair) -> int:
    return min(len(cell.returns) for cell in pair)


def _higher(pairs: Sequence[_Pair]) -> Iterator[str]:
    """Yield for each pair how its first side returns: "higher", "lower", "alike", or "few" seeds."""
    import numpy as np

    samples = [(np.array(mine.returns), np.array(base.returns)) for mine, base in pairs]
    chances = holm([chance_of_wins([mine], [base]) for mine, base in samples], len(pairs))
    for (mine, base), chance in zip(samples, chances, strict=True):
        if chance <= LEVEL:
            yield "higher" if wins(mine, base).mean() > 1 / 2 else "lower"
        else:
            least = least_chance([(len(mine), len(base))]) * len(pairs)
            yield "few" if least > LEVEL else "alike"


def _confounders_text(found: KeyComparison) -> str:
    if not found.together:
        return ""
    names = ", ".join(key.rpartition(".")[2] for key in found.together)
    return f" ({names} change{'s' * (len(found.together) == 1)} with {found.short})"


# Tables


def columns(found: KeyComparison) -> list[str]:
    """Return the column names of the rows of :func:`sections`; some have two lines."""
    speeds = [f"{NAMES[found.figure].partition(' ')[0]}\nframes/s", "speed-up"]
    if found.figure == TRAINING:
        speeds.append("end-to-end\nspeed-up")
    return [found.short, "runs", *speeds, "efficiency", "return", "at\nframes", "at\ntime", "MiB"]


def sections(found: KeyComparison) -> list[tuple[str, list[list[str]]]]:
    """Return a name and a row per value, for every combination with results, then over all of them."""
    shown = [one for one in found.combinations if _trained(one)] or found.combinations
    told = [(one.label, [_row(found, cell) for cell in one.cells]) for one in shown]
    if len(shown) > 1:
        told.append(("all, geometric mean", [_overall_row(found, whole) for whole in found.overall]))
    return told


def _overall_row(found: KeyComparison, whole: Overall) -> list[str]:
    memory = f"× {whole.memory.value:.2f}" if whole.memory else _NOTHING
    return [whole.value, "", "", *_ratios(found, whole), _percent(whole.efficiency), "", "", "", memory]


def _ratios(found: KeyComparison, one: ComparedValue | Overall) -> list[str]:
    """Format the speed-up with its interval and, beside one of training throughput, the end-to-end one."""
    is_baseline = one.value == found.baseline
    told = [_ratio(one.speed, is_baseline)]
    if found.figure == TRAINING:
        told.append(_ratio(one.end_to_end, is_baseline).partition(" ")[0])
    return told


def _row(found: KeyComparison, cell: ComparedValue) -> list[str]:
    return [
        cell.value,
        _runs(cell),
        number(cell.middle_training_fps if found.figure == TRAINING else cell.middle_end_to_end_fps)
        or _NOTHING,
        *_ratios(found, cell),
        _percent(cell.efficiency),
        *(_middle(one) for one in (cell.final, cell.at_frames, cell.at_time)),
        number(cell.peak_memory_mb) or _NOTHING,
    ]


def _runs(cell: ComparedValue) -> str:
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
    """Return the notes on the table, one line each."""
    cells = [
        (f"{one.label} {found.named(cell.value)}".strip(), cell.terms)
        for one in found.combinations
        for cell in one.cells
    ]
    lines = [*mixed_code(cells), *(f"{UNRANKED}, {text}" for text in _unranked(found))]
    frames = [one.frames for one in found.combinations if one.frames is not None and len(one.cells) > 1]
    seconds = [one.seconds for one in found.combinations if one.seconds is not None and len(one.cells) > 1]
    if frames and seconds:
        most = _span([f"{value:,.0f}" for value in (min(frames), max(frames))])
        long = _span([duration(value) for value in (min(seconds), max(seconds))])
        lines.append(
            f"returns: at the end, at equal frames ({most}) and at equal wall time "
            f"({long}, evaluations and checkpoints included)"
        )
    lines.append(_SPEEDS[found.figure])
    if found.per:
        gain = "end-to-end speed-up" if found.per == "dollar" else "speed-up"
        lines.append(f"efficiency: {gain} per {found.per}, over that of {found.named(found.baseline)}")
    if found.together:
        lines.append(f"changes with {found.short}: {', '.join(found.together)}")
    return [*lines, *(f"{what}: {listed(labels, _MOST_NAMED)}" for what, labels in _row_notes(found).items())]


def _row_notes(found: KeyComparison) -> dict[str, list[str]]:
    """Return the notes on single combinations or values, with their names."""
    trained = [one for one in found.combinations if _trained(one)]
    told: dict[str, list[str]] = {}
    for one in trained:
        for cell in one.cells:
            named = f"{one.label} {found.named(cell.value)}".strip()
            if cell.note:
                told.setdefault(cell.note, []).append(named)
            if is_provisional(cell.members.counted()[0]):
                told.setdefault(PROVISIONAL, []).append(named)
        if len(one.cells) == 1:
            only = f"only {found.named(one.cells[0].value)}, nothing to compare it with"
            told.setdefault(only, []).append(one.label)
    for one in found.combinations if trained else ():
        if not _trained(one):
            told.setdefault("no finished run", []).append(one.label)
    return told


def _unranked(found: KeyComparison) -> list[str]:
    """Name the combinations with final returns that cannot be ranked, and why."""
    told: dict[str, list[str]] = {}
    for one in found.combinations:
        cells = [(found.named(cell.value), cell.terms) for cell in one.cells if cell.returns]
        for text in differences(cells):
            told.setdefault(text, []).append(one.label)
    return [f"{listed(labels, _MOST_NAMED)}: {text}" for text, labels in told.items()]


def _trained(one: Combination) -> bool:
    return any(cell.n for cell in one.cells)


def _span(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


_CSV = (
    "combination",
    "key",
    "value",
    "baseline",
    "n",
    "training_fps",
    "end_to_end_fps",
    "speed_up_by",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "pairs",
    "end_to_end_speed_up",
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
    """Format as CSV: a line per combination and value, and one per value over all; unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV)
    rows = [_csv_row(found, one, cell) for one in found.combinations for cell in one.cells]
    writer.writerows([csv_export.cell(value) for value in row] for row in [*rows, *_csv_overall(found)])
    return text.getvalue()


def _csv_row(found: KeyComparison, one: Combination, cell: ComparedValue) -> list[object]:
    speed, final = cell.speed, cell.final
    return [
        one.label,
        found.key,
        cell.value,
        found.baseline,
        cell.n,
        cell.middle_training_fps,
        cell.middle_end_to_end_fps,
        NAMES[found.figure],
        *_speed_columns(speed),
        cell.end_to_end.value if cell.end_to_end else "",
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
        start = ["all (geometric mean)", found.key, whole.value, found.baseline, "", "", ""]
        per = found.per if whole.efficiency is not None else ""
        end_to_end = whole.end_to_end.value if whole.end_to_end else ""
        speed = (NAMES[found.figure], *_speed_columns(whole.speed), end_to_end)
        yield [*start, *speed, whole.efficiency, per, *[""] * 8]


def _speed_columns(speed: Ratio | None) -> tuple[object, ...]:
    return (speed.value, speed.low, speed.high, speed.n) if speed else ("", "", "", "")


def as_json(found: KeyComparison) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "sweeps": list(found.sweeps),
        "key": found.key,
        "values": list(found.values),
        "baseline": found.baseline,
        "changes_with_it": list(found.together),
        "efficiency_per": found.per or None,
        "speed_up_by": NAMES[found.figure],
        "combinations": [_combination_json(one) for one in found.combinations],
        "overall": [
            {
                "value": one.value,
                "speed_up": one.speed and asdict(one.speed),
                "end_to_end_speed_up": one.end_to_end and asdict(one.end_to_end),
                "efficiency": one.efficiency,
                "memory": one.memory and asdict(one.memory),
            }
            for one in found.overall
        ],
        "notes": notes(found),
        "verdict": verdict(found),
    }


def _combination_json(one: Combination) -> dict[str, Any]:
    cells = [
        {
            "value": cell.value,
            "n": cell.n,
            "states": cell.members.states,
            "training_fps": cell.middle_training_fps,
            "end_to_end_fps": cell.middle_end_to_end_fps,
            "speed_up": cell.speed and asdict(cell.speed),
            "end_to_end_speed_up": cell.end_to_end and asdict(cell.end_to_end),
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

"""The table of a comparison: its rows, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from orchestrator.analysis import cells, csv_export
from orchestrator.analysis.cells import MISSING, Cell
from orchestrator.analysis.compare.model import (
    DOLLARS,
    MEMORY,
    Combination,
    ComparedValue,
    KeyComparison,
    ValueRatios,
)
from orchestrator.analysis.compare.wording import asks_speed, least_seeds, notes, verdict
from orchestrator.analysis.groups.comparability import UNRANKED, classes
from orchestrator.analysis.groups.improvement import against
from orchestrator.analysis.statistics.bootstrap import Estimate
from orchestrator.analysis.statistics.ratios import Ratio
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.formatting import dollars, number
from orchestrator.planning.throughput.measure import END_TO_END, NAMES, TRAINING

_RETURNS = ("final_return", "return_at_equal_frames", "return_at_equal_time")

_NOTHING = Cell(MISSING)
_FPS, _COST = "{}\nframes/s", "$ per million\nframes"
_END_TO_END_GAIN = "end-to-end\nspeed-up"
# Columns in the order in which they are given up last where there is no room for all; others have rank 2.
RANKS = {"return": 0, "speed-up": 0, "runs": 1, "efficiency": 1, "MiB": 3}


def columns(compared: KeyComparison, *, full: bool = False) -> list[str]:
    """Return the column names of the rows of :func:`sections`; some have two lines."""
    return [name or compared.short for name in _columns(compared, full)]


def _columns(compared: KeyComparison, full: bool) -> list[str]:
    """Return the column names, with an empty one for the key's value, led by what the key asks for."""
    training = compared.figure == TRAINING
    speed = {
        _FPS.format("training"): training,
        _FPS.format("end-to-end"): full or not training,
        "speed-up": True,
        _END_TO_END_GAIN: training,
        "efficiency": not full or bool(compared.per),
        _COST: compared.priced,
    }
    returns = {"return": True, f"P(> {compared.baseline})": full, "at\nframes": True, "at\ntime": True}
    asked = speed | returns if asks_speed(compared) else returns | speed
    every = {"": True, "runs": True, **asked, "MiB": True}
    return [name for name, told in every.items() if told]


def sections(compared: KeyComparison, *, full: bool = False) -> list[tuple[str, list[list[Cell]]]]:
    """Return a name and a row per value, for every combination with results, then over all of them.

    ``full``: only combinations with something to compare, with intervals and with the probability that a run
    returns more than one of the baseline.
    """
    trained = [combination for combination in compared.combinations if combination.finished]
    shown = [one for one in trained if one.comparable] if full else trained or compared.combinations
    told = [(one.label, [_row(compared, one, cell, full) for cell in one.cells]) for one in shown]
    if len(shown) > 1:
        overall = [
            {**_ratio_cells(compared, ratios), "MiB": _times(ratios.memory)} for ratios in compared.overall
        ]
        told.append(("all, geometric mean", overall))
    heads = _columns(compared, full)
    return [(label, [[row.get(head, Cell("")) for head in heads] for row in rows]) for label, rows in told]


def _row(
    compared: KeyComparison, combination: Combination, cell: ComparedValue, full: bool
) -> dict[str, Cell]:
    total = len(cell.members.rows)
    counted = str(cell.n) if cell.n == total else f"{cell.n} of {total}"
    ranked = full and not compared.across_tasks
    return {
        **_ratio_cells(compared, cell),
        "runs": Cell(counted, cell.n, more=(("of", total),)),
        _FPS.format("training"): _figure(cell.middle(TRAINING)),
        _FPS.format("end-to-end"): _figure(cell.middle(END_TO_END)),
        _COST: cells.number(cell.middle(DOLLARS), dollars),
        "return": _estimate(cell.final, full),
        f"P(> {compared.baseline})": _chance(cell, combination.cell(compared.baseline))
        if ranked
        else _NOTHING,
        "at\nframes": _estimate(cell.at_frames, full),
        "at\ntime": _estimate(cell.at_time, full),
        "MiB": _figure(cell.middle(MEMORY)),
    }


def _ratio_cells(compared: KeyComparison, ratios: ValueRatios) -> dict[str, Cell]:
    """Format the value and its ratios: the speed-up with its interval, the others without."""
    is_baseline, whole = ratios.value == compared.baseline, ratios.end_to_end
    return {
        "": Cell(ratios.value),
        "speed-up": _ratio(ratios.speed, is_baseline),
        _END_TO_END_GAIN: _ratio(whole and replace(whole, low=None), is_baseline),
        "efficiency": cells.number(_value(ratios.efficiency), "{:.0%}".format),
    }


def _ratio(ratio: Ratio | None, is_baseline: bool) -> Cell:
    return Cell("1", 1) if ratio is not None and is_baseline else cells.estimated(ratio, "{:.2f}".format)


def _times(ratio: Ratio | None) -> Cell:
    return cells.number(_value(ratio), "× {:.2f}".format)


def _value(known: Ratio | Estimate | None) -> float | None:
    return None if known is None else known.value


def _figure(value: float | None) -> Cell:
    return cells.number(value, number)


def _estimate(estimate: Estimate | None, full: bool) -> Cell:
    if estimate is None or not full:
        return cells.number(_value(estimate), "{:.3g}".format)
    told = cells.estimated(estimate)
    return replace(told, text=f"{told.text} (n={estimate.n})", more=(("n", estimate.n),))


def _chance(cell: ComparedValue, base: ComparedValue | None) -> Cell:
    """Return the probability that a run returns more than one of the baseline, and its interval."""
    if base is None or cell is base or not cell.returns or not base.returns:
        return _NOTHING
    if least_seeds((cell, base)) < FEW_SEEDS:
        return Cell("too few seeds")
    if len(classes((side, side.terms) for side in (base, cell))) > 1:
        return Cell(UNRANKED)
    return cells.estimated(against(cell.variant, base.variant, ("",)), "{:.2f}".format)


# Figures with an interval, of which CSV has three columns.
_WITH_INTERVAL = ("speed_up", "end_to_end_speed_up", "efficiency", "memory", "paired_difference", *_RETURNS)


def as_csv(compared: KeyComparison) -> str:
    """Format as CSV: a line per combination and value, and one per value over all; unknown is empty."""
    told = as_json(compared)
    shared = {name: told[name] for name in ("key", "baseline", "speed_up_by", "efficiency_per")}
    rows = [
        {"combination": combination["combination"], **shared, **_flat({**combination, **cell})}
        for combination in told["combinations"]
        for cell in combination["cells"]
    ]
    rows += [{"combination": "all (geometric mean)", **shared, **_flat(ratios)} for ratios in told["overall"]]
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_export.cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _flat(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and texts of JSON values as columns."""
    flat: dict[str, Any] = {}
    for name, value in told.items():
        if name in _WITH_INTERVAL:
            flat |= {f"{name}{end}": value and value[end[1:] or "value"] for end in ("", "_low", "_high")}
        elif name not in ("states", "cells"):
            flat[name] = value
    return flat


def as_json(compared: KeyComparison) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "sweeps": list(compared.sweeps),
        "key": compared.key,
        "values": list(compared.typed.values()),
        "baseline": compared.typed[compared.baseline],
        "changes_with_it": list(compared.together),
        "efficiency_per": compared.per or None,
        "speed_up_by": NAMES[compared.figure],
        "combinations": [
            {
                "combination": combination.label,
                "keys": dict(combination.point),
                "equal_frames": combination.frames,
                "equal_seconds": combination.seconds,
                "cells": [_cell_json(compared, combination, cell) for cell in combination.cells],
            }
            for combination in compared.combinations
        ],
        "overall": [_ratios_json(ratios, compared.typed) for ratios in compared.overall],
        "moved": compared.moved,
        "notes": notes(compared),
        "verdict": verdict(compared),
    }


def _ratios_json(ratios: ValueRatios, typed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "value": typed[ratios.value],
        "pairs": ratios.speed and ratios.speed.n,
        "speed_up": ratios.speed and _ratio_json(ratios.speed, typed),
        "end_to_end_speed_up": ratios.end_to_end and _ratio_json(ratios.end_to_end, typed),
        "efficiency": ratios.efficiency and _ratio_json(ratios.efficiency, typed),
        "memory": ratios.memory and _ratio_json(ratios.memory, typed),
    }


def _ratio_json(ratio: Ratio, typed: Mapping[str, Any]) -> dict[str, Any]:
    return {**asdict(ratio), "better": typed[ratio.better], "other": typed[ratio.other]}


def _cell_json(compared: KeyComparison, combination: Combination, cell: ComparedValue) -> dict[str, Any]:
    returns = zip(_RETURNS, (cell.final, cell.at_frames, cell.at_time), strict=True)
    within = compared.within_pairs(combination, cell)
    return {
        **_ratios_json(cell, compared.typed),
        "n": cell.n,
        "states": cell.members.states,
        **{name: cell.middle(name) for name in cell.figures},
        **{name: one and asdict(one) for name, one in returns},
        **({} if within is None else {"paired_difference": asdict(within)}),
        "note": cell.note,
    }

"""Data of the chart that a reader can explore: each group's curve and its seeds, small enough for a page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.analysis import cells
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.curves import Curve
from orchestrator.analysis.groups.grouping import HUES
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.run_table import RunRow
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.analysis.statistics.significance import Floats
from orchestrator.analysis.verdict.run_cost import Prices

# Values are whole numbers up to _TOP between the least and the greatest of their kind; _GAP is no value.
_TOP = 65_534

_GAP = 65_535

# Values of single seeds on a page, of one seed at least, and seeds of a line: room for 10,000 runs.
_SEED_VALUES = 60_000

_SEED_POINTS = 8

_MOST_SEEDS = 30

_MOST_LINES = 150

# The final return of each group as text, by the group's identity.
Finals = Mapping[int, str]


def charted(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves that a page has room for, in their order: the first ones of each panel."""
    panels = gathered(((curve.group.task, curve.metric), at) for at, curve in enumerate(curves))
    ranked = sorted((place, at) for own in panels.values() for place, at in enumerate(own))
    return [curves[at] for at in sorted(at for _, at in ranked[:_MOST_LINES])]


def chart_data(curves: Sequence[Curve], prices: Prices, finals: Finals) -> str:
    """Return the data as JSON: a panel per task and metric, its lines in the order of ``curves``.

    ``finals``: the final return of each line, as its card has it. Safe inside a script element of a page.
    """
    panels = gathered(((curve.group.task, curve.metric), curve) for curve in curves)
    seeds = sum(min(len(curve.scores), _MOST_SEEDS) for curve in curves)
    points = max(_SEED_POINTS, _SEED_VALUES // max(1, 2 * seeds))
    told = [_panel(task, metric, own, prices, points, finals) for (task, metric), own in panels.items()]
    return cells.safe_json(told)


def _panel(
    task: str, metric: str, own: Sequence[Curve], prices: Prices, points: int, finals: Finals
) -> dict[str, Any]:
    values = np.concatenate(
        [part.ravel() for curve in own for part in (curve.scores, *curve.band) if part is not None]
    )
    returns = (float(values.min()), float(values.max()))
    longest = max((float(np.nanmax(curve.seconds, initial=0)) for curve in own), default=0.0)
    names = plotting.group_names([curve.group for curve in own])
    lines = [
        _line(curve, name, prices, points, returns, longest) for curve, name in zip(own, names, strict=True)
    ]
    # Most lines have the same frames: each list of them is told once.
    frames = list(dict.fromkeys(tuple(map(int, curve.x)) for curve in own))
    of_line = {count: at for at, count in enumerate(frames)}
    for line, curve in zip(lines, own, strict=True):
        line["frames"] = of_line[tuple(map(int, curve.x))]
        line["final"] = finals.get(id(curve.group))
    return {
        "task": task,
        "metric": metric,
        "returns": returns,
        "seconds": longest,
        "frames": frames,
        "lines": lines,
    }


def _line(
    curve: Curve, name: str, prices: Prices, points: int, returns: tuple[float, float], longest: float
) -> dict[str, Any]:
    """Return one line; ``points``: most points of a seed."""
    group, (value, low, high) = curve.group, curve.band
    known = [prices[key] for row in curve.runs if (key := (row["sweep"], row["run_id"])) in prices]
    at = np.unique(np.linspace(0, len(curve.x) - 1, points).round().astype(int))
    several = range(min(len(curve.scores), _MOST_SEEDS)) if len(curve.scores) > 1 else ()
    return {
        "name": name,
        "id": f"{group.number}-{group.side}",
        "hue": group.number % HUES,
        "dash": group.number // HUES + group.side,
        "unfinished": curve.unfinished,
        "n": len(curve.scores),
        "value": _packed(value, *returns),
        "low": None if low is None else _packed(low, *returns),
        "high": None if high is None else _packed(high, *returns),
        "seconds": _packed(np.median(curve.seconds, axis=0), 0, longest),
        "price": middle(known),
        "at": [int(point) for point in at] if len(at) < len(curve.x) else None,
        "seeds": [
            {
                "name": _seed(curve.runs[number]),
                "value": _packed(curve.scores[number][at], *returns),
                "seconds": _packed(curve.seconds[number][at], 0, longest),
            }
            for number in several
        ],
    }


def _seed(row: RunRow) -> str:
    """Name a run of a group by its seed."""
    seed = row.get("seed")
    return str(row["run_id"])[:8] if seed is None else f"seed {seed}"


def _packed(values: Floats, low: float, high: float) -> str:
    """Return numbers as base64 of 16 bits each, little-endian."""
    scaled = (values - low) / ((high - low) or 1.0) * _TOP
    whole = np.where(np.isfinite(scaled), np.clip(np.nan_to_num(scaled), 0, _TOP).round(), _GAP)
    return base64.b64encode(whole.astype("<u2").tobytes()).decode()

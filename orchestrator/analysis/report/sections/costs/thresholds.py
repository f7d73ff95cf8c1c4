"""Times to a threshold: medians over seeds, censored where too few reached it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.curves import FramesToThreshold
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.blocks import Block, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.verdict.thresholds import USUAL_PART, TimeToThreshold
from orchestrator.core.formatting import dollars, duration, listed

_TITLE = "Time to a threshold"

_NOTE = (
    "When a run had its first single evaluation at the threshold or better, a lucky one included, so the "
    "return may be worse again: medians over finished runs, with 95 % intervals by bootstrap from four "
    "seeds on. A seed that never did counts as later than all others: where "
    "that is the median or an end of the interval, > stands before the shortest training of such a seed. "
    "Times go up to the end of an evaluation, so a run that is evaluated seldom seems late."
)

_WHY_EVALUATIONS = (
    "Times are those of evaluations in training: a return of training is of few episodes, with exploration, "
    "so a lucky one would count. Trainers evaluate by evaluation_interval, a program logs eval/return."
)

_MOST_NAMED = 8


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` without times, unless the threshold was chosen.

    It names the groups that are left out, as they have returns but no evaluations.
    """
    times, chosen = data.times, data.collected.threshold
    timed = {id(time.group) for time in times}
    without = [final.group.label for final in data.finals if final.values and id(final.group) not in timed]
    if not times and chosen is None:
        return None
    if not times:
        reason = f"no finished run was evaluated in training. {_WHY_EVALUATIONS}"
        told = reason if without else "no finished run has a finite return."
        text = Text(f"No time to a return of {cells.shown(chosen or 0.0)} is known: {told}")
        return Section("thresholds", _TITLE, (text,))
    why = (
        "The threshold is the one of --threshold."
        if chosen is not None
        else f"The threshold of a task is {USUAL_PART:.0%} of the way from the median first return to the "
        "best final one of its groups; --threshold sets another."
    )
    blocks: tuple[Block, ...] = (_table(times), Text(f"{_NOTE} {why}", note=True))
    if without:
        left_out = f"Left out, without evaluations in training: {listed(without, _MOST_NAMED)}."
        blocks = (*blocks, Text(f"{left_out} {_WHY_EVALUATIONS}", note=True))
    return Section("thresholds", _TITLE, blocks)


def _table(times: Sequence[TimeToThreshold]) -> Table:
    rows = (
        {
            "task": Cell(time.group.task or cells.MISSING),
            "group": Cell(label),
            "#threshold": cells.number(time.threshold),
            "#reached by": cells.part(time.frames.reached, len(time.frames.frames)),
            "#frames": _time(time.frames, lambda at: plotting.compact(float(f"{at:.3g}"))),
            "~wall time": _time(time.seconds, duration),
            "#dollars": _cost(time),
        }
        for time, label in zip(times, names([time.group.point for time in times]), strict=True)
    )
    return cells.table("times to a threshold", rows, if_any=("#dollars",))


def _cost(time: TimeToThreshold) -> Cell:
    if (price := time.dollars_per_second) is None:
        return Cell(cells.MISSING)
    return _time(time.seconds, lambda seconds: dollars(price * seconds), price)


def _time(reached: FramesToThreshold | None, show: Callable[[float], str], unit: float = 1.0) -> Cell:
    """Return a time as a cell. ``unit``: by which ``show`` multiplies it."""
    if reached is None:
        return Cell(cells.MISSING)

    def told(at: float) -> str:
        return show(at) if math.isfinite(at) else f"> {show(reached.trained)}"

    interval = reached.interval
    ends = "" if interval is None else f" [{told(interval[0])}, {told(interval[1])}]"
    censored = not math.isfinite(reached.median)
    span = None if interval is None else (unit * interval[0], unit * interval[1])
    text = told(reached.median) + ("" if censored else ends)
    return Cell(text, unit * reached.median, ends=span, bound=unit * reached.trained)

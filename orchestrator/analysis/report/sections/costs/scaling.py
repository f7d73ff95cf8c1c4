"""Scaling: frames/s over cores, what an iteration is made of, and up to where more actors pay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.scaling import PARTS, ScalingLine, ScalingPoint, scaling_lines
from orchestrator.analysis.report.blocks import Gallery, Points, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.report.sections.costs.speed import PEAK
from orchestrator.core.formatting import number

_POINTS = 60

_NOTE = (
    "Training throughput: the median over runs with its 95 % interval by bootstrap. Speed-up: against the "
    "smallest size, the geometric mean over pairs of runs of the same seed; efficiency: over the ratio of "
    "cores, actors × threads. Shares are of the seconds of collecting and learning, means over the "
    "processes of a run. Amdahl's law, 1 / (s + (1 - s) / n), is fitted to all runs; the interval of the "
    "serial fraction s is by bootstrap over the runs of each size. Doubling the actors pays while it brings "
    "half as many frames/s again or more; beyond, you pay for waiting."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no configuration was trained in several sizes."""
    lines = scaling_lines(data.collected)
    if not lines:
        return None
    peaks = any(point.peak is not None for line in lines for point in line.points)
    said = Points(tuple((f"{line.label}:" if len(lines) > 1 else "", f"{line.verdict}.") for line in lines))
    drawn = Gallery(tuple(islice(map(_picture, lines, range(1, len(lines) + 1)), plotting.MOST_PICTURES)))
    notes = Text(f"{_NOTE} {PEAK}" if peaks else _NOTE, note=True)
    return Section("scaling", "Scaling", (said, drawn, _table(lines), notes))


def _table(lines: Sequence[ScalingLine]) -> Table:
    over = " or ".join(dict.fromkeys(line.over for line in lines))
    rows = (
        {
            "configuration": Cell(line.label if len(lines) > 1 else cells.MISSING),
            f"#{over}": cells.number(point.number, str),
            "#cores": cells.number(point.cores, str),
            "#runs": cells.number(len(point.fps), str),
            "#training frames/s [95 %]": _frames(point),
            "#speed-up": _speed_up(point, line.points[0]),
            "#efficiency": cells.share(point.efficiency),
            **{f"#{part}": cells.share(point.shares[part]) for part in PARTS},
            "#of peak": cells.share(point.peak),
        }
        for line in lines
        for point in line.points
    )
    return cells.table("sizes", rows, if_any=("configuration", "#of peak"))


def _frames(point: ScalingPoint) -> Cell:
    within = f" [{', '.join(map(number, point.interval))}]" if point.interval else ""
    return Cell(number(point.middle) + within, point.middle, ends=point.interval)


def _speed_up(point: ScalingPoint, first: ScalingPoint) -> Cell:
    if point.speed_up is not None and point is first:
        return Cell("1", 1)
    return cells.estimated(point.speed_up, "{:.2f}".format)


def _picture(line: ScalingLine, at: int) -> Picture:
    told = [f"{point.cores}: {number(point.middle)}" for point in line.points]
    fitted = "; dotted: Amdahl's law" if line.amdahl else ""
    return plotting.picture(
        f"scaling-{at}",
        line.label,
        _drawn(line),
        caption=(
            "Training throughput of each run (dots) and its median (line) over cores, both axes "
            f"logarithmic. Dashed: as many times as fast as the smallest size as there are cores{fitted}."
        ),
        alt=f"Frames/s of training over cores, {line.label}. {plotting.listed(told)}. {line.verdict}.",
        small=True,
    )


def _drawn(line: ScalingLine) -> Draw:
    first, last = line.points[0], line.points[-1]
    labels = ["measured", "ideal", *(["Amdahl's law"] if line.amdahl else [])]

    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(3.4 + plotting.legend_height(labels, small=True), small=True)
        cores = [point.cores for point in line.points]
        drawn = on.plot(cores, [point.middle for point in line.points], color=theme.line(0), marker="D")
        ideal = [first.middle, first.middle * last.cores / first.cores]
        drawn += on.plot([first.cores, last.cores], ideal, "--", color=theme.ink, linewidth=1)
        if line.amdahl is not None:
            ratio = last.number / first.number
            numbers = [first.number * ratio ** (step / _POINTS) for step in range(_POINTS + 1)]
            of_cores = [count * first.cores / first.number for count in numbers]
            drawn += on.plot(of_cores, [*map(line.amdahl.fps, numbers)], ":", color=theme.line(1))
        for point in line.points:
            on.plot([point.cores] * len(point.fps), point.fps, "o", color=theme.line(0), alpha=0.5)
        plotting.heading(on, line.label, small=True)
        on.set_xscale("log", base=2)
        on.set_xticks(cores, [str(count) for count in cores])
        plotting.logarithmic(on, [*ideal, *(fps for point in line.points for fps in point.fps)])
        on.set_xlabel("cores")
        on.set_ylabel("training frames/s")
        plotting.legend(figure, drawn, labels, small=True)
        return figure

    return draw

"""Speed by group and hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count as numbers_from
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.grouping import group_labels
from orchestrator.analysis.groups.speeds import SpeedSummary
from orchestrator.analysis.report.blocks import Gallery, Section, Text
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.report.group_cells import places, provisional_note, throughputs


def section(data: ReportData) -> Section:
    """Return the section."""
    figures = pictures(data)
    if not figures:
        return Section("speed", "Speed", (Text("No finished run has a measured speed."),))
    table = speed_table(data.speeds)
    peaks = any(speed.peak is not None for speed in data.speeds)
    notes = Text(f"{_SPEEDS} {PEAK}" if peaks else _SPEEDS, note=True)
    drawn = (Gallery(tuple(figures)), table, notes)
    return Section("speed", "Speed", (*drawn, *provisional_note(data)))


_SPEEDS = (
    "Training throughput: frames per second of collecting and learning; it compares devices. End-to-end "
    "throughput: frames per second of wall time, with evaluations, logs and checkpoints; it predicts time "
    "and money. Both are sums over each run's steady window: without the first iteration of every "
    "attempt, and from one evaluation to another, so that they do not depend on where a run ended. A "
    "program that reports no timers has no training throughput; then min and max are of the other."
)

# The meaning of a column of the speeds.
PEAK = (
    "Of peak: training frames/s × floating-point operations of a frame, over what the run's cores could do "
    "in a product of two matrices, measured on one of them as the run began."
)


def speed_table(measured: Sequence[SpeedSummary]) -> Table:
    """Return the table of speeds by group and hardware."""
    measured = [speed for speed in measured if speed.end_to_end_fps]
    rows = []
    for speed, name in zip(measured, places([speed.group for speed in measured]), strict=True):
        whole, values = speed.seconds_per_iteration, speed.training_fps or speed.end_to_end_fps
        shares = zip(_PARTS, speed.split(), strict=True)
        told = {
            "hardware": Cell(speed.hardware),
            "#n": cells.number(len(speed.end_to_end_fps)),
            **throughputs(speed.training_fps, speed.end_to_end_fps, speed.provisional),
            "#min": cells.number(min(values) if len(values) > 1 else None),
            "#max": cells.number(max(values) if len(values) > 1 else None),
            "#s/iteration": cells.number(whole),
            **{
                f"#{part}": cells.number(own / whole if whole else None, "{:.0%}".format)
                for part, own in shares
            },
            "#of peak": cells.share(speed.peak),
        }
        rows.append(name | told)
    return cells.table("speeds", rows, if_any=("#of peak",))


def pictures(data: ReportData) -> tuple[Picture, ...]:
    """Draw the first groups."""
    return plotting.first(speed_pictures(data.speeds[:MOST_DRAWN]))


def speed_pictures(speeds: Sequence[SpeedSummary]) -> Iterator[Picture]:
    """Draw both throughputs, and the parts of an iteration's time, by group and hardware."""
    shown = [speed for speed in speeds if speed.end_to_end_fps]
    labels = [plotting.short(label) for label in group_labels([speed.group.point for speed in shown])]
    kinds = {name: number for number, name in enumerate(dict.fromkeys(speed.hardware for speed in shown))}
    numbers = numbers_from(1)
    for part, title in plotting.parts(list(zip(shown, labels, strict=True)), plotting.BARS, "Speed"):
        caption = (
            "Left: training throughput of each run (filled; line: their median) and end-to-end throughput "
            "(hollow; thin line: their median). Right: seconds per iteration and what they went to (other: "
            "evaluation, logging, checkpoints)."
        )
        if len(kinds) == 1:
            caption += f" All on {next(iter(kinds))}."
        medians = [f"{name} on {speed.hardware}: {_medians(speed)}" for speed, name in part]
        yield plotting.picture(
            f"speed-{next(numbers)}",
            title,
            _speeds(part, title, kinds),
            caption=caption,
            alt=f"{title}, median throughputs in frames per second. {plotting.listed(medians)}.",
        )


def _speeds(part: Sequence[tuple[SpeedSummary, str]], title: str, kinds: Mapping[str, int]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, left = plotting.axes(1.6 + 0.42 * len(part), columns=2)
        right = figure.axes[1]
        for row, (speed, _) in enumerate(part):
            shape = plotting.marker(kinds[speed.hardware], 0)
            _throughputs(left, row, speed, theme.line(speed.group.number), shape)
            _iteration(right, row, speed)
        plotting.heading(left, title)
        plotting.rows(left, [label for _, label in part])
        plotting.from_zero_or_log(
            left, [value for speed, _ in part for value in (*speed.training_fps, *speed.end_to_end_fps)]
        )
        left.set_xlabel("frames/s: filled training, hollow end-to-end")
        right.set_xlabel("seconds per iteration")
        plotting.rows(right, [""] * len(part))
        _name_parts(right)
        if len(kinds) > 1:
            names = dict.fromkeys(speed.hardware for speed, _ in part)
            shapes = [
                (name, {"marker": plotting.marker(kinds[name], 0), "color": theme.ink, "linestyle": ""})
                for name in names
            ]
            plotting.style_legend(figure, shapes, columns=1)
        return figure

    return draw


def _throughputs(on: Axes, row: int, speed: SpeedSummary, colour: str, shape: str) -> None:
    """Draw each run's two figures, the end-to-end one hollow below the other."""
    training, end_to_end = speed.training_fps, speed.end_to_end_fps
    on.plot(training, [row - 0.12] * len(training), shape, color=colour, markersize=5, alpha=0.7)
    on.plot(end_to_end, [row + 0.16] * len(end_to_end), shape, color=colour, markersize=5, fillstyle="none")
    if training:
        on.vlines(median(training), row - 0.35, row + 0.05, color=colour, linewidth=2)
    on.vlines(median(end_to_end), row - 0.05, row + 0.35, color=colour, linewidth=0.9)


def _medians(speed: SpeedSummary) -> str:
    training = f"training {median(speed.training_fps):,.0f}, " if speed.training_fps else ""
    return f"{training}end-to-end {median(speed.end_to_end_fps):,.0f}"


# Greys, as colours stand for variants; seen on light and dark paper.
_PARTS = {"collection": "#5d6676", "learning": "#949dac", "other": "#c6cbd5"}


def _iteration(on: Axes, row: int, speed: SpeedSummary) -> None:
    start = 0.0
    for seconds, colour in zip(speed.split(), _PARTS.values(), strict=True):
        on.barh(row, seconds, left=start, color=colour, height=0.62)
        start += seconds


def _name_parts(on: Axes) -> None:
    handles = [Patch(color=colour) for colour in _PARTS.values()]
    on.legend(
        handles, _PARTS, loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=3, columnspacing=1, handlelength=1
    )

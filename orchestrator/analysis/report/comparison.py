"""A comparison by a key as blocks of a page, and as files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column, Table
from orchestrator.analysis.compare import Combination, ComparedValue, KeyComparison
from orchestrator.analysis.compare.model import DOLLARS, MEMORY
from orchestrator.analysis.compare.table import as_csv
from orchestrator.analysis.compare.table import columns as comparison_columns
from orchestrator.analysis.compare.table import sections as comparison_rows
from orchestrator.analysis.compare.wording import notes
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.report import write_files
from orchestrator.analysis.report.blocks import Block, Points, Text
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.formatting import number
from orchestrator.planning.throughput.measure import NAMES, SHORT

# Most lines of returns that can be distinguished in one panel: combinations times values.
_LINES = 8

_FIGURES = {
    MEMORY: ("peak memory", "MiB"),
    DOLLARS: ("cost", "US dollars per million frames"),
}

_PICTURE = re.compile(r"compare-[0-9]+(-dark)?\.png")


def comparison_pictures(
    compared: KeyComparison, name: str = "compare", numbers: Iterator[int] | None = None
) -> Iterator[Picture]:
    """Draw four panels for a few combinations of one task at a time, those with something to compare.

    Their files are called by ``name`` and the next of ``numbers``, from 1 on by default.
    """
    numbers = numbers or count(1)
    tasks = gathered((each.task, each) for each in compared.combinations if each.comparable)
    for task, several in tasks.items():
        for part, title in plotting.parts(several, max(1, _LINES // len(compared.values)), task):
            yield plotting.picture(
                f"{name}-{next(numbers)}",
                title,
                _panels(compared, part, title),
                caption=(
                    f"By {compared.short}, against {compared.named(compared.baseline)}. Dots are runs; "
                    "bars 95 % intervals, bands too; none for one seed. Returns are interquartile means over "
                    "seeds; dotted: equal frames and equal time."
                ),
                alt=f"Comparison by {compared.short}, {title}. {_alt_text(part)}.",
            )


def _alt_text(part: Sequence[Combination]) -> str:
    cells = [(combination.label, cell) for combination in part for cell in combination.cells if cell.trained]
    return plotting.listed([f"{label} {cell.value}: {_speeds(cell)}" for label, cell in cells])


def _speeds(cell: ComparedValue) -> str:
    told = {SHORT[name]: cell.middle(name) for name in NAMES}
    return ", ".join(f"{number(fps)} frames/s {name}" for name, fps in told.items() if fps is not None)


def _panels(compared: KeyComparison, part: Sequence[Combination], title: str) -> Draw:
    def draw(theme: Theme) -> Figure:
        bars = 0.34 * len(part) * len(compared.values) + 1.5
        figure = Figure(figsize=(plotting.WIDE_IN, bars + 3.6), dpi=150, layout="constrained")
        figures = [DOLLARS, MEMORY] if compared.priced else [MEMORY]
        grid = figure.add_gridspec(2, 2 * (1 + len(figures)), height_ratios=(bars, 3.1))
        speed, *others = (figure.add_subplot(grid[0, at : at + 2]) for at in range(0, grid.ncols, 2))
        half = grid.ncols // 2
        heading = f"{title}: by {compared.short}".removeprefix(": ")
        figure.suptitle(plotting.wrapped(heading, 80), fontsize=12, weight="bold")
        _speed_ups(speed, compared, part, theme)
        for on, name in zip(others, figures, strict=True):
            _figure(on, name, compared, part, theme)
        _returns(figure.add_subplot(grid[1, :half]), compared, part, theme, over_time=False)
        _returns(figure.add_subplot(grid[1, half:]), compared, part, theme, over_time=True)
        _legend(figure, compared, part, theme)
        return figure

    return draw


def _speed_ups(on: Axes, compared: KeyComparison, part: Sequence[Combination], theme: Theme) -> None:
    ends = [1.0]
    for row, cell, colour in _cells(compared, part, theme):
        if cell.speed is None:
            on.text(0, row, f" {_reason_without_bar(cell)}", va="center", fontsize=8, color=colour)
            continue
        on.barh(row, cell.speed.value, height=_step(compared) * 0.8, color=colour, alpha=0.8)
        if cell.speed.low is not None and cell.speed.high is not None:
            on.hlines(row, cell.speed.low, cell.speed.high, color=theme.ink, linewidth=1.5)
        ends += [cell.speed.value, cell.speed.high or 0.0]
    on.axvline(1, color=theme.ink, linewidth=0.8, linestyle=":")
    on.set_xlim(0, 1.1 * max(ends))
    plotting.rows(on, [plotting.short(combination.label) for combination in part])
    on.set_title(f"speed-up against {plotting.wrapped(compared.named(compared.baseline))}", loc="left")
    on.set_xlabel(f"times the {NAMES[compared.figure]}")


def _figure(on: Axes, name: str, compared: KeyComparison, part: Sequence[Combination], theme: Theme) -> None:
    every: list[float] = []
    for row, cell, colour in _cells(compared, part, theme):
        if (middle := cell.middle(name)) is not None:
            values = cell.figures[name]
            on.barh(row, middle, height=_step(compared) * 0.8, color=colour, alpha=0.8)
            on.plot(values, [row] * len(values), "o", color=theme.ink, markersize=3, alpha=0.7)
            every += values
    plotting.rows(on, [""] * len(part))
    if every:
        plotting.from_zero_or_log(on, every)
    title, unit = _FIGURES[name]
    on.set_title(title, loc="left")
    on.set_xlabel(unit)


def _returns(
    on: Axes,
    compared: KeyComparison,
    part: Sequence[Combination],
    theme: Theme,
    *,
    over_time: bool,
) -> None:
    drawn = False
    for side, combination in enumerate(part):
        for cell in combination.cells:
            line = cell.over_time if over_time else cell.over_frames
            if line is not None:
                colour = theme.line(compared.values.index(cell.value))
                plotting.band(
                    on, line, plotting.dash(0, side), plotting.marker(side, 0), colour, held=over_time
                )
                drawn = True
    ends = {combination.seconds if over_time else combination.frames for combination in part} - {None}
    if len(ends) == 1:
        on.axvline(max(filter(None, ends)), color=theme.ink, linewidth=0.8, linestyle=":")
    if not drawn:
        on.text(0.5, 0.5, "no returns", ha="center", va="center", transform=on.transAxes)
        on.set_xticks([])
        on.set_yticks([])
    on.set_title("return over time" if over_time else "return over frames", loc="left")
    on.set_xlabel("wall time (s), evaluations included" if over_time else "training frames")
    on.set_xlim(left=0)
    if drawn:
        on.xaxis.set_major_formatter(plotting.compact)


def _cells(
    compared: KeyComparison, part: Sequence[Combination], theme: Theme
) -> Iterator[tuple[float, ComparedValue, str]]:
    """Yield each cell's height on the axis of rows, and its colour."""
    for row, combination in enumerate(part):
        for cell in combination.cells:
            number_ = compared.values.index(cell.value)
            yield (
                row + _step(compared) * (number_ - (len(compared.values) - 1) / 2),
                cell,
                theme.line(number_),
            )


def _step(compared: KeyComparison) -> float:
    return 0.8 / len(compared.values)


def _reason_without_bar(cell: ComparedValue) -> str:
    """Return why there is no bar."""
    if cell.trained:
        return "nothing to compare it with"
    return cell.members.states_text + (", speed unknown" if cell.n else "")


def _legend(figure: Figure, compared: KeyComparison, part: Sequence[Combination], theme: Theme) -> None:
    """Explain colours as values, and dashes as combinations if there are several."""
    styles: list[tuple[str, dict[str, Any]]] = [
        (compared.named(value), {"color": theme.line(at), "linewidth": 5})
        for at, value in enumerate(compared.values)
    ]
    if len(part) > 1:
        styles += [
            (
                plotting.short(combination.label),
                {"color": theme.ink, "linestyle": plotting.dash(0, side), "marker": plotting.marker(side, 0)},
            )
            for side, combination in enumerate(part)
        ]
    plotting.style_legend(figure, styles, columns=2 if len(part) > 1 else 4)


def write_comparison(compared: KeyComparison, out: Path, words: Callable[[str], str] = str) -> list[Path]:
    """Write the table as CSV and the pictures, light and dark, into the folder ``out``; return their paths.

    ``words`` name the metric in the pictures.
    Raises :class:`~orchestrator.core.errors.StorageError` if it cannot be written.
    """
    drawn = [one.reworded(words) for one in plotting.first(comparison_pictures(compared))]
    pictures = (
        (f"{picture.name}{suffix}.png", content)
        for picture in drawn
        for suffix, content in (("", picture.light), ("-dark", picture.dark))
    )
    return write_files(out, _PICTURE, (("comparison.csv", as_csv(compared).encode()), *pictures))


def _table(compared: KeyComparison) -> Table:
    """Return the table of a comparison: a row per combination and value, and per value over all of them."""
    value, *others = (name.replace("\n", " ") for name in comparison_columns(compared, full=True))
    rows = tuple((Cell(label), *row) for label, own in comparison_rows(compared, full=True) for row in own)
    heads = (*cells.columns("combination"), Column(value), *(Column(name, numeric=True) for name in others))
    return Table(f"comparisons by {compared.short}", heads, rows)


def comparison_blocks(compared: KeyComparison) -> Iterator[Block]:
    """Yield the table of a comparison, and its notes."""
    yield _table(compared)
    yield Text(_COMPARED, note=True)
    yield Points(tuple(("", note) for note in notes(compared)))


_COMPARED = (
    "Compared are runs that differ in nothing but this key and their seed. Of frames/s, dollars and memory "
    "the medians over runs; of returns the interquartile means over seeds, with 95 % intervals by bootstrap. "
    "Speed-ups are geometric means over pairs of runs of the same seed, or where there are none over "
    "combinations, with 95 % intervals by Student's t. P(> A): the chance that a run returns more than one "
    "of A, a tie counting half; ½ means that neither does better. It is not given below "
    f"{FEW_SEEDS} seeds of either, nor where returns are not comparable."
)

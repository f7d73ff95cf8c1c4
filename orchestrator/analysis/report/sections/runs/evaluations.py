"""Evaluations on several tasks: heatmaps of training × test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from orchestrator.analysis.evaluations.matrix import Matrix, MatrixRow, latest_matrices, shown
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.statistics.bootstrap import Estimate
from orchestrator.core.formatting import number


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    several = [(sweep_dir.name, latest_matrices(sweep_dir)) for sweep_dir in data.sweep_dirs]
    several = [(name, evaluations) for name, evaluations in several if evaluations]
    numbers = count(1)
    blocks: list[Block] = []
    for name, evaluations in several:
        if len(several) > 1:
            blocks.append(Text(name, title=True))
        blocks.append(Gallery(tuple(plotting.first(matrix_pictures(evaluations, numbers)))))
    return Section("evaluations", "Evaluations on several tasks", tuple(blocks)) if blocks else None


# Most columns of a picture whose values can be read.
_COLUMNS = 8

_ROW_IN = 0.42

_INKS = ("#ffffff", "#14171c")

_CAPTION = (
    "Rows: what policies were trained on; columns: what they were tested on; a frame: the same task. "
    "Each value is the interquartile mean over seeds, with its 95 % interval below. The colour is the "
    "place between the lowest and the highest value of its column."
)

_SCRIPTED = " Below the line: scripted players in as many episodes of the same seed."


def matrix_pictures(matrices: Sequence[Matrix], numbers: Iterator[int] | None = None) -> Iterator[Picture]:
    """Draw each matrix, split where rows or columns are too many; ``numbers`` are for the names."""
    numbers = numbers or count(1)
    for matrix in shown(matrices):
        for columns, title in plotting.parts(list(range(len(matrix.columns))), _COLUMNS, matrix.metric):
            for rows, name in plotting.parts(list(matrix.rows), plotting.BARS, title):
                caption = _CAPTION + (_SCRIPTED if any(row.scripted for row in rows) else "")
                heatmap = plotting.picture(
                    f"matrix-{next(numbers)}",
                    name,
                    _heatmap(name, matrix, columns, rows),
                    caption=f"{caption} {matrix.setting.capitalize()}.",
                    alt=f"Heatmap of {name}. {plotting.listed(list(_best(matrix, columns, rows)))}.",
                )
                yield replace(heatmap, themed=False)


def _best(matrix: Matrix, columns: Sequence[int], rows: Sequence[MatrixRow]) -> Iterator[str]:
    """Yield the best row of each column in words."""
    for column in columns:
        known = [(cell.value, row.label) for row in rows if (cell := row.cells[column]) is not None]
        if known:
            value, label = max(known)
            yield f"{matrix.columns[column]}: highest {number(value)}, {label}"


def _heatmap(title: str, matrix: Matrix, columns: Sequence[int], rows: Sequence[MatrixRow]) -> Draw:
    names = [
        plotting.wrapped(plotting.short(matrix.columns[column]).replace("_", "_ "), 14) for column in columns
    ]
    names = [name.replace("_ ", "_") for name in names]

    def draw(theme: Theme) -> Figure:
        header = 0.17 * max(name.count("\n") + 1 for name in names)
        figure, on = plotting.axes(0.75 + header + _ROW_IN * len(rows))
        for x, column in enumerate(columns):
            shades = _shades([row.cells[column] for row in rows])
            for y, (row, shade) in enumerate(zip(rows, shades, strict=True)):
                _cell(on, (x, y), row.cells[column], _mixed(theme.paper, theme.lines[0], shade), theme)
                if column in row.trained:
                    _frame(on, (x, y), theme)
        scripted = sum(row.scripted for row in rows)
        if 0 < scripted < len(rows):
            on.axhline(len(rows) - scripted - 0.5, color=theme.ink, linewidth=1.2)
        plotting.heading(on, title)
        on.set_xlim(-0.5, len(columns) - 0.5)
        on.set_ylim(len(rows) - 0.5, -0.5)
        on.set_xticks(range(len(columns)), names, fontsize=8)
        on.set_yticks(
            range(len(rows)), [plotting.wrapped(plotting.short(row.label), 30) for row in rows], fontsize=9
        )
        on.xaxis.tick_top()
        on.tick_params(length=0)
        on.grid(visible=False)
        on.spines[:].set_visible(False)
        return figure

    return draw


def _shades(cells: Sequence[Estimate | None]) -> list[float]:
    """Place each value between the lowest (0) and the highest (1); the middle where all are alike."""
    known = [cell.value for cell in cells if cell is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return [0.5 if cell is None or not span else (cell.value - low) / span for cell in cells]


def _cell(
    on: Axes, at: tuple[int, int], cell: Estimate | None, colour: tuple[float, ...], theme: Theme
) -> None:
    x, y = at
    if cell is None:
        on.text(x, y, "–", ha="center", va="center", color=theme.ink)
        return
    on.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=theme.paper))
    ink = max(_INKS, key=lambda candidate: _contrast(candidate, colour))
    sure = cell.low is None or cell.high is None
    on.text(x, y if sure else y - 0.16, number(cell.value), ha="center", va="center", color=ink, fontsize=9)
    if cell.low is not None and cell.high is not None:
        ends = f"{number(cell.low)} … {number(cell.high)}"
        on.text(x, y + 0.24, ends, ha="center", va="center", color=ink, fontsize=6.5)


def _frame(on: Axes, at: tuple[int, int], theme: Theme) -> None:
    x, y = at
    inside = (x - 0.47, y - 0.46)
    on.add_patch(Rectangle(inside, 0.94, 0.92, fill=False, edgecolor=theme.ink, linewidth=2, zorder=3))


def _mixed(paper: str, line: str, shade: float) -> tuple[float, ...]:
    """Return a colour between both: the weakest is still no paper."""
    share = 0.12 + 0.88 * shade
    return tuple((1 - share) * a + share * b for a, b in zip(to_rgb(paper), to_rgb(line), strict=True))


def _contrast(ink: str, ground: tuple[float, ...]) -> float:
    """Return the contrast ratio of two colours, as WCAG defines it."""
    dark, light = sorted((_luminance(to_rgb(ink)), _luminance(ground)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return math.fsum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

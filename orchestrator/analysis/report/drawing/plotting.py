"""Common parts of the report's pictures: two themes, axes, rows, legends, and PNG files."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text as Words
from matplotlib.ticker import LogLocator, NullLocator
from PIL import Image

from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.curves import Curve, ReturnCurve
from orchestrator.analysis.groups.generalization import Generalization
from orchestrator.analysis.groups.grouping import HUES, Final, SeedGroup
from orchestrator.analysis.groups.improvement import Improvement
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.drawing.vector import Vector, inline, vector
from orchestrator.analysis.statistics.bootstrap import Estimate
from orchestrator.config.returns import kind_of_return
from orchestrator.core import formatting

_T = TypeVar("_T")
_Grouped = TypeVar("_Grouped", Curve, Final, Generalization)

# Most lines that can be distinguished in one picture, and most rows; the next ones get another picture.
LINES = 10
BARS = 24
# Most pictures of a kind; the tables hold everything.
MOST_PICTURES = 12
# Most points of a line that get markers.
_MARKED_POINTS = 15
_LOG_RATIO = 15
_LABEL = 50
_COLOURS = 256
_DPI = 150
# Widths with letters as large as the page's: of a single picture, and of one that stands beside others,
# as on a telephone.
WIDE_IN = 8.6
SMALL_IN = 5.2


@dataclass(frozen=True)
class Theme:
    """Colours of a theme. ``lines`` differ for people with any kind of colour vision, in this order."""

    paper: str
    ink: str
    faint: str
    lines: tuple[str, ...]

    def line(self, number: int) -> str:
        """Return the colour of a numbered line."""
        return self.lines[number % len(self.lines)]


LIGHT = Theme(
    "#ffffff",
    "#1d2129",
    "#d9dce3",
    ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#44a1d8", "#1d2129", "#8a919e"),
)
DARK = Theme(
    "#181b21",
    "#e4e7ee",
    "#3a404c",
    ("#5ab4f0", "#ff8f4d", "#3fd0a4", "#e08bd0", "#e3c04f", "#a9c7ff", "#e4e7ee", "#858d9d"),
)
_Dash = str | tuple[int, tuple[float, ...]]
# Dots are for unfinished runs.
_DASHES: tuple[_Dash, ...] = ("-", "--", "-.", (0, (8, 2, 1, 2, 1, 2)), (0, (3, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# The page's names of the colours that its theme changes.
_PAGE_COLOURS = {
    **{colour: f"var(--c{number})" for number, colour in enumerate(LIGHT.lines)},
    LIGHT.paper: "var(--paper)",
    LIGHT.ink: "var(--ink)",
    LIGHT.faint: "var(--line)",
}

Draw = Callable[[Theme], "Figure"]


@dataclass(frozen=True)
class Picture:
    """One figure: ``name`` is its file's stem; each form of it is drawn when first needed.

    ``caption`` explains how to read it, ``alt`` describes it for readers who do not see it. ``small``: made
    to stand beside others of its kind. ``themed``: a page's theme may change its colours.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Draw
    small: bool = False
    themed: bool = True

    @cached_property
    def light(self) -> bytes:
        """The picture as PNG, on white."""
        return _png(self.draw, LIGHT)

    @cached_property
    def dark(self) -> bytes:
        """The picture as PNG, on black."""
        return _png(self.draw, DARK)

    @cached_property
    def vector(self) -> Vector:
        """The picture as SVG and as PDF."""
        return vector(lambda: self.draw(LIGHT), style(LIGHT))

    @cached_property
    def inline(self) -> Markup:
        """The picture as a part of a page, in the colours of the page's theme."""
        return inline(self.vector.svg, self.name, self.alt, _PAGE_COLOURS if self.themed else {})

    def figure(self) -> Figure:
        """Draw the picture as a figure of matplotlib, on white."""
        with matplotlib.rc_context(style(LIGHT)):
            return self.draw(LIGHT)

    def reworded(self, words: Callable[[str], str]) -> Picture:
        """Rewrite the title, the caption and every text in the picture."""

        def draw(theme: Theme) -> Figure:
            figure = self.draw(theme)
            for text in figure.findobj(Words):
                text.set_text(words(text.get_text()))
            return figure

        title, caption, alt = map(words, (self.title, self.caption, self.alt))
        return replace(self, title=title, caption=caption, alt=alt, draw=draw)


def picture(name: str, title: str, draw: Draw, *, caption: str, alt: str, small: bool = False) -> Picture:
    """Return a picture, to be drawn in either theme."""
    return Picture(name, title, caption, _clean(alt), draw, small)


def dash(number: int, side: int) -> _Dash:
    """Return a line's dash: variants of one colour differ in it, and so does each sweep."""
    return _DASHES[(number // HUES + side) % len(_DASHES)]


def marker(number: int, side: int) -> str:
    """Return the marker of a variant's points in a sweep."""
    return _MARKERS[(number // HUES + number % HUES + 3 * side) % len(_MARKERS)]


# Words


def group_names(groups: Sequence[SeedGroup]) -> list[str]:
    """Return short names for the groups of one task."""
    return [short(name) for name in names([group.point for group in groups])]


def short(label: str) -> str:
    """Shorten a label to about two lines; keep both ends, where labels differ."""
    return label if len(label) <= _LABEL else f"{label[: _LABEL // 2]}…{label[-_LABEL // 2 + 1 :]}"


def parts(items: list[_T], size: int, title: str) -> Iterable[tuple[list[_T], str]]:
    """Split into pieces of even length, at most ``size`` each, with their titles."""
    pieces = math.ceil(len(items) / size)
    for number in range(pieces):
        part = items[number * len(items) // pieces : (number + 1) * len(items) // pieces]
        yield part, f"{title} ({number + 1} of {pieces})".strip() if pieces > 1 else title


def bundles(
    named: Sequence[tuple[_T, str]], kin: Callable[[_T], tuple[int, int]], size: int, title: str
) -> Iterable[tuple[list[tuple[_T, str]], str]]:
    """Split as :func:`parts`, with a variant's sweeps side by side and never in different pieces.

    Variants keep their order, so the first ones share a piece. ``kin``: the number of an item's variant and
    of its sweep.
    """
    by_variant = gathered((kin(item[0])[0], item) for item in named)
    several = [sorted(own, key=lambda pair: kin(pair[0])[1]) for own in by_variant.values()]
    most = max(map(len, several))
    for piece, name in parts(several, max(1, size // most), title):
        yield [item for bundle in piece for item in bundle], name


def wrapped(text: str, width: int = 30) -> str:
    """Break text into lines of a width."""
    return "\n".join(textwrap.wrap(_clean(text), width))


def return_name(metric: str) -> str:
    """Name the returns of a metric for an axis."""
    kind = kind_of_return(metric)
    is_return = kind != metric and ("return" in metric or "reward" in metric)
    return f"episode return ({kind})" if is_return else wrapped(metric, 60)


def compact(value: float, _: object = None) -> str:
    """Format 12000 as "12k"."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}"


def listed(words: Sequence[str], most: int = 12) -> str:
    """Join the first words for an alternative text, and count the rest."""
    return formatting.listed(words, most, "; ")


def about(title: str) -> str:
    """Return the task for an alternative text, empty if tasks have no names."""
    return f" on {title}" if title else ""


def _clean(text: str) -> str:
    """Replace control characters and line breaks by spaces, as fonts cannot show them."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


# Items by picture


def panels(
    items: Sequence[_Grouped], panel_of: Callable[[_Grouped], tuple[str, ...]], most: int
) -> Iterator[tuple[list[tuple[_Grouped, str]], str, list[_Grouped], bool]]:
    """Yield the named items of each picture, its title, its panel, and whether there are several panels.

    ``panel_of``: an item's panel, its task first.
    """
    panels = gathered((panel_of(item), item) for item in items)
    for (task, *_), panel in panels.items():
        named = list(zip(panel, group_names([item.group for item in panel]), strict=True))
        for part, title in bundles(named, lambda item: (item.group.number, item.group.side), most, task):
            yield part, title, panel, len(panels) > 1


def first(pictures: Iterable[Picture]) -> tuple[Picture, ...]:
    """Return as many pictures as a page has of a kind."""
    return tuple(islice(pictures, MOST_PICTURES))


# Parts of a drawing


def axes(height: float, columns: int = 1, *, small: bool = False) -> tuple[Figure, Axes]:
    """Return a figure of ``height`` inches and its first axes."""
    size = (SMALL_IN if small else WIDE_IN, height)
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0][0]


def heading(on: Axes, title: str, *, small: bool = False) -> None:
    """Set the title of an axes."""
    on.set_title(wrapped(title, 44 if small else 70), loc="left")


def band(on: Axes, curve: ReturnCurve, line: Any, mark: str, colour: str, *, held: bool = False) -> Line2D:
    """Draw returns with their interval, and return their line.

    ``held``: each value until the next, as at times of one's own.
    """
    value, low, high = curve.band
    few = len(curve.x) <= _MARKED_POINTS
    steps = "steps-post" if held else "default"
    style: dict[str, Any] = {"linestyle": line, "marker": mark if few else None, "drawstyle": steps}
    (drawn,) = on.plot(curve.x, value, color=colour, **style)
    if low is None or high is None:
        return drawn
    if len(curve.x) == 1:  # a band of one point has no area
        on.vlines(curve.x, low, high, color=colour, linewidth=1.5)
    else:
        step: Any = "post" if held else None
        on.fill_between(curve.x, low, high, color=colour, alpha=0.17, linewidth=0, step=step)
    return drawn


def diamond(
    on: Axes, row: float, of: Estimate | Improvement, colour: str, theme: Theme, size: float = 7
) -> None:
    """Draw a value as a diamond, and its interval as a bar, in a row of a horizontal chart."""
    if of.low is not None and of.high is not None:
        on.hlines(row, of.low, of.high, color=colour, linewidth=5, alpha=0.37)
    on.plot(of.value, row, "D", color=colour, markersize=size, markeredgecolor=theme.paper)


def shared_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis for these values, with a margin."""
    margin = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - margin, max(values) + margin


def rows(on: Axes, labels: Sequence[str], width: int = 30) -> None:
    """Name the rows of a horizontal chart, the first on top."""
    on.set_yticks(range(len(labels)), [wrapped(label, width) for label in labels])
    on.set_ylim(len(labels) - 0.5, -0.5)
    on.grid(visible=False, axis="y")
    on.tick_params(axis="y", length=0)


def from_zero_or_log(on: Axes, values: Sequence[float]) -> None:
    """Scale the x axis from zero, or logarithmically if the values span a wide range."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > _LOG_RATIO:
        on.set_xscale("log")
        _round_ticks(on.xaxis, positive)
    else:
        on.set_xlim(0, 1.08 * max(values))
        on.locator_params(axis="x", nbins=6)
    on.xaxis.set_major_formatter(compact)


def logarithmic(on: Axes, values: Sequence[float]) -> None:
    """Scale the y axis logarithmically."""
    on.set_yscale("log")
    on.set_ylim(min(values) / 1.25, max(values) * 1.25)
    _round_ticks(on.yaxis, values)
    on.yaxis.set_major_formatter(compact)


def _round_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Set ticks at round numbers: over less than a decade a logarithmic axis would have one, or none."""
    steps = (1.0, 2.0, 5.0) if max(values) / min(values) < 100 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_minor_locator(NullLocator())


def legend_height(labels: Sequence[str], *, small: bool) -> float:
    """Return the inches that :func:`legend` takes below a small picture; beside a wide one it takes none."""
    if not small:
        return 0.0
    columns = _legend_columns(labels)
    lines = [len(wrapped(label, _legend_width(columns)).splitlines()) for label in labels]
    rows_of = math.ceil(len(lines) / columns)
    return 0.19 * sum(max(lines[row::rows_of]) for row in range(rows_of)) + 0.1


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], *, small: bool) -> None:
    """Put the legend right of a wide picture and below a small one.

    Labels are passed explicitly: matplotlib would drop one that begins with "_".
    """
    if small:
        columns = _legend_columns(labels)
        texts = [wrapped(label, _legend_width(columns)) for label in labels]
        figure.legend(handles, texts, loc="outside lower left", ncols=columns, columnspacing=1.2)
    else:
        figure.legend(handles, [wrapped(label) for label in labels], loc="outside right upper")


def style_legend(
    figure: Figure,
    styles: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    columns: int = 4,
    width: int = 60,
    place: str = "outside lower left",
) -> None:
    """Put a legend outside a picture of several axes: each label with its line's style."""
    handles = [Line2D([], [], **style) for _, style in styles]
    labels, columns = [wrapped(label, width) for label, _ in styles], min(columns, len(styles))
    figure.legend(handles, labels, loc=place, ncols=columns, columnspacing=1.4)


def _legend_columns(labels: Sequence[str]) -> int:
    return 2 if all(len(label) <= _legend_width(2) for label in labels) else 1


def _legend_width(columns: int) -> int:
    return 60 // columns - 2


# Files


def _png(draw: Draw, theme: Theme) -> bytes:
    """Draw as PNG. A palette makes the file a third as large, without a visible difference."""
    with matplotlib.rc_context({**style(theme), "font.family": "DejaVu Sans"}), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph")
        canvas = FigureCanvasAgg(draw(theme))
        canvas.draw()  # savefig would draw everything twice
    pixels = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
    few = pixels.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, format="png", dpi=(_DPI, _DPI))
    return buffer.getvalue()


def style(theme: Theme) -> dict[str, Any]:
    """Return matplotlib's settings for a theme."""
    return {
        "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "text.color": theme.ink,
        "text.parse_math": False,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titleweight": "bold",
        "axes.titlesize": 11,
        "axes.titlepad": 10,
        "figure.constrained_layout.w_pad": 0.1,
        "figure.constrained_layout.h_pad": 0.08,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "font.size": 10,
    }

"""The report's pictures. Each is drawn twice, for light and for dark pages."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.report.targets import Bar, Comparison
from orchestrator.stats import Curve, Estimate, Final, Group, group_labels
from orchestrator.summary import Speed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_T = TypeVar("_T")

# More lines than this in one picture cannot be told apart; the next ones get a picture of their own.
_LINES = 10
_BARS = 24
_MARKED_POINTS = 15
_LOG_RATIO = 15
_LABEL = 50
_WIDTH_IN = 8.6
_DPI = 150


@dataclass(frozen=True)
class Picture:
    """One figure: ``name`` is its file's stem, ``light`` and ``dark`` are PNG files."""

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes


@dataclass(frozen=True)
class _Theme:
    """``lines`` are told apart by people with any kind of colour vision, in this order."""

    paper: str
    ink: str
    faint: str
    lines: tuple[str, ...]
    parts: tuple[str, str, str]

    def line(self, number: int) -> str:
        return self.lines[number % len(self.lines)]


_LIGHT = _Theme(
    "#ffffff",
    "#1d2129",
    "#d9dce3",
    ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#44a1d8"),
    ("#4f9fd0", "#e08a3c", "#b9bec9"),
)
_DARK = _Theme(
    "#181b21",
    "#e4e7ee",
    "#3a404c",
    ("#5ab4f0", "#ff8f4d", "#3fd0a4", "#e08bd0", "#e3c04f", "#a9c7ff"),
    ("#4f9fd0", "#e08a3c", "#646b7a"),
)
_DASHES = ("-", "--", "-.")  # dots are for what is not finished
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def learning_pictures(curves: Sequence[Curve]) -> Iterator[Picture]:
    """One picture per task and metric, split where lines are too many."""
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.group.task, curve.metric), []).append(curve)
    numbers = count(1)
    for (task, metric), panel in panels.items():
        labels = _labels([curve.group for curve in panel])
        for part, title in _parts(list(zip(panel, labels, strict=True)), _LINES, task):
            caption = _learning_caption(part, metric)
            draw = _learning(part, title, metric)
            yield _picture(f"learning-{next(numbers)}", title, caption, draw)


def final_pictures(finals: Sequence[Final]) -> Iterator[Picture]:
    """One picture per task of every group that has a final return."""
    panels: dict[str, list[Final]] = {}
    for final in finals:
        if final.estimate is not None:
            panels.setdefault(final.group.task, []).append(final)
    numbers = count(1)
    for task, panel in panels.items():
        labels = _labels([final.group for final in panel])
        for part, title in _parts(list(zip(panel, labels, strict=True)), _BARS, task):
            caption = (
                "Final return of each run (dots), their interquartile mean (diamond) and its 95 % interval "
                "(bar; none for one seed). Raw returns, not normalised."
            )
            yield _picture(f"final-{next(numbers)}", title, caption, _finals(part, title))


def speed_pictures(speeds: Sequence[Speed]) -> Iterator[Picture]:
    """Frames/s and where an iteration's time goes, by group and hardware."""
    shown = [speed for speed in speeds if speed.fps]
    labels = [_short(label) for label in group_labels([speed.group.point for speed in shown])]
    kinds = {name: number for number, name in enumerate(dict.fromkeys(speed.hardware for speed in shown))}
    numbers = count(1)
    for part, title in _parts(list(zip(shown, labels, strict=True)), _BARS, "Speed"):
        caption = (
            "Left: steady-state frames/s of each run (dots) and their median (line). "
            "Right: median seconds per iteration and what they went to (other: evaluation, logging, "
            "checkpoints)."
        )
        if len(kinds) == 1:
            caption += f" All on {next(iter(kinds))}."
        yield _picture(f"speed-{next(numbers)}", title, caption, _speeds(part, title, kinds))


def target_pictures(found: Sequence[Comparison]) -> Iterator[Picture]:
    """What each configuration reached on each target: frames/s, and where there are prices, dollars."""
    numbers = count(1)
    for comparison in found:
        by_label: dict[str, list[Bar]] = {}
        for bar in comparison.bars:
            by_label.setdefault(bar.label, []).append(bar)
        for part, title in _parts(
            list(by_label.items()), _BARS // len(comparison.targets) or 1, comparison.sweep
        ):
            caption = (
                "Steady-state frames/s of each run (dots), their interquartile mean (line) and its 95 % "
                "interval (bar; none for one run)."
            )
            if any(bar.dollars for _, bars in part for bar in bars):
                caption += " Right: what a million frames cost at that speed, in a job that is full."
            draw = _targets(part, title, comparison.targets)
            yield _picture(f"targets-{next(numbers)}", title, caption, draw)


# Drawing

_Draw = Callable[[_Theme], "Figure"]


def _learning(part: Sequence[tuple[Curve, str]], title: str, metric: str) -> _Draw:
    def draw(theme: _Theme) -> Figure:
        figure, axes = _axes(4.3)
        for curve, label in part:
            _curve(axes, curve, f"{label} (n={curve.n})", theme)
        _heading(axes, title)
        axes.set_xlabel("training frames")
        axes.set_ylabel(_return_name(metric))
        axes.xaxis.set_major_formatter(_compact)
        axes.set_xlim(left=0)
        # Handles by hand: a label that begins with "_" would be left out otherwise.
        figure.legend(
            axes.get_lines(), [str(line.get_gid()) for line in axes.get_lines()], loc="outside right upper"
        )
        return figure

    return draw


def _curve(axes: Axes, curve: Curve, label: str, theme: _Theme) -> None:
    number = curve.group.number
    colour = theme.line(number)
    axes.plot(
        curve.frames,
        curve.value,
        color=colour,
        linestyle=":" if curve.unfinished else _DASHES[number // len(theme.lines) % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)] if len(curve.frames) <= _MARKED_POINTS else None,
        gid=_wrapped(label),
    )
    if curve.low is None or curve.high is None:
        return
    if len(curve.frames) == 1:  # a band of one point has no area
        axes.vlines(curve.frames, curve.low, curve.high, color=colour, linewidth=1.5)
    else:
        axes.fill_between(curve.frames, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)


def _finals(part: Sequence[tuple[Final, str]], title: str) -> _Draw:
    def draw(theme: _Theme) -> Figure:
        figure, axes = _axes(1.2 + 0.42 * len(part))
        for row, (final, _) in enumerate(part):
            assert final.estimate is not None
            colour = theme.line(final.group.number)
            if final.estimate.low is not None and final.estimate.high is not None:
                low, high = final.estimate.low, final.estimate.high
                axes.hlines(row, low, high, color=colour, linewidth=5, alpha=0.35)
            axes.plot(final.values, [row] * len(final.values), "o", color=colour, markersize=4, alpha=0.7)
            axes.plot(final.estimate.value, row, "D", color=colour, markersize=7, markeredgecolor=theme.paper)
        _heading(axes, title)
        _rows(axes, [f"{label} (n={len(final.values)})" for final, label in part])
        axes.set_xlabel("final return")
        return figure

    return draw


def _speeds(part: Sequence[tuple[Speed, str]], title: str, kinds: Mapping[str, int]) -> _Draw:
    def draw(theme: _Theme) -> Figure:
        figure, left = _axes(1.6 + 0.42 * len(part), columns=2)
        right = figure.axes[1]
        for row, (speed, _) in enumerate(part):
            colour = _hardware_colour(kinds[speed.hardware], theme)
            left.plot(speed.fps, [row] * len(speed.fps), "o", color=colour, markersize=5, alpha=0.7)
            left.vlines(median(speed.fps), row - 0.3, row + 0.3, color=colour, linewidth=2)
            _iteration(right, row, speed, theme)
        _heading(left, title)
        _rows(left, [label for _, label in part])
        _from_zero_or_log(left, [value for speed, _ in part for value in speed.fps])
        left.set_xlabel("frames/s, steady state")
        right.set_xlabel("seconds per iteration")
        _rows(right, [""] * len(part))
        _name_parts(right, theme)
        if len(kinds) > 1:
            figure.legend(*_hardware_legend(part, kinds, theme), loc="outside lower left")
        return figure

    return draw


def _targets(part: Sequence[tuple[str, list[Bar]]], title: str, names: Sequence[str]) -> _Draw:
    priced = any(bar.dollars for _, bars in part for bar in bars)
    step = 0.8 / len(names)

    def draw(theme: _Theme) -> Figure:
        from matplotlib.lines import Line2D

        figure, left = _axes(1.5 + 0.3 * len(part) * len(names), columns=2 if priced else 1)
        panels = figure.axes[: 2 if priced else 1]
        for row, (_, bars) in enumerate(part):
            for bar in bars:
                at = row + step * (names.index(bar.target) - (len(names) - 1) / 2)
                colour = theme.line(names.index(bar.target))
                _estimate(left, at, [run.fps for run in bar.runs], bar.fps, colour)
                if priced and bar.dollars is not None:
                    cost = [run.dollars for run in bar.runs if run.dollars is not None]
                    _estimate(panels[1], at, cost, bar.dollars, colour)
        _heading(left, title)
        runs = [run for _, bars in part for bar in bars for run in bar.runs]
        _rows(left, [_short(label) for label, _ in part])
        _from_zero_or_log(left, [run.fps for run in runs])
        left.set_xlabel("frames/s, steady state")
        if priced:
            _rows(panels[1], [""] * len(part))
            _from_zero_or_log(panels[1], [run.dollars for run in runs if run.dollars is not None])
            panels[1].set_xlabel("US dollars per million frames")
        handles = [Line2D([], [], marker="o", linestyle="", color=theme.line(at)) for at in range(len(names))]
        figure.legend(handles, [_clean(name) for name in names], loc="outside lower left", ncols=len(names))
        return figure

    return draw


def _estimate(axes: Axes, row: float, values: Sequence[float], estimate: Estimate, colour: str) -> None:
    """The middle of the values and, if there is one, its interval; each value below, so as not to hide it."""
    if estimate.low is not None and estimate.high is not None:
        axes.hlines(row, estimate.low, estimate.high, color=colour, linewidth=7, alpha=0.4)
    axes.vlines(estimate.value, row - 0.12, row + 0.12, color=colour, linewidth=2)
    axes.plot(values, [row + 0.17] * len(values), "o", color=colour, markersize=3, alpha=0.6)


_PARTS = ("collection", "training", "other")


def _iteration(axes: Axes, row: int, speed: Speed, theme: _Theme) -> None:
    start = 0.0
    for seconds, colour in zip(speed.split(), theme.parts, strict=True):
        axes.barh(row, seconds, left=start, color=colour, height=0.62)
        start += seconds


def _name_parts(axes: Axes, theme: _Theme) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for colour in theme.parts]
    axes.legend(
        handles, _PARTS, loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=3, columnspacing=1, handlelength=1
    )


def _hardware_legend(
    part: Sequence[tuple[Speed, str]], kinds: Mapping[str, int], theme: _Theme
) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(speed.hardware for speed, _ in part))
    colours = [_hardware_colour(kinds[name], theme) for name in names]
    handles = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in colours]
    return handles, [_clean(name) for name in names]


def _hardware_colour(kind: int, theme: _Theme) -> str:
    return theme.line(kind + 2)  # the first two are the colours of the parts


# Common parts


def _axes(height: float, columns: int = 1) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height), dpi=_DPI, layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0][0]


def _heading(axes: Axes, title: str) -> None:
    axes.set_title(_wrapped(title, 70), loc="left")


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a horizontal chart, the first on top."""
    axes.set_yticks(range(len(labels)), [_wrapped(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _from_zero_or_log(axes: Axes, values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > _LOG_RATIO:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.08 * max(values))
        axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(_compact)


def _compact(value: float, _: object = None) -> str:
    """12000 as "12k"."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}"


def _return_name(metric: str) -> str:
    if metric.startswith("eval/"):
        return "episode return (evaluation)"
    if metric.startswith("collection/"):
        return "episode return (collection)"
    return _clean(metric)


def _learning_caption(part: Sequence[tuple[Curve, str]], metric: str) -> str:
    lines = [
        f"{metric}: interquartile mean over seeds and, from two seeds on, its 95 % interval at each point."
    ]
    lines += [f"{label}: {curve.note}." for curve, label in part if curve.note]
    return " ".join(lines)


def _labels(found: Sequence[Group]) -> list[str]:
    return [_short(label) for label in group_labels([group.point for group in found], without=("task",))]


def _short(label: str) -> str:
    """At most two lines of it: names differ at their beginning or at their end."""
    return label if len(label) <= _LABEL else f"{label[: _LABEL // 2]}…{label[-_LABEL // 2 + 1 :]}"


def _parts(items: list[_T], size: int, title: str) -> Iterable[tuple[list[_T], str]]:
    """Pieces of even length, at most ``size`` each, with their titles."""
    pieces = math.ceil(len(items) / size)
    for number in range(pieces):
        part = items[number * len(items) // pieces : (number + 1) * len(items) // pieces]
        yield part, f"{title} ({number + 1} of {pieces})".strip() if pieces > 1 else title


def _clean(text: str) -> str:
    """Text that a font can show: control characters and line breaks become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _wrapped(text: str, width: int = 30) -> str:
    return "\n".join(textwrap.wrap(_clean(text), width))


def _picture(name: str, title: str, caption: str, draw: _Draw) -> Picture:
    return Picture(name, title, caption, _png(draw, _LIGHT), _png(draw, _DARK))


def _png(draw: _Draw, theme: _Theme) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(_style(theme)), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph")
        draw(theme).savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _style(theme: _Theme) -> dict[str, Any]:
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
        "font.family": "DejaVu Sans",
    }

"""Pictures of training: returns over frames, final returns, speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count as numbers_from
from statistics import median
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.analysis.report.plotting import (
    BARS,
    LINES,
    Draw,
    Picture,
    Theme,
    about,
    axes,
    band,
    bundles,
    compact,
    dash,
    diamond,
    from_zero_or_log,
    group_names,
    heading,
    legend,
    legend_height,
    listed,
    marker,
    parts,
    picture,
    rows,
    short,
    style_legend,
    wrapped,
)
from orchestrator.analysis.significance import INTERVAL_SEEDS, Floats
from orchestrator.analysis.stats import Curve, Final, group_labels
from orchestrator.analysis.summary import SpeedSummary
from orchestrator.config.returns import kind_of_return
from orchestrator.core.formatting import count


def learning_pictures(curves: Sequence[Curve], kind: str = "learning") -> Iterator[Picture]:
    """Draw one picture per task and metric, split where lines are too many; small where there are several.

    ``kind``: how their names begin.
    """
    panels = _panels(curves, lambda curve: (curve.group.task, curve.metric), LINES)
    for number, (part, title, panel, small) in enumerate(panels, 1):
        yield picture(
            f"{kind}-{number}",
            title,
            _learning(part, title, _limits(panel), small=small),
            caption=_learning_caption(part),
            alt=_learning_alt(part, title, "Learning curves" if kind == "learning" else "Losses"),
            small=small,
        )


def final_pictures(finals: Sequence[Final]) -> Iterator[Picture]:
    """Draw one picture per task of every group that has a final return; small where there are several."""
    returning = [final for final in finals if final.estimate is not None]
    panels = _panels(returning, lambda final: (final.group.task,), BARS)
    for number, (part, title, panel, small) in enumerate(panels, 1):
        means = [f"{name}: {final.estimate}, {count(len(final.values), 'seed')}" for final, name in part]
        yield picture(
            f"final-{number}",
            title,
            _finals(part, title, _range(panel), small=small),
            caption=(
                "Final return of each run (dots), their interquartile mean (diamond) and its 95 % "
                "interval (bar; none below four seeds). Raw returns, not normalised."
            ),
            alt=f"Final returns{about(title)}. {listed(means)}.",
            small=small,
        )


_Drawn = TypeVar("_Drawn", Curve, Final)


def _panels(
    items: Sequence[_Drawn], panel_of: Callable[[_Drawn], tuple[str, ...]], most: int
) -> Iterator[tuple[list[tuple[_Drawn, str]], str, list[_Drawn], bool]]:
    """Yield the named items of each picture, its title, its panel, and whether there are several panels.

    ``panel_of``: an item's panel, its task first.
    """
    panels: dict[tuple[str, ...], list[_Drawn]] = {}
    for item in items:
        panels.setdefault(panel_of(item), []).append(item)
    for (task, *_), panel in panels.items():
        named = list(zip(panel, group_names([item.group for item in panel]), strict=True))
        for part, title in bundles(named, lambda item: (item.group.number, item.group.side), most, task):
            yield part, title, panel, len(panels) > 1


def speed_pictures(speeds: Sequence[SpeedSummary]) -> Iterator[Picture]:
    """Draw both throughputs, and the parts of an iteration's time, by group and hardware."""
    shown = [speed for speed in speeds if speed.end_to_end_fps]
    labels = [short(label) for label in group_labels([speed.group.point for speed in shown])]
    kinds = {name: number for number, name in enumerate(dict.fromkeys(speed.hardware for speed in shown))}
    numbers = numbers_from(1)
    for part, title in parts(list(zip(shown, labels, strict=True)), BARS, "Speed"):
        caption = (
            "Left: training throughput of each run (filled; line: their median) and end-to-end throughput "
            "(hollow; thin line: their median). Right: seconds per iteration and what they went to (other: "
            "evaluation, logging, checkpoints)."
        )
        if len(kinds) == 1:
            caption += f" All on {next(iter(kinds))}."
        medians = [f"{name} on {speed.hardware}: {_medians(speed)}" for speed, name in part]
        yield picture(
            f"speed-{next(numbers)}",
            title,
            _speeds(part, title, kinds),
            caption=caption,
            alt=f"{title}, median throughputs in frames per second. {listed(medians)}.",
        )


# Learning


def _learning(
    part: Sequence[tuple[Curve, str]], title: str, limits: tuple[float, float] | None, *, small: bool
) -> Draw:
    labels = [f"{label} (n={len(curve.scores)})" for curve, label in part]

    def draw(theme: Theme) -> Figure:
        figure, on = axes((3.4 if small else 4.3) + legend_height(labels, small=small), small=small)
        lines = []
        for curve, _ in part:
            number, side = curve.group.number, curve.group.side
            line = ":" if curve.unfinished else dash(number, side)
            for scores in _seeds(curve):
                on.plot(curve.x, scores, color=theme.line(number), linewidth=0.7, alpha=0.45)
            lines.append(band(on, curve, line, marker(number, side), theme.line(number)))
        heading(on, title, small=small)
        on.set_xlabel("training frames")
        on.set_ylabel(_return_name(part[0][0].metric))
        on.xaxis.set_major_formatter(compact)
        on.set_xlim(left=0)
        if limits is not None:
            on.set_ylim(limits)
        legend(figure, lines, labels, small=small)
        return figure

    return draw


def _seeds(curve: Curve) -> list[Floats]:
    """Return the seeds to draw themselves: those of a curve that has too few for an interval."""
    few = curve.band[1] is None and len(curve.scores) > 1
    return list(curve.scores) if few else []


def _limits(panel: Sequence[Curve]) -> tuple[float, float] | None:
    """Return the range of returns that all pictures of a task share, so that they can be compared."""
    if len(panel) <= LINES:
        return None
    drawn = [
        [float(value) for end in (*curve.band, *_seeds(curve)) if end is not None for value in end]
        for curve in panel
    ]
    low, high = min(map(min, drawn)), max(map(max, drawn))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _return_name(metric: str) -> str:
    kind = kind_of_return(metric)
    return wrapped(metric, 60) if kind == metric else f"episode return ({kind})"


def _learning_caption(part: Sequence[tuple[Curve, str]]) -> str:
    metric = part[0][0].metric
    lines = [
        f"{metric}: interquartile mean over seeds and, from {INTERVAL_SEEDS} seeds on, its 95 % "
        "interval at each point; thin lines are the seeds of a line that has fewer."
    ]
    lines += [f"{label}: {curve.note}." for curve, label in part if curve.note]
    return " ".join(lines)


def _learning_alt(part: Sequence[tuple[Curve, str]], title: str, what: str) -> str:
    ends = [f"{label} ends at {curve.band[0][-1]:.4g}" for curve, label in part]
    metric = part[0][0].metric
    return f"{what}{about(title)}: {_return_name(metric)} over training frames. {listed(ends)}."


# Final returns


def _range(panel: Sequence[Final]) -> tuple[float, float] | None:
    """Return the range of returns that all pictures of a task share, ``None`` for a single picture."""
    if len(panel) <= BARS:
        return None
    every = [value for final in panel for value in final.values]
    margin = 0.05 * (max(every) - min(every)) or 1.0
    return min(every) - margin, max(every) + margin


def _finals(
    part: Sequence[tuple[Final, str]], title: str, limits: tuple[float, float] | None, *, small: bool
) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, on = axes(1.2 + 0.42 * len(part), small=small)
        for row, (final, _) in enumerate(part):
            assert final.estimate is not None
            colour = theme.line(final.group.number)
            on.plot(final.values, [row] * len(final.values), "o", color=colour, markersize=4, alpha=0.7)
            diamond(on, row, final.estimate, colour, theme)
        heading(on, title, small=small)
        rows(on, [f"{label} (n={len(final.values)})" for final, label in part], 22 if small else 30)
        on.set_xlabel("final return")
        if limits is not None:
            on.set_xlim(*limits)
        return figure

    return draw


# Speed


def _speeds(part: Sequence[tuple[SpeedSummary, str]], title: str, kinds: Mapping[str, int]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, left = axes(1.6 + 0.42 * len(part), columns=2)
        right = figure.axes[1]
        for row, (speed, _) in enumerate(part):
            shape = marker(kinds[speed.hardware], 0)
            _throughputs(left, row, speed, theme.line(speed.group.number), shape)
            _iteration(right, row, speed)
        heading(left, title)
        rows(left, [label for _, label in part])
        from_zero_or_log(
            left, [value for speed, _ in part for value in (*speed.training_fps, *speed.end_to_end_fps)]
        )
        left.set_xlabel("frames/s: filled training, hollow end-to-end")
        right.set_xlabel("seconds per iteration")
        rows(right, [""] * len(part))
        _name_parts(right)
        if len(kinds) > 1:
            names = dict.fromkeys(speed.hardware for speed, _ in part)
            shapes = [
                (name, {"marker": marker(kinds[name], 0), "color": theme.ink, "linestyle": ""})
                for name in names
            ]
            style_legend(figure, shapes, columns=1)
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

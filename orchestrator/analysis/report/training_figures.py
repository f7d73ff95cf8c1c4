"""Pictures of training: returns over frames, final returns, speed, targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.report.plotting import (
    BARS,
    LINES,
    MARKED_POINTS,
    Draw,
    Picture,
    Theme,
    about,
    axes,
    bundles,
    compact,
    dash,
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
    wrapped,
)
from orchestrator.analysis.report.target_comparison import Comparison, TargetBar
from orchestrator.analysis.stats import Curve, Estimate, Final, group_labels
from orchestrator.analysis.summary import SpeedSummary
from orchestrator.planning.throughput.measure import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def learning_pictures(curves: Sequence[Curve]) -> Iterator[Picture]:
    """Draw one picture per task and metric, split where lines are too many; small where there are several."""
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.group.task, curve.metric), []).append(curve)
    small = len(panels) > 1
    numbers = count(1)
    for (task, metric), panel in panels.items():
        named = list(zip(panel, group_names([curve.group for curve in panel]), strict=True))
        limits = _limits(panel)
        for part, title in bundles(named, _kin, LINES, task):
            yield picture(
                f"learning-{next(numbers)}",
                title,
                _learning(part, title, limits, small=small),
                caption=_learning_caption(part, metric),
                alt=_learning_alt(part, title),
                small=small,
            )


def final_pictures(finals: Sequence[Final]) -> Iterator[Picture]:
    """Draw one picture per task of every group that has a final return; small where there are several."""
    panels: dict[str, list[Final]] = {}
    for final in finals:
        if final.estimate is not None:
            panels.setdefault(final.group.task, []).append(final)
    small = len(panels) > 1
    numbers = count(1)
    for task, panel in panels.items():
        named = list(zip(panel, group_names([final.group for final in panel]), strict=True))
        for part, title in bundles(named, _kin, BARS, task):
            means = [f"{name}: {final.estimate}, {len(final.values)} seeds" for final, name in part]
            yield picture(
                f"final-{next(numbers)}",
                title,
                _finals(part, title, small=small),
                caption=(
                    "Final return of each run (dots), their interquartile mean (diamond) and its 95 % "
                    "interval (bar; none for one seed). Raw returns, not normalised."
                ),
                alt=f"Final returns{about(title)}. {listed(means)}.",
                small=small,
            )


def speed_pictures(speeds: Sequence[SpeedSummary]) -> Iterator[Picture]:
    """Draw both throughputs, and the parts of an iteration's time, by group and hardware."""
    shown = [speed for speed in speeds if speed.end_to_end_fps]
    labels = [short(label) for label in group_labels([speed.group.point for speed in shown])]
    kinds = {name: number for number, name in enumerate(dict.fromkeys(speed.hardware for speed in shown))}
    numbers = count(1)
    for part, title in parts(list(zip(shown, labels, strict=True)), BARS, "Speed"):
        caption = (
            "Left: training throughput of each run (dots; line: their median) and end-to-end throughput "
            "(rings; thin line: their median). Right: seconds per iteration and what they went to (other: "
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


def target_pictures(found: Sequence[Comparison]) -> Iterator[Picture]:
    """Draw each configuration's frames/s on each target, and dollars where there are prices."""
    numbers = count(1)
    for comparison in found:
        by_label: dict[str, list[TargetBar]] = {}
        name = NAMES[comparison.figure].capitalize()
        for bar in comparison.bars:
            by_label.setdefault(bar.label, []).append(bar)
        for part, title in parts(
            list(by_label.items()), BARS // len(comparison.targets) or 1, comparison.sweep
        ):
            caption = (
                f"{name} of each run (dots), their interquartile mean (line) and its 95 % interval (bar; "
                "none for one run)."
            )
            if any(bar.dollars for _, bars in part for bar in bars):
                caption += (
                    " Right: what a million frames cost at the end-to-end throughput, in a job that is full."
                )
            means = [f"{bar.label} on {bar.target}: {bar.fps}" for _, bars in part for bar in bars]
            yield picture(
                f"targets-{next(numbers)}",
                title,
                _targets(part, title, comparison.targets, comparison.figure),
                caption=caption,
                alt=f"{name} by target, frames per second, {title}. {listed(means)}.",
            )


def _kin(of: Curve | Final) -> tuple[int, int]:
    return of.group.number, of.group.side


# Learning


def _learning(
    part: Sequence[tuple[Curve, str]], title: str, limits: tuple[float, float] | None, *, small: bool
) -> Draw:
    labels = [f"{label} (n={curve.n})" for curve, label in part]

    def draw(theme: Theme) -> Figure:
        figure, on = axes((3.4 if small else 4.3) + legend_height(labels, small=small), small=small)
        for curve, _ in part:
            _curve(on, curve, theme)
        heading(on, title, small=small)
        on.set_xlabel("training frames")
        on.set_ylabel(_return_name(part[0][0].metric))
        on.xaxis.set_major_formatter(compact)
        on.set_xlim(left=0)
        if limits is not None:
            on.set_ylim(limits)
        legend(figure, on.get_lines(), labels, small=small)
        return figure

    return draw


def _limits(panel: Sequence[Curve]) -> tuple[float, float] | None:
    """Return the range of returns that all pictures of a task share, so that they can be compared."""
    if len(panel) <= LINES:
        return None
    low = min(float(min(curve.value if curve.low is None else curve.low)) for curve in panel)
    high = max(float(max(curve.value if curve.high is None else curve.high)) for curve in panel)
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _curve(on: Axes, curve: Curve, theme: Theme) -> None:
    number, side = curve.group.number, curve.group.side
    colour = theme.line(number)
    on.plot(
        curve.frames,
        curve.value,
        color=colour,
        linestyle=":" if curve.unfinished else dash(number, side),
        marker=marker(number, side) if len(curve.frames) <= MARKED_POINTS else None,
    )
    if curve.low is None or curve.high is None:
        return
    if len(curve.frames) == 1:  # a band of one point has no area
        on.vlines(curve.frames, curve.low, curve.high, color=colour, linewidth=1.5)
    else:
        on.fill_between(curve.frames, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)


def _return_name(metric: str) -> str:
    if metric.startswith("eval/"):
        return "episode return (evaluation)"
    if metric.startswith("collection/"):
        return "episode return (collection)"
    return wrapped(metric, 60)


def _learning_caption(part: Sequence[tuple[Curve, str]], metric: str) -> str:
    lines = [
        f"{metric}: interquartile mean over seeds and, from two seeds on, its 95 % interval at each point."
    ]
    lines += [f"{label}: {curve.note}." for curve, label in part if curve.note]
    return " ".join(lines)


def _learning_alt(part: Sequence[tuple[Curve, str]], title: str) -> str:
    ends = [f"{label} ends at {curve.value[-1]:.4g}" for curve, label in part]
    return f"Learning curves{about(title)}: return over training frames. {listed(ends)}."


# Final returns


def _finals(part: Sequence[tuple[Final, str]], title: str, *, small: bool) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, on = axes(1.2 + 0.42 * len(part), small=small)
        for row, (final, _) in enumerate(part):
            assert final.estimate is not None
            colour = theme.line(final.group.number)
            if final.estimate.low is not None and final.estimate.high is not None:
                low, high = final.estimate.low, final.estimate.high
                on.hlines(row, low, high, color=colour, linewidth=5, alpha=0.35)
            on.plot(final.values, [row] * len(final.values), "o", color=colour, markersize=4, alpha=0.7)
            on.plot(final.estimate.value, row, "D", color=colour, markersize=7, markeredgecolor=theme.paper)
        heading(on, title, small=small)
        rows(on, [f"{label} (n={len(final.values)})" for final, label in part], 22 if small else 30)
        on.set_xlabel("final return")
        return figure

    return draw


# Speed and targets


def _speeds(part: Sequence[tuple[SpeedSummary, str]], title: str, kinds: Mapping[str, int]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, left = axes(1.6 + 0.42 * len(part), columns=2)
        right = figure.axes[1]
        for row, (speed, _) in enumerate(part):
            colour = _hardware_colour(kinds[speed.hardware], theme)
            _throughputs(left, row, speed, colour)
            _iteration(right, row, speed, theme)
        heading(left, title)
        rows(left, [label for _, label in part])
        from_zero_or_log(
            left, [value for speed, _ in part for value in (*speed.training_fps, *speed.end_to_end_fps)]
        )
        left.set_xlabel("frames/s: dots training, rings end-to-end")
        right.set_xlabel("seconds per iteration")
        rows(right, [""] * len(part))
        _name_parts(right, theme)
        if len(kinds) > 1:
            figure.legend(*_hardware_legend(part, kinds, theme), loc="outside lower left")
        return figure

    return draw


def _throughputs(on: Axes, row: int, speed: SpeedSummary, colour: str) -> None:
    """Draw each run's two figures, the end-to-end one as a ring below the other."""
    training, end_to_end = speed.training_fps, speed.end_to_end_fps
    on.plot(training, [row - 0.12] * len(training), "o", color=colour, markersize=5, alpha=0.7)
    on.plot(end_to_end, [row + 0.16] * len(end_to_end), "o", color=colour, markersize=5, fillstyle="none")
    if training:
        on.vlines(median(training), row - 0.35, row + 0.05, color=colour, linewidth=2)
    on.vlines(median(end_to_end), row - 0.05, row + 0.35, color=colour, linewidth=0.9)


def _medians(speed: SpeedSummary) -> str:
    training = f"training {median(speed.training_fps):,.0f}, " if speed.training_fps else ""
    return f"{training}end-to-end {median(speed.end_to_end_fps):,.0f}"


def _targets(
    part: Sequence[tuple[str, list[TargetBar]]], title: str, names: Sequence[str], figure_name: str
) -> Draw:
    priced = any(bar.dollars for _, bars in part for bar in bars)
    step = 0.8 / len(names)

    def draw(theme: Theme) -> Figure:
        from matplotlib.lines import Line2D

        figure, left = axes(1.5 + 0.3 * len(part) * len(names), columns=2 if priced else 1)
        panels = figure.axes[: 2 if priced else 1]
        for row, (_, bars) in enumerate(part):
            for bar in bars:
                at = row + step * (names.index(bar.target) - (len(names) - 1) / 2)
                colour = theme.line(names.index(bar.target))
                _estimate(left, at, [run.fps for run in bar.runs], bar.fps, colour)
                if priced and bar.dollars is not None:
                    cost = [run.dollars for run in bar.runs if run.dollars is not None]
                    _estimate(panels[1], at, cost, bar.dollars, colour)
        heading(left, title)
        runs = [run for _, bars in part for bar in bars for run in bar.runs]
        rows(left, [short(label) for label, _ in part])
        from_zero_or_log(left, [run.fps for run in runs])
        left.set_xlabel(f"{NAMES[figure_name]} (frames/s)")
        if priced:
            rows(panels[1], [""] * len(part))
            from_zero_or_log(panels[1], [run.dollars for run in runs if run.dollars is not None])
            panels[1].set_xlabel("US dollars per million frames")
        handles = [Line2D([], [], marker="o", linestyle="", color=theme.line(at)) for at in range(len(names))]
        figure.legend(
            handles, [wrapped(name, 60) for name in names], loc="outside lower left", ncols=len(names)
        )
        return figure

    return draw


def _estimate(on: Axes, row: float, values: Sequence[float], estimate: Estimate, colour: str) -> None:
    """Draw the estimate and its interval, if there is one; the values lie below, to stay visible."""
    if estimate.low is not None and estimate.high is not None:
        on.hlines(row, estimate.low, estimate.high, color=colour, linewidth=7, alpha=0.4)
    on.vlines(estimate.value, row - 0.12, row + 0.12, color=colour, linewidth=2)
    on.plot(values, [row + 0.17] * len(values), "o", color=colour, markersize=3, alpha=0.6)


_PARTS = ("collection", "learning", "other")


def _iteration(on: Axes, row: int, speed: SpeedSummary, theme: Theme) -> None:
    start = 0.0
    for seconds, colour in zip(speed.split(), theme.parts, strict=True):
        on.barh(row, seconds, left=start, color=colour, height=0.62)
        start += seconds


def _name_parts(on: Axes, theme: Theme) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for colour in theme.parts]
    on.legend(
        handles, _PARTS, loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=3, columnspacing=1, handlelength=1
    )


def _hardware_legend(
    part: Sequence[tuple[SpeedSummary, str]], kinds: Mapping[str, int], theme: Theme
) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(speed.hardware for speed, _ in part))
    colours = [_hardware_colour(kinds[name], theme) for name in names]
    handles = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in colours]
    return handles, [wrapped(name, 60) for name in names]


def _hardware_colour(kind: int, theme: Theme) -> str:
    return theme.line(kind + 2)  # the first two are the colours of the parts

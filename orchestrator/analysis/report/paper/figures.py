"""Draw a paper's figures: learning curves of all tasks with one legend, and aggregate scores.

Aggregates follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(NeurIPS 2021), and its package rliable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.groups.curves import Curve
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.variants import Profiles, Variant, over_tasks, overall_profiles, scaled
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import LIGHT
from orchestrator.analysis.report.drawing.vector import Vector, vector
from orchestrator.analysis.report.paper.settings import FigureSettings, Style
from orchestrator.analysis.statistics.bootstrap import Estimate, interquartile_mean
from orchestrator.analysis.statistics.bootstrap import over_tasks as estimate
from orchestrator.analysis.statistics.significance import Floats

# Height of a panel by its width.
_SHAPE = 0.72
_WIDE_IN = 4.5
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Paper:
    """What the figures show: the variants and tasks that the settings name, in their order."""

    data: ReportData
    settings: FigureSettings

    @cached_property
    def _every(self) -> list[Variant]:
        return over_tasks(self.data.returning)

    @cached_property
    def variants(self) -> list[tuple[Variant, str]]:
        """The variants with their labels, each with its returns in the panels' tasks."""
        every = {
            one.label: replace(
                one, scores={task: one.scores[task] for task in self.panels if task in one.scores}
            )
            for one in sorted(self._every, key=lambda one: one.number)
        }
        labels = self.settings.variants or {name: name for name in every}
        return [(every[name], label) for name, label in labels.items()]

    @cached_property
    def _sweeps_apart(self) -> bool:
        return any(one.side for one in self._every)

    def key(self, of: Variant | SeedGroup) -> tuple[int, int]:
        """Return what a variant and its groups have in common: its number, and its sweep if kept apart."""
        return of.number, of.side if self._sweeps_apart else 0

    @cached_property
    def panels(self) -> Mapping[str, str]:
        """The titles of tasks."""
        tasks = dict.fromkeys(final.group.task for final in self.data.returning)
        return self.settings.panels or {task: task for task in tasks}

    @cached_property
    def aggregate(self) -> Profiles | None:
        """The profiles over all tasks; ``None`` for one task, or variants that lack one or are not ranked."""
        found = overall_profiles([one for one, _ in self.variants], self.settings.scores)
        return found[0] if found else None

    def colour(self, variant: Variant) -> str:
        """The colour of a variant."""
        return self.settings.colors.get(variant.label) or LIGHT.line(variant.number)


def scores(profiles: Profiles, measure: Callable[[Floats], Floats]) -> dict[str, Estimate]:
    """Return a measure of the scaled returns of each variant, by its label."""
    return {
        one.variant.label: estimate(
            [scaled(one.variant, task, profiles.spans) for task in profiles.tasks], measure
        )
        for one in profiles.profiles
    }


def iqm(values: Floats) -> Floats:
    """Return the interquartile mean over all runs and tasks."""
    return interquartile_mean(values, axis=-1)


def optimality_gap(values: Floats) -> Floats:
    """Return the mean distance by which scores miss 1; scores above 1 count as 1."""
    gap: Floats = (1 - np.minimum(values, 1)).mean(axis=-1)
    return gap


def figures(paper: Paper) -> Iterator[tuple[str, Vector]]:
    """Draw the figures; yield the stem of each one's files and the figure."""
    style = _style(paper.settings.style)
    yield "curves", vector(lambda: _curves(paper), style)
    if (profiles := paper.aggregate) is not None:
        yield "aggregate", vector(lambda: _aggregate(paper, profiles), style)


def _style(style: Style) -> dict[str, Any]:
    size = style.size
    return plotting.style(LIGHT) | {
        "font.family": style.font,
        "font.size": size,
        "axes.titlesize": size,
        "axes.titleweight": "normal",
        "axes.titlepad": 4,
        "axes.labelsize": size,
        "axes.linewidth": 0.6,
        "xtick.labelsize": size - 1,
        "ytick.labelsize": size - 1,
        "xtick.major.size": 2,
        "ytick.major.size": 2,
        "xtick.major.pad": 2,
        "ytick.major.pad": 2,
        "legend.fontsize": size,
        "lines.linewidth": 1.2,
        "grid.linewidth": 0.4,
        "axes.edgecolor": LIGHT.ink,
        "figure.constrained_layout.w_pad": 0.06,
        "figure.constrained_layout.h_pad": 0.02,
        "svg.fonttype": "path",  # readers need not have the font
    }


def _columns(settings: FigureSettings, panels: int) -> int:
    """Return the number of panels side by side."""
    return min(panels, settings.columns or (_MOST_COLUMNS if settings.width > _WIDE_IN else 1))


def _grid(settings: FigureSettings, panels: int, extra: float = 0.0) -> tuple[Figure, list[Axes]]:
    """Return a figure with its panels; ``extra``: inches of a legend."""
    columns = _columns(settings, panels)
    rows = math.ceil(panels / columns)
    height = rows * _SHAPE * settings.width / max(columns, 2 if settings.width > _WIDE_IN else 1) + extra
    figure = Figure(figsize=(settings.width, height), layout="constrained")
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in every[panels:]:
        unused.set_visible(False)
    return figure, list(every[:panels])


def _curves(paper: Paper) -> Figure:
    by_task: dict[str, list[Curve]] = {task: [] for task in paper.panels}
    for curve in paper.data.curves:
        if curve.group.task in by_task:
            by_task[curve.group.task].append(curve)
    figure, panels = _grid(paper.settings, len(by_task), 0.25)
    columns = _columns(paper.settings, len(panels))
    for at, (on, (task, curves)) in enumerate(zip(panels, by_task.items(), strict=True)):
        own = {paper.key(curve.group): curve for curve in curves}
        for variant, _ in paper.variants:
            if (line_of := own.get(paper.key(variant))) is not None:
                line = plotting.dash(variant.number, variant.side)
                plotting.band(on, line_of, line, "", paper.colour(variant))
        on.set_title(paper.panels[task])
        on.xaxis.set_major_formatter(plotting.compact)
        on.locator_params(nbins=5)
        on.set_xlim(left=0)
        if at % columns == 0:
            on.set_ylabel(plotting.return_name(curves[0].metric) if curves else "return")
        if at + columns >= len(panels):
            on.set_xlabel("training frames")
    _legend(figure, paper)
    return figure


def _legend(figure: Figure, paper: Paper) -> None:
    """Put the legend of all variants above the panels."""
    styles = [
        (label, {"color": paper.colour(one), "linestyle": plotting.dash(one.number, one.side)})
        for one, label in paper.variants
    ]
    room = max(1, int(paper.settings.width * 14 / (6 + max(len(label) for label, _ in styles))))
    plotting.style_legend(figure, styles, columns=room, place="outside upper center")


def _aggregate(paper: Paper, profiles: Profiles) -> Figure:
    figure, (left, middle, right) = _grid(paper.settings, 3, 0.25)
    labels = {one.label: (one, label) for one, label in paper.variants}
    measures = (left, iqm, "IQM of scores"), (middle, optimality_gap, "optimality gap (lower is better)")
    for on, measure, name in measures:
        told = scores(profiles, measure)
        for row, label in enumerate(labels):
            if label in told:
                plotting.diamond(on, row, told[label], paper.colour(labels[label][0]), LIGHT, size=4)
        plotting.rows(on, [text for _, text in labels.values()] if on is left else [""] * len(labels))
        on.set_xlabel(name)
        on.locator_params(axis="x", nbins=5)
    for profile in profiles.profiles:
        one = profile.variant
        colour, line = paper.colour(one), plotting.dash(one.number, one.side)
        right.plot(profile.thresholds, profile.value, color=colour, linestyle=line, drawstyle="steps-post")
        if profile.low is not None and profile.high is not None:
            band: dict[str, Any] = {"step": "post", "color": colour, "alpha": 0.15, "linewidth": 0}
            right.fill_between(profile.thresholds, profile.low, profile.high, **band)
    right.set_xlabel("score")
    right.set_ylabel("share of runs above")
    _legend(figure, paper)
    return figure


def explained(paper: Paper) -> str:
    """Return what scores 0 and 1 are, for a caption; empty without aggregate scores."""
    if paper.aggregate is None:
        return ""
    spans = ", ".join(
        f"{paper.panels[task]} {low:.4g} to {high:.4g}" for task, (low, high) in paper.aggregate.spans.items()
    )
    return f"scores 0 and 1 are these final returns: {spans}"

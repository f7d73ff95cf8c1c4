"""Policies beside scripted players."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.evaluations.baselines import (
    BaselineVerdict,
    EvaluatedSweep,
    Ranking,
    evaluated_sweep,
    frames_to_best,
    frames_to_half,
    gap_of,
    rankings,
)
from orchestrator.analysis.evaluations.matrix import BEHAVIOUR
from orchestrator.analysis.evaluations.played_tasks import without_family
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.curves import FramesToThreshold
from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.groups.variants import names
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.statistics.bootstrap import Estimate, estimate_of
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.core.formatting import count as counted


def section(data: ReportData) -> Section | None:
    """Return the section, with a part for each sweep that was evaluated beside scripted players."""
    several = [evaluated_sweep(sweep_dir, data.collected, data.groups) for sweep_dir in data.sweep_dirs]
    sweeps = [evaluated for evaluated in several if evaluated is not None and evaluated.figures]
    numbers = count(1)
    blocks: list[Block] = []
    for evaluated in sweeps:
        blocks += _sweep(evaluated, data.collected, numbers, named=len(sweeps) > 1)
    return Section("baselines", "Policies and scripted players", tuple(blocks)) if blocks else None


def _sweep(
    evaluated: EvaluatedSweep, collected: Collected, numbers: Iterator[int], *, named: bool
) -> Iterator[Block]:
    """Yield the blocks of one sweep."""
    setting = f"Evaluated in {evaluated.setting}"
    if evaluated.missing:
        missing = counted(evaluated.missing, "finished run")
        setting += f"; without {missing} ({evaluated.command})"
    sweep = f"{evaluated.name}: " if named else ""
    yield Text(f"{sweep}{setting}.")
    for number, figure in enumerate(evaluated.ranked):
        yield Text(f"{sweep}{figure}", title=True)
        yield from _figure(rankings(evaluated, figure), collected, numbers, first=not number)
    if evaluated.behaviour:
        yield Text(f"{sweep}behaviour", title=True)
        yield behaviour_table(evaluated)
        yield Text(_BEHAVIOUR, note=True)


def _figure(
    ranked: Sequence[Ranking], collected: Collected, numbers: Iterator[int], *, first: bool
) -> Iterator[Block]:
    """Yield the blocks of a figure; all that there are of the ``first``."""
    yield from map(Text, verdicts(ranked))
    pictures = tuple(islice(gap_pictures(ranked, numbers), plotting.MOST_PICTURES)) if first else ()
    if pictures:
        yield Gallery(pictures)
    yield ranking_table(ranked)
    if not first:
        return
    yield Text(_RANKED, note=True)
    yield players_table(ranked)
    frames = frames_table(ranked, frames_to_best(ranked, collected), frames_to_half(ranked, collected))
    if frames is not None:
        yield frames
        yield Text(_FRAMES, note=True)


def verdicts(ranked: Sequence[Ranking]) -> Iterator[str]:
    """Yield for each variant in how many tasks it is at least the best baseline."""
    labels = names([ranking.of.group.point for ranking in ranked], ("task", "sweep"))
    by_variant = gathered((label, ranking.verdict) for ranking, label in zip(ranked, labels, strict=True))
    for label, own in by_variant.items():
        yield f"{label}: {_counted(own)}" if len(by_variant) > 1 else _counted(own).capitalize()


def _counted(own: Sequence[BaselineVerdict]) -> str:
    told = Counter(own)
    few = told.pop(BaselineVerdict.FEW, 0)
    if not told:
        return f"no verdict: fewer than {FEW_SEEDS} seeds."
    reached = told[BaselineVerdict.ABOVE] + told[BaselineVerdict.ALIKE]
    parts = ", ".join(f"{verdict} in {told[verdict]}" for verdict in BaselineVerdict if told[verdict])
    left = f"; {few} with fewer than {FEW_SEEDS} seeds" if few else ""
    return f"at least the best baseline in {reached} of {counted(len(own), 'task')} ({parts}{left})."


_RANKED = (
    "Policies on the task that they were trained on, one per seed; scripted players in as many episodes. "
    "Above and below: by Student's t test of the seeds against the best baseline, corrected by Holm's method "
    "for all rows and figures here; else these seeds do not tell the two apart. At least the best "
    "baseline: above or not told apart. The baseline is taken as it is, without an interval of its own; "
    f"the best of several is also a lucky one. No verdict below {FEW_SEEDS} seeds."
)

_FRAMES = (
    "Frames until the first evaluation in training that reaches the best baseline's figure of the table, or "
    "closes half of the gap: the median over seeds, with its 95 % interval by bootstrap over seeds. A seed "
    "that never does counts as later than all its frames (>). Nothing is known between two evaluations. "
    "These have other episodes than the evaluation above, and a later one may be lower again."
)

_BEHAVIOUR = (
    "Policies: interquartile mean over seeds, with its 95 % interval. Scripted players: from the lowest to "
    "the highest task."
)

# Digits of frames that a spacing of evaluations can fill.
_DIGITS = 3

# An index of this size has no need of decimals.
_MANY = 100


def index(value: float) -> str:
    """Format a gap closed, or a figure of behaviour: mostly between 0 and 1, where more digits are noise."""
    return f"{round(value, 2) + 0.0:.2f}" if abs(value) < _MANY else cells.shown(value)


def ranking_table(ranked: Sequence[Ranking]) -> Table:
    """Return the table of a figure: policies, the best baseline, the verdict, the gap closed."""
    gap = "#gap closed, IQM [95 %]"
    rows = (
        {
            "task": Cell(title),
            "#n": cells.number(ranking.estimate.n),
            f"#{ranking.figure}, IQM [95 %]": cells.estimated(ranking.estimate, cells.shown),
            "#best baseline": _best(ranking),
            "policies against it": Cell(ranking.verdict, list(BaselineVerdict).index(ranking.verdict)),
            gap: cells.estimated(ranking.gap, index),
        }
        for ranking, title in _titled(ranked)
    )
    return cells.table("policies", rows, if_any=(gap,))


def players_table(ranked: Sequence[Ranking]) -> Table:
    """Return the table of a figure of all scripted players, with the gap closed in brackets.

    Groups of a task that were evaluated beside the same players share a row.
    """
    figure = ranked[0].figure
    distinct: dict[tuple[str, str], Ranking] = {}
    for ranking in ranked:
        distinct.setdefault((ranking.of.group.task, str(ranking.of.players(figure))), ranking)
    shared = list(distinct.values())
    players = sorted({name for ranking in shared for name in ranking.of.players(figure)})
    rows = (
        {"scripted players": Cell(title)} | {f"#{name}": _player(ranking, figure, name) for name in players}
        for ranking, title in _titled(shared)
    )
    return cells.table("scripted players", rows, headed=True)


def _titled(ranked: Sequence[Ranking]) -> Iterator[tuple[Ranking, str]]:
    return zip(ranked, group_titles([ranking.of.group for ranking in ranked]), strict=True)


def _player(ranking: Ranking, figure: str, player: str) -> Cell:
    value, gap = (ranking.of.players(name).get(player) for name in (figure, gap_of(figure)))
    told = cells.number(value)
    return (
        told if gap is None else Cell(f"{told.text} ({index(gap)})", told.sort, more=(("gap closed", gap),))
    )


def _best(ranking: Ranking) -> Cell:
    players = " and ".join(ranking.best_players)
    return Cell(f"{cells.shown(ranking.best)}, {players}", ranking.best, more=(("player", players),))


def frames_table(
    ranked: Sequence[Ranking],
    to_best: Sequence[FramesToThreshold | None],
    to_half: Sequence[FramesToThreshold | None],
) -> Table | None:
    """Return the table of frames to the best baseline and to half of the gap; ``None`` without curves."""
    several = [("best baseline", to_best), ("half of the gap", to_half)]
    several = [(threshold, frames) for threshold, frames in several if any(frames)]
    if not several:
        return None
    told = [name for threshold, _ in several for name in (f"#{threshold}, median [95 %]", "#reached by")]
    rows = [
        (Cell(title), *(cell for reached in own for cell in _frames(reached)), _spacing(own))
        for (_, title), *own in zip(_titled(ranked), *(frames for _, frames in several), strict=True)
    ]
    heads = cells.columns("frames until", *told, "#evaluated every")
    return Table("frames to thresholds", heads, tuple(rows), headed=True)


def _frames(reached: FramesToThreshold | None) -> tuple[Cell, Cell]:
    if reached is None:
        return Cell(cells.MISSING), Cell(cells.MISSING)
    interval = reached.interval or ()
    value, *ends = (_reached(frames, reached.trained) for frames in (reached.median, *interval))
    told = f"{value} [{', '.join(ends)}]" if any(map(math.isfinite, interval)) else value
    seeds = len(reached.frames)
    return (
        Cell(told, reached.median, ends=reached.interval, bound=reached.trained),
        Cell(f"{reached.reached} of {counted(seeds, 'seed')}", reached.reached, more=(("of", seeds),)),
    )


def _reached(frames: float, trained: float) -> str:
    return _compact(frames) if math.isfinite(frames) else f"> {_compact(trained)}"


def _spacing(reached: Sequence[FramesToThreshold | None]) -> Cell:
    spacing = next((one.spacing for one in reached if one is not None), None)
    return cells.number(spacing, lambda frames: f"{_compact(frames)} frames")


def _compact(frames: float) -> str:
    return plotting.compact(float(f"{frames:.{_DIGITS}g}"))


def behaviour_table(evaluated: EvaluatedSweep) -> Table:
    """Return the table of behaviour: a row for each group, and for each scripted player over all tasks."""
    labels = group_titles([group.group for group in evaluated.groups])
    columns = {f"#{name.removeprefix(BEHAVIOUR)}": name for name in evaluated.behaviour}
    rows = [
        {"policies": Cell(label)}
        | {key: cells.estimated(estimate_of(group.values(name)), index) for key, name in columns.items()}
        for group, label in zip(evaluated.groups, labels, strict=True)
    ]
    rows += [
        {"policies": Cell(f"scripted: {player}")}
        | {key: _range(evaluated, name, player) for key, name in columns.items()}
        for player in sorted({player for group in evaluated.groups for player in group.baselines})
    ]
    return cells.table("behaviour", rows, headed=True)


def _range(evaluated: EvaluatedSweep, figure: str, player: str) -> Cell:
    """Return a player's figure, from the lowest to the highest task."""
    values = [value for group in evaluated.groups if (value := group.players(figure).get(player)) is not None]
    if not values:
        return Cell(cells.MISSING)
    lowest, highest = min(values), max(values)
    ends = dict.fromkeys(map(index, (lowest, highest)))
    return Cell(" to ".join(ends), median(values), ends=(lowest, highest))


def group_titles(groups: Sequence[SeedGroup]) -> list[str]:
    """Return one short name for each group: its task without a family that all share, and its variant."""
    tasks = without_family([group.task for group in groups])
    labels = names([group.point for group in groups], ("task", "sweep"))
    told = tasks if len(set(labels)) == 1 and all(tasks) else map(_joined, tasks, labels)
    return list(told)


def _joined(task: str, label: str) -> str:
    return f"{task} {label}".strip()


_CAPTION = (
    "Gap closed: 0 is random play, 1 the reference. Dots: policies, one per seed; diamond: interquartile "
    "mean; bar: its 95 % interval. Ticks: scripted players; the long one is the best, named at the right."
)

_OUTSIDE = " Players far from the policies are outside of the picture."

_MARGIN = 0.06

# Letters of a line of a row's title.
_TITLE = 38


@dataclass(frozen=True)
class _Row:
    """A group's gap closed: of its policies, and of scripted players by name."""

    title: str
    colour: int
    values: Sequence[float]
    estimate: Estimate
    players: Mapping[str, float]
    best: tuple[str, ...]


def gap_pictures(ranked: Sequence[Ranking], numbers: Iterator[int]) -> Iterator[Picture]:
    """Draw the gap closed by each group that has one; ``numbers`` are for the names."""
    drawn = [(ranking, ranking.gap) for ranking in ranked if ranking.gap is not None]
    titles = group_titles([ranking.of.group for ranking, _ in drawn])
    every = [
        _Row(
            f"{title} (n={gap.n})",
            ranking.of.group.number,
            ranking.of.values(gap_of(ranking.figure)),
            gap,
            ranking.of.players(gap_of(ranking.figure)),
            ranking.best_players,
        )
        for (ranking, gap), title in zip(drawn, titles, strict=True)
    ]
    for part, title in plotting.parts(every, plotting.BARS, gap_of(ranked[0].figure)):
        low, high = _limits(part)
        outside = any(not low <= gap <= high for row in part for gap in row.players.values())
        yield plotting.picture(
            f"gap-{next(numbers)}",
            title,
            _gaps(part, title, (low, high)),
            caption=_CAPTION + (_OUTSIDE if outside else ""),
            alt=f"{title}. {plotting.listed([_told(row) for row in part], plotting.BARS)}.",
        )


def _limits(part: Sequence[_Row]) -> tuple[float, float]:
    """Return the ends of the axis: all policies, the best players, random play and the reference."""
    values = [0.0, 1.0]
    for row in part:
        values += [*row.values, *(row.players[name] for name in row.best if name in row.players)]
    margin = _MARGIN * (max(values) - min(values))
    return min(values) - margin, max(values) + margin


def _told(row: _Row) -> str:
    best = [
        f"best baseline {name} {index(row.players[name])}" for name in row.best[:1] if name in row.players
    ]
    return ", ".join([f"{row.title}: {row.estimate}", *best])


def _gaps(part: Sequence[_Row], title: str, limits: tuple[float, float]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(1.3 + 0.42 * len(part))
        for reference in (0.0, 1.0):
            on.axvline(reference, color=theme.ink, linewidth=1, linestyle=":")
        for number, row in enumerate(part):
            _players(on, number, row, theme)
            colour = theme.line(row.colour)
            on.plot(row.values, [number] * len(row.values), "o", color=colour, markersize=4, alpha=0.7)
            plotting.diamond(on, number, row.estimate, colour, theme)
        plotting.heading(on, title)
        on.annotate("best baseline", (1, 1), (3.5, 6), "axes fraction", "offset points")
        plotting.rows(on, [row.title for row in part], _TITLE)
        on.set_xlim(limits)
        on.set_xlabel("gap closed (0: random play, 1: reference)")
        named = on.secondary_yaxis("right")
        named.set_yticks(range(len(part)), [plotting.wrapped(" and ".join(row.best), 22) for row in part])
        named.tick_params(length=0)
        named.spines[:].set_visible(False)
        return figure

    return draw


def _players(on: Axes, number: int, row: _Row, theme: Theme) -> None:
    for name, gap in row.players.items():
        best = name in row.best
        reach, width = (0.36, 2.2) if best else (0.2, 1.4)
        colour = theme.ink if best else theme.lines[-1]
        on.vlines(gap, number - reach, number + reach, color=colour, linewidth=width)

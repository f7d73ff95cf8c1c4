"""Tables of policies beside scripted baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from orchestrator.analysis.baselines import (
    EvaluatedSweep,
    FramesToThreshold,
    Ranking,
    Verdict,
    gap_of,
)
from orchestrator.analysis.evaluation_matrix import BEHAVIOUR
from orchestrator.analysis.report.blocks import MISSING, Cell, Column, Table, columns, number, shown
from orchestrator.analysis.report.plotting import compact
from orchestrator.analysis.stats import Estimate, Group, estimate_of
from orchestrator.analysis.variant_ranking import names
from orchestrator.core.formatting import count as counted

# Digits of frames that a spacing of evaluations can fill.
_DIGITS = 3
# An index of this size has no need of decimals.
_MANY = 100


def index(value: float) -> str:
    """Format a gap closed, or a figure of behaviour: mostly between 0 and 1, where more digits are noise."""
    return f"{round(value, 2) + 0.0:.2f}" if abs(value) < _MANY else shown(value)


def ranking_table(found: Sequence[Ranking]) -> Table:
    """Return the table of a figure: policies, the best baseline, the verdict, the gap closed."""
    with_gap = any(one.gap for one in found)
    rows = [
        (
            Cell(title),
            number(one.estimate.n),
            _estimate(one.estimate, shown),
            _best(one),
            Cell(one.verdict, list(Verdict).index(one.verdict)),
            *([_estimate(one.gap)] if with_gap else []),
        )
        for one, title in _titled(found)
    ]
    told = columns("#n", f"#{found[0].figure}, IQM [95 %]", "#best baseline", "policies against it")
    gap = columns("#gap closed, IQM [95 %]") if with_gap else ()
    return Table("policies", (*columns("task"), *told, *gap), tuple(rows))


def players_table(found: Sequence[Ranking]) -> Table:
    """Return the table of a figure of all scripted players, with the gap closed in brackets.

    Groups of a task that were evaluated beside the same players share a row.
    """
    figure = found[0].figure
    distinct: dict[tuple[str, str], Ranking] = {}
    for one in found:
        distinct.setdefault((one.of.group.task, str(one.of.players(figure))), one)
    shared = list(distinct.values())
    players = sorted({name for one in shared for name in one.of.players(figure)})
    rows = [
        (Cell(title), *(_player(one, figure, player) for player in players)) for one, title in _titled(shared)
    ]
    heads = (*columns("scripted players"), *(Column(player, numeric=True) for player in players))
    return Table("scripted players", heads, tuple(rows), headed=True)


def _titled(found: Sequence[Ranking]) -> Iterator[tuple[Ranking, str]]:
    return zip(found, group_titles([one.of.group for one in found]), strict=True)


def _player(one: Ranking, figure: str, player: str) -> Cell:
    value, gap = (one.of.players(name).get(player) for name in (figure, gap_of(figure)))
    told = number(value)
    return (
        told if gap is None else Cell(f"{told.text} ({index(gap)})", told.sort, more=(("gap closed", gap),))
    )


def _best(one: Ranking) -> Cell:
    players = " and ".join(one.best_players)
    return Cell(f"{shown(one.best)}, {players}", one.best, more=(("player", players),))


def frames_table(
    found: Sequence[Ranking],
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
        (Cell(title), *(cell for one in own for cell in _frames(one)), _spacing(own))
        for (_, title), *own in zip(_titled(found), *(frames for _, frames in several), strict=True)
    ]
    heads = columns("frames until", *told, "#evaluated every")
    return Table("frames to thresholds", heads, tuple(rows), headed=True)


def _frames(found: FramesToThreshold | None) -> tuple[Cell, Cell]:
    if found is None:
        return Cell(MISSING), Cell(MISSING)
    interval = found.interval or ()
    value, *ends = (_reached(frames, found.trained) for frames in (found.median, *interval))
    told = f"{value} [{', '.join(ends)}]" if any(map(math.isfinite, interval)) else value
    seeds = len(found.frames)
    return (
        Cell(told, found.median, ends=found.interval, bound=found.trained),
        Cell(f"{found.reached} of {counted(seeds, 'seed')}", found.reached, more=(("of", seeds),)),
    )


def _reached(frames: float, trained: float) -> str:
    return _compact(frames) if math.isfinite(frames) else f"> {_compact(trained)}"


def _spacing(found: Sequence[FramesToThreshold | None]) -> Cell:
    spacing = next((one.spacing for one in found if one is not None), None)
    return Cell(MISSING) if spacing is None else Cell(f"{_compact(spacing)} frames", spacing)


def _compact(frames: float) -> str:
    return compact(float(f"{frames:.{_DIGITS}g}"))


def behaviour_table(found: EvaluatedSweep) -> Table:
    """Return the table of behaviour: a row for each group, and for each scripted player over all tasks."""
    labels = group_titles([one.group for one in found.groups])
    rows = [
        (Cell(label), *(_estimate(estimate_of(one.values(name))) for name in found.behaviour))
        for one, label in zip(found.groups, labels, strict=True)
    ]
    players = sorted({player for one in found.groups for player in one.baselines})
    rows += [
        (Cell(f"scripted: {player}"), *(_range(found, name, player) for name in found.behaviour))
        for player in players
    ]
    heads = columns("policies", *(f"#{name.removeprefix(BEHAVIOUR)}" for name in found.behaviour))
    return Table("behaviour", heads, tuple(rows), headed=True)


def _range(found: EvaluatedSweep, figure: str, player: str) -> Cell:
    """Return a player's figure, from the lowest to the highest task."""
    values = [value for one in found.groups if (value := one.players(figure).get(player)) is not None]
    if not values:
        return Cell(MISSING)
    lowest, highest = min(values), max(values)
    ends = dict.fromkeys(map(index, (lowest, highest)))
    return Cell(" to ".join(ends), median(values), ends=(lowest, highest))


def group_titles(found: Sequence[Group]) -> list[str]:
    """Return one short name for each group: its task without a family that all share, and its variant."""
    tasks = [group.task for group in found]
    if len({task.partition("/")[0] for task in tasks}) == 1 and all("/" in task for task in tasks):
        tasks = [task.partition("/")[2] for task in tasks]
    labels = names([group.point for group in found], ("task", "sweep"))
    told = tasks if len(set(labels)) == 1 and all(tasks) else map(_joined, tasks, labels)
    return list(told)


def _joined(task: str, label: str) -> str:
    return f"{task} {label}".strip()


def _estimate(estimate: Estimate | None, told: Callable[[float], str] = index) -> Cell:
    """Return an estimate as a cell, with its interval if it has one."""
    if estimate is None:
        return Cell(MISSING)
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return Cell(told(estimate.value), estimate.value)
    text = f"{told(estimate.value)} [{told(low)}, {told(high)}]"
    return Cell(text, estimate.value, ends=(float(low), float(high)))

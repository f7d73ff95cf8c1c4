"""Pictures of policies beside scripted baselines: the gap closed in each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.baselines import Ranking, gap_of
from orchestrator.analysis.report.baseline_tables import group_titles, index
from orchestrator.analysis.report.plotting import (
    BARS,
    Draw,
    Picture,
    Theme,
    axes,
    diamond,
    heading,
    listed,
    parts,
    picture,
    rows,
    wrapped,
)
from orchestrator.analysis.stats import Estimate

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


def gap_pictures(found: Sequence[Ranking], numbers: Iterator[int]) -> Iterator[Picture]:
    """Draw the gap closed by each group that has one; ``numbers`` are for the names."""
    drawn = [(one, one.gap) for one in found if one.gap is not None]
    titles = group_titles([one.of.group for one, _ in drawn])
    every = [
        _Row(
            f"{title} (n={gap.n})",
            one.of.group.number,
            one.of.values(gap_of(one.figure)),
            gap,
            one.of.players(gap_of(one.figure)),
            one.best_players,
        )
        for (one, gap), title in zip(drawn, titles, strict=True)
    ]
    for part, title in parts(every, BARS, gap_of(found[0].figure)):
        low, high = _limits(part)
        outside = any(not low <= gap <= high for row in part for gap in row.players.values())
        yield picture(
            f"gap-{next(numbers)}",
            title,
            _gaps(part, title, (low, high)),
            caption=_CAPTION + (_OUTSIDE if outside else ""),
            alt=f"{title}. {listed([_told(row) for row in part], BARS)}.",
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
        figure, on = axes(1.3 + 0.42 * len(part))
        for reference in (0.0, 1.0):
            on.axvline(reference, color=theme.ink, linewidth=1, linestyle=":")
        for number, row in enumerate(part):
            _players(on, number, row, theme)
            colour = theme.line(row.colour)
            on.plot(row.values, [number] * len(row.values), "o", color=colour, markersize=4, alpha=0.7)
            diamond(on, number, row.estimate, colour, theme)
        heading(on, title)
        on.annotate("best baseline", (1, 1), (3.5, 6), "axes fraction", "offset points")
        rows(on, [row.title for row in part], _TITLE)
        on.set_xlim(limits)
        on.set_xlabel("gap closed (0: random play, 1: reference)")
        named = on.secondary_yaxis("right")
        named.set_yticks(range(len(part)), [wrapped(" and ".join(row.best), 22) for row in part])
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

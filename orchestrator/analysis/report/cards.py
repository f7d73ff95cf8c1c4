"""Cards of the page's answers: texts, marks on an axis, and what would settle a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.groups.grouping import SeedGroup
from orchestrator.analysis.run_table import RunRow, known
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.analysis.verdict.run_cost import Prices, median_dollars
from orchestrator.core.formatting import count, dollars, duration


@dataclass(frozen=True)
class Mark:
    """A variant's row of a card. Places are in percent of the card's axis; ``ends`` of its interval."""

    label: str
    colour: int
    value: str
    facts: str
    dots: tuple[float, ...]
    middle: float
    ends: tuple[float, float] | None
    behind: bool


@dataclass(frozen=True)
class Card:
    """One answer as text and marks. ``axis``: both ends of the axis of its marks, as text.

    ``difference``: by how much the first leads. ``command``: gets what would settle it, at the ``price`` in
    hours and dollars; both empty where nothing would.
    """

    title: str
    flags: tuple[str, ...]
    verdict: str
    remedy: str
    marks: tuple[Mark, ...]
    axis: tuple[str, str]
    notes: tuple[str, ...]
    failed: tuple[str, ...]
    difference: str = ""
    command: str = ""
    price: str = ""


def sentence(verdict: str, label: str) -> str:
    """Return a verdict with a capital, unless it begins with a variant's label."""
    return verdict if verdict.startswith(label) else verdict[:1].upper() + verdict[1:]


def on_axis(value: float, low: float, high: float) -> float:
    """Return a value's place between both ends of an axis, in percent, with a margin."""
    return round(2 + 96 * (value - low) / (high - low), 2) if high > low else 50.0


def time_and_money(rows: Sequence[RunRow], prices: Prices) -> list[str]:
    """Return the median time of a run, and its dollars where a price is known."""
    seconds, cost = middle(known(rows, "wall_time")), median_dollars(rows, prices)
    time = "" if seconds is None else duration(seconds)
    if cost is None:
        return [f"{time} a run"] if time else []
    return [f"{dollars(cost)} a run" + f" in {time}" * bool(time)]


def seeds_command(groups: Sequence[SeedGroup], more: int, prices: Prices) -> tuple[str, str]:
    """Return the command that trains so many more seeds of each group, and its price.

    Of skipped groups none is trained. Both are empty for several sweeps, or a grid without a key for the
    seed.
    """
    groups = [group for group in groups if not group.is_skipped]
    sweeps = {group.sweep for group in groups}
    if len(sweeps) > 1 or more < 1:
        return "", ""
    seeds = sorted(
        {row["seed"] for group in groups for row in group.rows if isinstance(row.get("seed"), int)}
    )
    if not seeds:
        return "", ""
    grown = [*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + more)]
    text = f"range({len(grown)})" if grown == list(range(len(grown))) else json.dumps(grown)
    counted = [group.counted()[0] for group in groups]
    seconds = [one for rows in counted if (one := middle(known(rows, "wall_time"))) is not None]
    costs = [one for rows in counted if (one := median_dollars(rows, prices)) is not None]
    told = [
        count(more * len(groups), "run"),
        *([f"{duration(more * sum(seconds))} of training"] if len(seconds) == len(groups) else []),
        *([dollars(more * sum(costs))] if len(costs) == len(groups) else []),
    ]
    return f"orchestrate sweep {sweeps.pop()}.yaml --set 'seed={text}'", ", ".join(told)

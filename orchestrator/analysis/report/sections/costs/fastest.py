"""Cards of a grid that asks what is fastest: a setting's runs on one axis of frames/s."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.groups.grouping import HUES, SeedGroup
from orchestrator.analysis.report.cards import Card, Mark, on_axis, seeds_command, sentence, time_and_money
from orchestrator.analysis.statistics.significance import FEW_SEEDS
from orchestrator.analysis.verdict.fastest import FastestAnswer, Setting
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.core.formatting import count, listed
from orchestrator.planning.throughput.measure import SHORT

_MOST_ROWS, _MOST_NAMED = 6, 4

HOW_TO_READ_SPEED = (
    "The grid varies only how fast runs train, so the answer is a speed. A dot is the frames/s of one run, "
    "the line their median. A grey setting is significantly slower than the fastest: a t-test of log "
    f"speeds of equal seeds, corrected for the settings of the card; below {FEW_SEEDS} seeds there is none. "
    "More environments can learn differently with the same frames: compare the returns too."
)


def fastest_cards(
    answers: Sequence[FastestAnswer], groups: Sequence[SeedGroup], prices: Prices
) -> list[Card]:
    """Return a card for each task and algorithm."""
    return [_card(answer, groups, prices) for answer in answers]


def _card(answer: FastestAnswer, groups: Sequence[SeedGroup], prices: Prices) -> Card:
    told, rest = answer.settings[:_MOST_ROWS], answer.settings[_MOST_ROWS:]
    values = [value for setting in told for value in setting.fps.values()]
    ends = (min(values), max(values))
    marks = tuple(_mark(setting, ends, answer.figure, prices) for setting in told)
    slower = f"slower: {listed([setting.label for setting in rest], _MOST_NAMED)}"
    command, price = seeds_command(groups, answer.missing, prices)
    return Card(
        answer.title,
        (),
        sentence(answer.verdict, answer.settings[0].label),
        answer.remedy,
        marks,
        (cells.shown(ends[0]), cells.shown(ends[1])),
        (slower,) if rest else (),
        (),
        command=command,
        price=price,
    )


def _mark(setting: Setting, ends: tuple[float, float], figure: str, prices: Prices) -> Mark:
    facts = [count(len(setting.fps), "seed"), *time_and_money(setting.group.counted()[0], prices)]
    return Mark(
        setting.label,
        setting.group.number % HUES,
        f"{cells.shown(setting.middle)} frames/s {SHORT[figure]}",
        " · ".join(facts),
        tuple(on_axis(value, *ends) for value in setting.fps.values()),
        on_axis(setting.middle, *ends),
        None,
        setting.behind,
    )

"""The effect of one key at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from matplotlib.figure import Figure

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table, text
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.verdict.key_effects import KeyEffect, ValueEffect, key_effects, keys_without_effect
from orchestrator.core.labels import short_keys

_NOTE = (
    "Compared are runs of one task that differ in this key and their seed alone, in each combination of the "
    "other keys that has all values of this one. Chance to return more: of a run with this value than of one "
    "with another value, a tie counting half, averaged over values and combinations; ½ means that the key "
    "does not matter on average. Mean return: of the combinations' interquartile means. Keys that matter "
    "most come first. This describes the runs; it is no test."
)


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` where no two keys of the grid vary in a task."""
    effects = key_effects(data.returning)
    left_out = [f"{task}: {key}" if task else key for task, key in keys_without_effect(data.returning)]
    without = f"Left out, as no combination of the other keys has all values: {plotting.listed(left_out)}."
    notes = (Text(without, note=True),) if left_out else ()
    if not effects:
        return Section("effects", "Effect of each key", notes) if notes else None
    drawn = Gallery(plotting.first(_pictures(effects)))
    blocks: tuple[Block, ...] = (drawn, _table(effects), Text(_NOTE, note=True), *notes)
    return Section("effects", "Effect of each key", blocks)


def _table(effects: Sequence[KeyEffect]) -> Table:
    spelled = short_keys([effect.key for effect in effects])
    rows = (
        {
            "task": Cell(effect.task or cells.MISSING),
            "key": Cell(spelled[effect.key]),
            "value": Cell(_text(value)),
            "#mean return": cells.number(value.mean),
            "#chance to return more": cells.number(value.wins, "{:.2f}".format),
            "#best in combinations": cells.part(value.best_in, value.combinations),
        }
        for effect in effects
        for value in effect.values
    )
    return cells.table("effects", rows)


def _text(effect: ValueEffect) -> str:
    return cells.MISSING if effect.value is None else text(effect.value)


def _pictures(effects: Sequence[KeyEffect]) -> Iterator[Picture]:
    spelled, numbers = short_keys([effect.key for effect in effects]), count(1)
    by_task = gathered(
        (effect.task, (f"{spelled[effect.key]}={_text(value)}", value))
        for effect in effects
        for value in effect.values
    )
    small = len(by_task) > 1
    for task, lines in by_task.items():
        for lot, title in plotting.parts(lines, plotting.BARS, task):
            said = [f"{label}: {value.wins:.2f}" for label, value in lot]
            yield plotting.picture(
                f"effects-{next(numbers)}",
                title,
                _draw(lot, title, small=small),
                caption="The chance that a run with this value returns more than one with another value.",
                alt=f"Effect of each key{plotting.about(task)}, as a chance to return more. "
                f"{plotting.listed(said)}.",
                small=small,
            )


def _draw(lot: Sequence[tuple[str, ValueEffect]], title: str, *, small: bool) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(1.1 + 0.34 * len(lot), small=small)
        for row, (_, value) in enumerate(lot):
            on.hlines(row, 0.5, value.wins, color=theme.lines[0], linewidth=5, alpha=0.37)
            on.plot(value.wins, row, "o", color=theme.lines[0], markersize=6)
        on.axvline(0.5, color=theme.ink, linewidth=0.8, linestyle=":")
        plotting.heading(on, title, small=small)
        plotting.rows(on, [plotting.short(label) for label, _ in lot], 22 if small else 34)
        on.set_xlim(-0.02, 1.02)
        on.set_xlabel("chance to return more than with another value")
        return figure

    return draw

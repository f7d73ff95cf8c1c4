"""The table of groups that `collect` prints, and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.groups.generalization import generalizations
from orchestrator.analysis.groups.grouping import Final, SeedGroup, final_returns, groups
from orchestrator.analysis.groups.speeds import SpeedSummary, hardware, speeds
from orchestrator.analysis.run_table import GAP, TRAINING_LEVELS
from orchestrator.analysis.statistics.bootstrap import middle
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING

SUMMARY_COLUMNS = (
    "group",
    "n",
    "states",
    "final return (IQM)",
    "training frames/s",
    "end-to-end frames/s",
    "s/iteration",
)
LEVEL_COLUMNS = ("levels of training (IQM)", "gap (IQM)")


def summary_table(collected: Collected) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows that `collect` prints, one row per group. Intervals are in the report.

    Where evaluations play levels of training too, the return there and the gap follow the final return.
    """
    summarised = list(_summarised(collected))
    leveled = any(levels for _, levels, _ in summarised)
    rows = [
        [
            final.group.label,
            str(len(final.values)),
            final.group.states_text,
            "" if final.estimate is None else f"{final.estimate.value:.4g}",
            *(f"{levels[name]:.4g}" if levels else "" for name in _LEVELS if leveled),
            _per_hardware(own, lambda speed: middle(speed.training_fps), "{:,.0f}"),
            _per_hardware(own, lambda speed: middle(speed.end_to_end_fps), "{:,.0f}", mark=True),
            _per_hardware(own, lambda speed: speed.seconds_per_iteration, "{:.3g}"),
        ]
        for final, levels, own in summarised
    ]
    at = SUMMARY_COLUMNS.index("training frames/s")
    names = [*SUMMARY_COLUMNS[:at], *(LEVEL_COLUMNS if leveled else ()), *SUMMARY_COLUMNS[at:]]
    return [collected.in_words(name) for name in names], rows


# The figures of :data:`LEVEL_COLUMNS`.
_LEVELS = (TRAINING_LEVELS, GAP)


def _summarised(collected: Collected) -> Iterator[tuple[Final, dict[str, float], list[SpeedSummary]]]:
    """Yield each group's final returns, its figures of :data:`_LEVELS` if it has them, and its speeds."""
    seed_groups = groups(collected)
    levels = {
        id(own.group): dict(zip(_LEVELS, (own.training.estimate.value, own.gap.estimate.value), strict=True))
        for own in generalizations(seed_groups, intervals=False)
    }
    for final in final_returns(seed_groups, intervals=False):
        yield final, levels.get(id(final.group), {}), speeds([final.group])


def summary_json(collected: Collected) -> list[dict[str, Any]]:
    """Return the groups of :func:`summary_table` with numbers, their speeds by hardware."""
    return [
        {
            "group": final.group.label,
            "point": _typed(final.group, collected),
            "n": len(final.values),
            "states": dict(final.group.states),
            "final_return": final.estimate and final.estimate.value,
            **levels,
            "speeds": [
                {
                    "hardware": _hardware_json(speed),
                    TRAINING: middle(speed.training_fps),
                    END_TO_END: middle(speed.end_to_end_fps),
                    "provisional": speed.provisional,
                    "seconds_per_iteration": speed.seconds_per_iteration,
                }
                for speed in own
            ],
        }
        for final, levels, own in _summarised(collected)
    ]


def _typed(group: SeedGroup, collected: Collected) -> dict[str, Any]:
    """Return the group's keys with values as they are written in the grid."""
    written = collected.points.get((group.rows[0]["sweep"], group.rows[0]["run_id"]), {})
    return {key: written.get(key.removeprefix("grid."), value) for key, value in group.point.items()}


def _hardware_json(speed: SpeedSummary) -> dict[str, Any]:
    row = next(row for row in speed.group.counted()[0] if hardware(row) == speed.hardware)
    return {name: row[name] for name in ("gpu_model", "cpu_model", "threads")}


def _per_hardware(
    own: Sequence[SpeedSummary],
    pick: Callable[[SpeedSummary], float | None],
    layout: str,
    *,
    mark: bool = False,
) -> str:
    """Format one number per kind of hardware; ``mark`` adds an asterisk to provisional ones."""
    told = ((speed, value) for speed in own if (value := pick(speed)) is not None)
    return " / ".join(layout.format(value) + "*" * (mark and speed.provisional) for speed, value in told)

"""Sweeps side by side: their differing settings, and the same variants in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.analysis.comparability import UNRANKED, classes, differences
from orchestrator.analysis.improvement import against
from orchestrator.analysis.report.blocks import (
    MISSING,
    Cell,
    Column,
    Table,
    columns,
    middle,
    number,
    shown,
    word,
)
from orchestrator.analysis.report.tables import Row
from orchestrator.analysis.significance import FEW_SEEDS
from orchestrator.analysis.stats import Final, Group
from orchestrator.analysis.summary import SpeedSummary, hardware
from orchestrator.analysis.variant_ranking import Variant, names
from orchestrator.core.formatting import listed
from orchestrator.planning.throughput.measure import END_TO_END, NAMES, TRAINING

_T = TypeVar("_T")
_MOST_VALUES = 6


@dataclass(frozen=True)
class Settings:
    """``differing``: the table of settings that differ between sweeps; ``alike``: the others, as text."""

    differing: Table
    alike: str


def settings(by_sweep: Mapping[str, Sequence[Row]], keys: Sequence[str]) -> Settings:
    """Compare the grid keys of the sweeps, and the trainer, code and hardware of their runs."""
    told: dict[str, list[str]] = {
        "runs": [str(sum(bool(row["in_grid"]) for row in rows)) for rows in by_sweep.values()]
    }
    for name, of_row in (*((key, _picked(key)) for key in keys), *_FACTS):
        told[name] = [_values(map(of_row, rows)) for rows in by_sweep.values()]
    alike = {name: texts[0] for name, texts in told.items() if len(set(texts)) == 1 and name != "runs"}
    rows = [(Cell(name), *map(Cell, texts)) for name, texts in told.items() if name not in alike]
    said = "; ".join(f"{name}: {text}" for name, text in alike.items() if text != MISSING)
    heads = (*columns("setting"), *map(Column, by_sweep))
    return Settings(Table("settings", heads, tuple(rows), headed=True), said)


def _picked(key: str) -> Callable[[Row], Any]:
    return lambda row: row[key]


def _hardware(row: Row) -> str | None:
    return hardware(row) if row["cpu_model"] or row["gpu_model"] else None


_FACTS: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("trainer", _picked("trainer")),
    ("code", _picked("code_id")),
    ("hardware", _hardware),
)


def _values(values: Any) -> str:
    """Join the values, each once, in the order of the runs, and count those beyond the first."""
    found = list(dict.fromkeys(word(value) for value in values if value is not None))
    return listed(found, _MOST_VALUES) or MISSING


# The same variants


@dataclass(frozen=True)
class _Place:
    """One task and variant with its results in each sweep; ``fps`` by the throughput's column."""

    task: str
    label: str
    finals: Mapping[str, Final]
    fps: Mapping[str, Mapping[str, float]]


def returns_table(
    sweeps: Sequence[str], finals: Sequence[Final], measured: Sequence[SpeedSummary]
) -> Table | None:
    """Return final returns, one row per variant trained by several sweeps, each against the first sweep's."""
    return _by_sweep(
        "returns by sweep",
        sweeps,
        [(place, place.finals) for place in _places(finals, measured)],
        (_estimate, _improvement),
        ("{}, IQM [95 %]", "P({} > {}) [95 %]"),
    )


def speeds_table(
    sweeps: Sequence[str], finals: Sequence[Final], measured: Sequence[SpeedSummary], figure: str
) -> Table | None:
    """Return one throughput, one row per variant of several sweeps, each as a multiple of the first's."""
    return _by_sweep(
        f"{NAMES[figure]} by sweep",
        sweeps,
        [(place, place.fps[figure]) for place in _places(finals, measured)],
        (number, _ratio),
        ("{}, frames/s", "{} / {}"),
    )


def _by_sweep(
    name: str,
    sweeps: Sequence[str],
    known: Sequence[tuple[_Place, Mapping[str, _T]]],
    cells: tuple[Callable[[_T | None], Cell], Callable[[_T | None, _T | None], Cell]],
    heads: tuple[str, str],
) -> Table | None:
    """Return one row per place with results of several sweeps: the results, then each against the first.

    ``cells`` and ``heads`` are for the one and the other; ``None`` if there is no such place.
    """
    first, *others = sweeps
    own, against_first = cells
    rows = tuple(
        (
            *_named(place),
            *(own(values.get(sweep)) for sweep in sweeps),
            *(against_first(values.get(sweep), values.get(first)) for sweep in others),
        )
        for place, values in known
        if len(values) > 1
    )
    columns_of = (
        *columns("task", "variant"),
        *(Column(heads[0].format(sweep), numeric=True) for sweep in sweeps),
        *(Column(heads[1].format(sweep, first), numeric=True) for sweep in others),
    )
    return Table(name, columns_of, rows) if rows else None


def _places(finals: Sequence[Final], measured: Sequence[SpeedSummary]) -> list[_Place]:
    fps: dict[tuple[str, int], list[float]] = {}
    for speed in measured:
        fps.setdefault((TRAINING, id(speed.group)), []).extend(speed.training_fps)
        fps.setdefault((END_TO_END, id(speed.group)), []).extend(speed.end_to_end_fps)
    members: dict[Any, dict[str, Final]] = {}
    for final in finals:
        identity = (final.group.task, *final.group.variant.items())
        members.setdefault(identity, {})[final.group.sweep] = final
    groups: list[Group] = [next(iter(own.values())).group for own in members.values()]
    return [
        _Place(
            group.task,
            label,
            {sweep: final for sweep, final in own.items() if final.estimate is not None},
            {
                figure: {
                    sweep: fps_of
                    for sweep, final in own.items()
                    if (fps_of := middle(fps.get((figure, id(final.group)), ())))
                }
                for figure in NAMES
            },
        )
        for group, label, own in zip(
            groups, names([group.variant for group in groups]), members.values(), strict=True
        )
    ]


def _named(place: _Place) -> tuple[Cell, Cell]:
    return Cell(place.task or MISSING), Cell(place.label)


def _estimate(final: Final | None) -> Cell:
    if final is None or final.estimate is None:
        return Cell(MISSING)
    return Cell(f"{final.estimate} (n={len(final.values)})", final.estimate.value)


def _improvement(final: Final | None, first: Final | None) -> Cell:
    if final is None or first is None:
        return Cell(MISSING)
    if min(len(final.values), len(first.values)) < FEW_SEEDS:
        return Cell("too few seeds")
    if len(classes((one, one.terms) for one in (first, final))) > 1:
        told = differences([(one.group.sweep, one.terms) for one in (first, final)])
        return Cell(UNRANKED, title="; ".join(told))
    found = against(_alone(final), _alone(first), (final.group.task,))
    return Cell(str(found), found.value)


def _alone(final: Final) -> Variant:
    group = final.group
    return Variant(
        group.label, group.number, group.side, {group.task: final.values}, {group.task: final.terms}
    )


def _ratio(value: float | None, first: float | None) -> Cell:
    return Cell(MISSING) if not value or not first else Cell(f"{shown(value / first)} ×", value / first)

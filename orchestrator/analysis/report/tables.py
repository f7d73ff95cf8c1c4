"""The page's tables: groups, pairs, speeds, targets, runs, missing runs, provenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from orchestrator.analysis.collect import Missing
from orchestrator.analysis.compare import KeyComparison
from orchestrator.analysis.compare.axis import text
from orchestrator.analysis.compare.table import Shown
from orchestrator.analysis.compare.table import columns as comparison_columns
from orchestrator.analysis.compare.table import sections as comparison_rows
from orchestrator.analysis.generalization import Generalization
from orchestrator.analysis.improvement import Improvement
from orchestrator.analysis.report.blocks import (
    MISSING,
    Cell,
    Column,
    Table,
    cell,
    columns,
    estimated,
    number,
    share,
)
from orchestrator.analysis.stats import Final, Group, known, middle
from orchestrator.analysis.summary import SpeedSummary, hardware, is_provisional, machine
from orchestrator.analysis.tables import GAP, TRAINING_LEVELS
from orchestrator.analysis.variant_ranking import names
from orchestrator.core.formatting import listed
from orchestrator.core.labels import shared_keys, short_keys, varying_keys
from orchestrator.core.types import RunState
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING

Row = Mapping[str, Any]
_MOST_VALUES = 6
# The meaning of a column of the speeds.
PEAK = (
    "Of peak: training frames/s × floating-point operations of a frame, over what the run's cores could do "
    "in a product of two matrices, measured on one of them as the run began."
)


# Groups


def places(found: Sequence[Group]) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    """Return the columns that name a group: sweep and task where there are several, and its label."""
    sweeps, tasks = {group.sweep for group in found}, {group.task for group in found}
    labels = names([group.point for group in found], ("task", "sweep"))
    heads = (
        *(columns("sweep") if len(sweeps) > 1 else ()),
        *(columns("task") if len(tasks) > 1 else ()),
        *columns("group"),
    )
    return heads, [
        (
            *((Cell(group.sweep),) if len(sweeps) > 1 else ()),
            *((Cell(group.task or MISSING),) if len(tasks) > 1 else ()),
            Cell(label),
        )
        for group, label in zip(found, labels, strict=True)
    ]


def group_table(finals: Sequence[Final]) -> Table:
    """Return the table of groups: states, final returns and throughputs."""
    heads, named = places([final.group for final in finals])
    rows = []
    for final, name in zip(finals, named, strict=True):
        counted = final.group.counted()[0]
        rows.append(
            (
                *name,
                number(len(final.values)),
                Cell(final.group.states_text),
                estimated(final.estimate),
                number(middle(known(counted, TRAINING))),
                _end_to_end(known(counted, END_TO_END), is_provisional(counted)),
                Cell(final.note),
            )
        )
    told = columns("#n", "states", "#final return, IQM [95 %]", *_THROUGHPUTS, "note")
    return Table("groups", (*heads, *told), tuple(rows))


_THROUGHPUTS = ("#training frames/s", "#end-to-end frames/s")


def _end_to_end(values: Sequence[float], provisional: bool) -> Cell:
    """Return the median of these throughputs, with an asterisk if it is provisional."""
    told = number(middle(values))
    if not values or not provisional:
        return told
    return Cell(f"{told.text}*", told.sort, more=(("note", "provisional"),))


def generalization_table(found: Sequence[Generalization]) -> Table:
    """Return the table of returns on unseen levels, on those of training, and of the gaps."""
    heads, named = places([one.group for one in found])
    rows = tuple(
        (
            *name,
            number(len(one.gap.values)),
            *(estimated(sample.estimate) for sample in (one.unseen, one.training, one.gap)),
            Cell(one.note),
        )
        for one, name in zip(found, named, strict=True)
    )
    told = (f"#{name}, IQM [95 %]" for name in ("unseen levels", "levels of training", "gap"))
    return Table("generalization", (*heads, *columns("#n", *told, "note")), rows)


def improvement_table(found: Sequence[Improvement]) -> Table:
    """Return the table of pairs: the chance that one variant beats the other, and the verdict."""
    rows = [
        (
            Cell(one.tasks[0] or MISSING if len(one.tasks) == 1 else f"all {len(one.tasks)} tasks"),
            Cell(one.better.label),
            Cell(one.other.label),
            estimated(one),
            Cell(verdict_text(one), None if one.beyond_chance is None else one.chance),
            Cell(f"{one.better.n} and {one.other.n}"),
        )
        for one in found
    ]
    heads = columns("task", "X", "Y", "#P(X > Y) [95 %]", "more than luck", "runs of X and Y")
    return Table("pairs", heads, tuple(rows))


def verdict_text(one: Improvement) -> str:
    """Return whether a pair differs by more than luck, in words."""
    if one.chance is None:
        return "too few seeds"
    if one.beyond_chance is None:
        return "too few seeds for so many variants"
    return f"{'yes' if one.beyond_chance else 'no'}, p = {one.chance:.2g}"


# Speed


def speed_table(measured: Sequence[SpeedSummary]) -> Table:
    """Return the table of speeds by group and hardware."""
    measured = [speed for speed in measured if speed.end_to_end_fps]
    heads, named = places([speed.group for speed in measured])
    peaks = any(speed.peak is not None for speed in measured)
    rows = []
    for speed, name in zip(measured, named, strict=True):
        whole = speed.seconds_per_iteration
        rows.append(
            (
                *name,
                Cell(speed.hardware),
                number(len(speed.end_to_end_fps)),
                number(middle(speed.training_fps)),
                _end_to_end(speed.end_to_end_fps, speed.provisional),
                *(map(number, _spread(speed.training_fps or speed.end_to_end_fps))),
                number(whole),
                *(
                    Cell(f"{part / whole:.0%}", part / whole) if whole else Cell(MISSING)
                    for part in speed.split()
                ),
                *([share(speed.peak)] if peaks else []),
            )
        )
    times = ("#s/iteration", "#collection", "#learning", "#other")
    told = columns("hardware", "#n", *_THROUGHPUTS, "#min", "#max", *times, *(["#of peak"] if peaks else []))
    return Table("speeds", (*heads, *told), tuple(rows))


def _spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    return (min(values), max(values)) if len(values) > 1 else (None, None)


def comparison_table(found: KeyComparison) -> Table:
    """Return the table of a comparison: a row per combination and value, and per value over all of them."""
    value, *others = (name.replace("\n", " ") for name in comparison_columns(found, full=True))
    rows = tuple(
        (Cell(label), *(_compared(shown) for shown in row))
        for label, own in comparison_rows(found, full=True)
        for row in own
    )
    heads = (*columns("combination"), Column(value), *(Column(name, numeric=True) for name in others))
    return Table(f"comparisons by {found.short}", heads, rows)


def _compared(shown: Shown) -> Cell:
    return Cell(shown.text, shown.value, ends=shown.ends, more=shown.more)


# Sweeps


def settings_table(by_sweep: Mapping[str, Sequence[Row]], keys: Sequence[str]) -> tuple[Table, str]:
    """Compare the grid keys of the sweeps, and the trainer, code and hardware of their runs.

    Returns the table of settings that differ, and the others as text.
    """
    facts: dict[str, Callable[[Row], Any]] = {
        **{key: itemgetter(key) for key in keys},
        "trainer": itemgetter("trainer"),
        "code": itemgetter("code_id"),
        "hardware": lambda row: hardware(row) if machine(row) else None,
    }
    told = {
        name: [_values(map(of_row, rows)) for rows in by_sweep.values()] for name, of_row in facts.items()
    }
    alike = {name: texts[0] for name, texts in told.items() if len(set(texts)) == 1}
    runs = {"runs": [str(sum(bool(row["in_grid"]) for row in rows)) for rows in by_sweep.values()]}
    rows = [(Cell(name), *map(Cell, texts)) for name, texts in (runs | told).items() if name not in alike]
    heads = (*columns("setting"), *map(Column, by_sweep))
    said = "; ".join(f"{name}: {text}" for name, text in alike.items() if text != MISSING)
    return Table("settings", heads, tuple(rows), headed=True), said


def _values(values: Iterable[Any]) -> str:
    """Join the values, each once, in the order of the runs, and count those beyond the first."""
    found = list(dict.fromkeys(text(value) for value in values if value is not None))
    return listed(found, _MOST_VALUES) or MISSING


# Runs


def missing_table(missing: Sequence[Missing], label: Callable[[Mapping[str, Any]], str]) -> Table:
    """Return the table of runs without a usable result: state, reason, and the next command.

    ``label`` names a run's keys.
    """
    rows = []
    for item in missing:
        state = item.why.partition(":")[0]
        reason = item.why.removeprefix(state).removeprefix(": ")
        rows.append(
            (
                Cell(f"{item.run_id[:8]} {label(item.point)}".strip(), title=item.run_id),
                Cell(state, state=state),
                Cell(reason or MISSING),
                Cell(_next(state, item), source=True),
            )
        )
    return Table("missing runs", columns("run", "state", "reason", "next"), tuple(rows))


def _next(state: str, item: Missing) -> str:
    name = f"{item.sweep} {item.run_id}"
    commands = {
        "failed": f"orchestrate logs {name}\norchestrate retry {name}",
        "cancelled": f"orchestrate retry {name}",
        "stale": f"orchestrate retry {name}",
        "unknown": f"orchestrate logs {name}",
        "running": f"orchestrate logs {name} -f",
        "stalled": f"orchestrate logs {name} -f",
        "queued": f"orchestrate status {item.sweep}",
        "skipped": "orchestrate sweep --grid GRID --on TARGET",
    }
    return commands.get(state, "orchestrate sweep --grid GRID")


def runs_table(rows: Sequence[Row], keys: Sequence[str], *, several: bool) -> Table:
    """Return the table of runs; ``several`` adds a column for the sweep."""
    points = [{key: row[key] for key in keys if row[key] is not None} for row in rows]
    varying = varying_keys(points)
    if len({row["target"] for row in rows} - {None}) > 1 and "target" not in varying:
        varying = [*varying, "target"]
    short = short_keys(varying)
    numbers = [
        (name, column)
        for name, column in _RUN_NUMBERS
        if column not in _NOT_OF_ALL or any(row[column] is not None for row in rows)
    ]
    heads = (
        *columns("run", *(["sweep"] if several else [])),
        *(Column(short[key], _numbers(rows, key)) for key in varying),
        *columns("state", *(f"#{name}" for name, _ in numbers), "host", "config"),
    )
    cells = [
        (
            Cell(row["run_id"][:8], title=row["run_id"]),
            *([Cell(row["sweep"])] if several else []),
            *(cell(row[key]) for key in varying),
            Cell(_state(row), title=row["reason"] or "", state=row["state"]),
            *(number(row[column]) for _, column in numbers),
            Cell(row["hostname"] or MISSING),
            Cell((row["config_hash"] or MISSING)[:8], title=row["config_hash"] or ""),
        )
        for row in rows
    ]
    counted = Counter(row["state"] for row in rows)
    states = tuple((state.value, counted[state.value]) for state in RunState if counted[state.value])
    return Table("runs", heads, tuple(cells), states, most=len(cells))


def _numbers(rows: Sequence[Row], key: str) -> bool:
    values = [row[key] for row in rows if row[key] is not None]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _state(row: Row) -> str:
    return str(row["state"]) + ("" if row["in_grid"] else ", outside the grid")


_RUN_NUMBERS = (
    ("attempts", "attempts"),
    ("frames", "frames"),
    ("initial return", "initial_return"),
    ("final return", "final_return"),
    ("best return", "best_return"),
    ("on levels of training", TRAINING_LEVELS),
    ("gap", GAP),
    ("training frames/s", TRAINING),
    ("end-to-end frames/s", END_TO_END),
    ("s/iteration", "seconds_per_iteration"),
    ("wall time (s)", "wall_time"),
    ("train time (s)", "train_time"),
    ("peak memory (MiB)", "peak_memory_mb"),
    ("episodes", "training_episodes"),
)
# Left out of a table without values.
_NOT_OF_ALL = ("training_episodes", "initial_return", TRAINING_LEVELS, GAP)


def shared_settings(rows: Sequence[Row], keys: Sequence[str]) -> list[str]:
    """Return the grid keys with one value for all rows, in short: ``lr=0.001``."""
    shared = shared_keys([{key: row[key] for key in keys if row[key] is not None} for row in rows])
    names = short_keys(keys)
    return [f"{names[key]}={text(value)}" for key, value in shared.items()]


# Provenance


def provenance_table(by_sweep: Mapping[str, Sequence[Row]]) -> Table | None:
    """Return the table of facts: values of each sweep's finished runs, with their numbers of runs."""
    facts = {name: _facts(rows) for name, rows in by_sweep.items()}
    told = dict.fromkeys(fact for own in facts.values() for fact, values in own.items() if values)
    if not told:
        return None
    rows = tuple(
        (Cell(fact), *(Cell(_counted(own.get(fact, Counter()))) for own in facts.values())) for fact in told
    )
    heads = (*columns("fact"), *map(Column, facts)) if len(facts) > 1 else ()
    return Table("provenance", heads, rows, headed=True)


def _facts(rows: Sequence[Row]) -> dict[str, Counter[str]]:
    finished = [row for row in rows if row["state"] in (RunState.DONE.value, RunState.STALE.value)]
    facts: dict[str, Counter[str]] = {name: Counter() for name, _ in _FACTS}
    for row in finished:
        for name, column in _FACTS:
            if row[column] is not None:
                facts[name][_said(row[column])] += 1
        for package, version in json.loads(row["versions"] or "{}").items():
            facts.setdefault(package, Counter())[str(version)] += 1
    hashes = facts["configurations"]
    if len(hashes) > 1:
        facts["configurations"] = Counter({f"{len(hashes)} different ones, see the runs": len(finished)})
    return facts


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _counted(values: Counter[str]) -> str:
    """Return one value per line, with its number of runs where there are several."""
    if len(values) == 1:
        return next(iter(values))
    told = [f"{value} ({count})" for value, count in sorted(values.items())]
    more = [f"and {len(told) - _MOST_FACTS:,} more, see results.csv"] if len(told) > _MOST_FACTS else []
    return "\n".join([*told[:_MOST_FACTS], *more]) or MISSING


_MOST_FACTS = 40


_FACTS = (
    ("host", "hostname"),
    ("CPU", "cpu_model"),
    ("CPU capability", "cpu_capability"),
    ("cores", "cores"),
    ("GPU", "gpu_model"),
    ("GPU capability", "gpu_capability"),
    ("threads", "threads"),
    ("cores of a run", "run_cores"),
    ("exactness", "exactness"),
    ("trainer", "trainer"),
    ("code", "code_id"),
    ("commit", "commit"),
    ("differs from its commit", "dirty"),
    ("configurations", "config_hash"),
)

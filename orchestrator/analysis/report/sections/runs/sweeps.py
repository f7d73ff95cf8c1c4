"""Several sweeps side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column, Table, text
from orchestrator.analysis.compare import compare_by
from orchestrator.analysis.compare.wording import verdict
from orchestrator.analysis.groups.keys import SWEEP
from orchestrator.analysis.groups.speeds import hardware, machine
from orchestrator.analysis.report.blocks import Block, Section, Text
from orchestrator.analysis.report.comparison import comparison_blocks
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.run_table import RunRow
from orchestrator.core.formatting import listed


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    if len(data.by_sweep) < 2:  # runs trained without this program are in the tables too, without a folder
        return None
    table, alike = settings_table(data.by_sweep, data.collected.keys)
    blocks: list[Block] = [table]
    if alike:
        blocks.append(Text(f"The same in all: {alike}.", note=True))
    present = {row[SWEEP] for row in data.rows if row["in_grid"]}
    compared = compare_by(data.collected, SWEEP, prices=data.prices) if len(present) > 1 else None
    if compared is None or not any(combination.comparable for combination in compared.combinations):
        blocks.append(Text("No variant of a task is finished in two of these sweeps."))
    else:
        blocks += [Text(verdict(compared)), *comparison_blocks(compared)]
    return Section("sweeps", "Sweeps side by side", tuple(blocks))


_MOST_VALUES = 6


def settings_table(by_sweep: Mapping[str, Sequence[RunRow]], keys: Sequence[str]) -> tuple[Table, str]:
    """Compare the grid keys of the sweeps, and the trainer, code and hardware of their runs.

    Returns the table of settings that differ, and the others as text.
    """
    facts: dict[str, Callable[[RunRow], Any]] = {
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
    heads = (*cells.columns("setting"), *map(Column, by_sweep))
    said = "; ".join(f"{name}: {text}" for name, text in alike.items() if text != cells.MISSING)
    return Table("settings", heads, tuple(rows), headed=True), said


def _values(values: Iterable[Any]) -> str:
    """Join the values, each once, in the order of the runs, and count those beyond the first."""
    texts = list(dict.fromkeys(text(value) for value in values if value is not None))
    return listed(texts, _MOST_VALUES) or cells.MISSING

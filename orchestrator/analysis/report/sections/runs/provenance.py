"""Hosts, code and versions of finished runs, and the grids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Column, Table
from orchestrator.analysis.report.blocks import FoldedText, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.run_table import VERIFIED, RunRow
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.status.ledger import accepted_changes

# Most characters of a sweep's grid, and of all grids of a page.
_MOST_GRID = 20_000

_ALL_GRIDS = 200_000


def section(data: ReportData) -> Section:
    """Return the section."""
    told = provenance_table(data.by_sweep)
    first = Text("No run is finished.") if told is None else told
    accepted = tuple(
        Text(f"{sweep_dir.name}: {line}.")
        for sweep_dir in data.sweep_dirs
        for line in accepted_changes(sweep_dir.read_ledger(strict=False))
    )
    return Section("provenance", "Provenance", (first, *accepted, *grids(data.sweep_dirs)))


def grids(sweep_dirs: Sequence[SweepDir]) -> Iterator[FoldedText]:
    """Yield the sweeps' grids: of long ones the beginning, with the path of the whole."""
    most = min(_MOST_GRID, _ALL_GRIDS // max(1, len(sweep_dirs)))
    for sweep_dir in sweep_dirs:
        if (grid := sweep_dir.latest_grid()) is not None:
            number, whole = grid
            if len(shown := whole[:most]) < len(whole):
                shown += f"\n… {sweep_dir.latest_grid_path()} has {len(whole) - most:,} characters more"
            yield FoldedText(f"Grid of {sweep_dir.name} (as submitted, number {number})", shown)


def provenance_table(by_sweep: Mapping[str, Sequence[RunRow]]) -> Table | None:
    """Return the table of facts: values of each sweep's finished runs, with their numbers of runs."""
    facts = {name: _facts(rows) for name, rows in by_sweep.items()}
    told = dict.fromkeys(fact for own in facts.values() for fact, values in own.items() if values)
    if not told:
        return None
    rows = tuple(
        (Cell(fact), *(Cell(_counted(own.get(fact, Counter()))) for own in facts.values())) for fact in told
    )
    heads = (*cells.columns("fact"), *map(Column, facts)) if len(facts) > 1 else ()
    return Table("provenance", heads, rows, headed=True)


def _facts(rows: Sequence[RunRow]) -> dict[str, Counter[str]]:
    finished = [row for row in rows if row["state"] in (RunState.DONE.value, RunState.STALE.value)]
    facts: dict[str, Counter[str]] = {name: Counter() for name, _ in _FACTS}
    for row in finished:
        for name, column in _FACTS:
            if row[column] is not None:
                facts[name][_said(row[column])] += 1
        for package, version in json.loads(row["versions"] or "{}").items():
            facts.setdefault(package, Counter())[str(version)] += 1
    if any(row[VERIFIED] for row in finished):
        facts["verified"] = Counter(row[VERIFIED] or "not verified" for row in finished)
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
    return "\n".join([*told[:_MOST_FACTS], *more]) or cells.MISSING


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
    ("adopted from", "adopted_from"),
    ("commit", "commit"),
    ("differs from its commit", "dirty"),
    ("configurations", "config_hash"),
)

"""Groups: states, final returns and throughputs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.grouping import Final
from orchestrator.analysis.groups.speeds import is_provisional
from orchestrator.analysis.report.blocks import Block, Section, Text
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.group_cells import places, provisional_note, throughputs
from orchestrator.analysis.run_table import known
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING


def group_table(finals: Sequence[Final]) -> Table:
    """Return the table of groups: states, final returns and throughputs."""
    rows = []
    for final, name in zip(finals, places([final.group for final in finals]), strict=True):
        counted = final.group.counted()[0]
        speeds = known(counted, TRAINING), known(counted, END_TO_END)
        told = {
            "#n": cells.number(len(final.values)),
            "states": Cell(final.group.states_text),
            "#final return, IQM [95 %]": cells.estimated(final.estimate),
            **throughputs(*speeds, is_provisional(counted)),
            "note": Cell(final.note),
        }
        rows.append(name | told)
    return cells.table("groups", rows)


def section(data: ReportData) -> Section:
    """Return the section."""
    blocks: tuple[Block, ...] = (Text("The sweep has no runs."),)
    if data.groups:
        table = group_table(data.finals)
        blocks = (table, Text(_GROUPS, note=True), *provisional_note(data))
    return Section("groups", "Groups", blocks)


_GROUPS = (
    "A group is all runs that differ only in their seed; n counts the seeds with a finite final return. "
    "Returns are raw. IQM: interquartile mean over seeds (up to three seeds, their mean), with a 95 % "
    "interval by bootstrap over seeds, from four seeds on. frames/s: medians over runs; training: "
    "collecting and learning; end-to-end: wall time, with evaluations and checkpoints."
)

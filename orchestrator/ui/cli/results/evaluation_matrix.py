"""Matrices of evaluations as tables of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from orchestrator.analysis.evaluations.matrix import Matrix, MatrixRow
    from orchestrator.analysis.statistics.bootstrap import Estimate

_HEAD, _LEAST_ROOM = 14, 20


def print_matrices(matrices: Sequence[Matrix]) -> None:
    """Print each matrix, in several tables without intervals where the terminal is too narrow for one."""
    from orchestrator.analysis.evaluations.matrix import shown
    from orchestrator.ui.terminal.screen import console, say

    if matrices:
        say(f"trained on (rows) × tested on (columns): {matrices[0].setting}")
    for matrix in shown(matrices):
        tables = list(_fitting(matrix, console().width, intervals=True))
        intervals = len(tables) == 1
        for columns in tables if intervals else _fitting(matrix, console().width, intervals=False):
            _print_table(matrix, columns, intervals=intervals)


def _print_table(matrix: Matrix, columns: Sequence[int], *, intervals: bool) -> None:
    from rich.text import Text

    from orchestrator.ui.terminal.screen import console, table

    rows = table(matrix.metric, right=[_broken(matrix.columns[column]) for column in columns])
    for number, row in enumerate(matrix.rows):
        before = matrix.rows[number - 1] if number else row
        if row.scripted and not before.scripted:
            rows.add_row()
        label = Text(row.label, style="italic" if row.scripted else "")
        rows.add_row(label, *(_cell(row, column, intervals=intervals) for column in columns))
    console().print(rows)
    console().print()


def _cell(row: MatrixRow, column: int, *, intervals: bool) -> Text:
    from rich.text import Text

    from orchestrator.core.formatting import number

    cell = row.cells[column]
    if cell is None:
        return Text("–", style="dim")
    text = Text(number(cell.value), style="bold" if column in row.trained else "")
    if cell.low is None or not intervals:
        return text
    return text.append(f"\n{_interval(cell)}", style="not bold dim")


def _interval(cell: Estimate) -> str:
    from orchestrator.core.formatting import number

    return f"{number(cell.low)} … {number(cell.high)}"


def _fitting(matrix: Matrix, width: int, *, intervals: bool) -> Iterator[list[int]]:
    """Yield the columns of each table."""
    labels = max((len(row.label) for row in matrix.rows), default=0)
    room = width - min(max(labels, len(matrix.metric)), max(_LEAST_ROOM, width // 3)) - 2
    columns: list[int] = []
    left = room
    for column, name in enumerate(matrix.columns):
        wide = 2 + max(map(len, _broken(name).splitlines()))
        wide = max([wide, *(2 + _wide(row, column, intervals=intervals) for row in matrix.rows)])
        if columns and wide > left:
            yield columns
            columns, left = [], room
        columns.append(column)
        left -= wide
    if columns:
        yield columns


def _wide(row: MatrixRow, column: int, *, intervals: bool) -> int:
    return max(map(len, _cell(row, column, intervals=intervals).plain.splitlines()))


def _broken(name: str) -> str:
    """Break a long name after its spaces and underscores."""
    lines = [""]
    for part in re.findall(r"[^_ ]*[_ ]?", name):
        if lines[-1] and len(lines[-1]) + len(part) > _HEAD:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)

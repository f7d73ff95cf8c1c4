"""Tables of the report as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math

from orchestrator.analysis.report.blocks import Cell, Table, columns, estimated
from orchestrator.analysis.report.export import as_csv, as_latex
from orchestrator.analysis.stats import Estimate


def rows_of(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(as_csv(table))))


def test_an_interval_has_columns_of_its_own_with_all_digits() -> None:
    third = 1 / 3
    rows = (
        (Cell("a"), estimated(Estimate(third, third - 1, third + 1, 5))),
        (Cell("b"), estimated(Estimate(2.0, None, None, 3))),
        (Cell("c"), Cell("> 20k", math.inf, ends=(7.0, math.inf))),
        (Cell("d"), estimated(None)),
    )
    heads, *told = rows_of(Table("t", columns("group", "#return, IQM [95 %]"), rows))
    assert heads == ["group", "return, IQM", "return, IQM_low", "return, IQM_high"]
    assert told == [
        ["a", repr(third), repr(third - 1), repr(third + 1)],
        ["b", "2.0", "", ""],
        ["c", "Infinity", "7.0", "Infinity"],
        ["d", "", "", ""],
    ]


def test_a_text_that_a_spreadsheet_would_run_is_escaped_and_numbers_are_not() -> None:
    texts = ("-1+cmd|' /C calc'!A0", "\t=1", "=1", "-3", "+x", "'=1")
    told = rows_of(Table("t", columns(*"abcdef"), (tuple(map(Cell, texts)),)))[1]
    assert told == ["'-1+cmd|' /C calc'!A0", "'\t=1", "'=1", "-3", "'+x", "''=1"]


def test_latex_has_the_letters_of_the_page() -> None:
    rows = ((Cell("[1, 2]"), Cell("> 180k", math.inf)), (Cell("*"), Cell("a|b < c")))
    lines = as_latex(Table("t", columns("P(X > Y)", "#frames"), rows)).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[2] == r"P(X \textgreater{} Y) & frames \\"
    assert lines[4:6] == [r"{}[1, 2] & \textgreater{} 180k \\", r"{}* & a\textbar{}b \textless{} c \\"]


def test_a_file_has_the_rows_that_the_page_leaves_out() -> None:
    table = Table("t", columns("#n"), tuple((Cell(str(at), at),) for at in range(5)), most=2)
    assert [row[0].text for row in table.shown] == ["0", "1"]
    assert len(rows_of(table)) == 6

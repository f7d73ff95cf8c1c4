"""Tables of the report as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math

from orchestrator.analysis.cells import Cell, Table, columns, estimated
from orchestrator.analysis.report.export import as_csv, as_latex
from orchestrator.analysis.statistics.bootstrap import Estimate


def rows_of(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(as_csv(table))))


def test_an_interval_has_columns_of_its_own_with_all_digits() -> None:
    third = 1 / 3
    rows = (
        (Cell("a"), estimated(Estimate(third, third - 1, third + 1, 5))),
        (Cell("b"), estimated(Estimate(2.0, None, None, 3))),
        (Cell("d"), estimated(None)),
    )
    heads, *told = rows_of(Table("t", columns("group", "#return, IQM [95 %]"), rows))
    assert heads == ["group", "return, IQM", "return, IQM_low", "return, IQM_high"]
    assert told == [
        ["a", repr(third), repr(third - 1), repr(third + 1)],
        ["b", "2.0", "", ""],
        ["d", "", "", ""],
    ]


def test_what_is_more_than_a_bound_has_the_bound_and_a_sign() -> None:
    rows = (
        (Cell("7:00 [5:00, > 20:00]", 420.0, ends=(300.0, math.inf), bound=1200.0),),
        (Cell("> 15:00", math.inf, ends=(840.0, math.inf), bound=900.0),),
        (Cell("6:00 [5:00, 7:00]", 360.0, ends=(300.0, 420.0), bound=math.inf),),
    )
    heads, *told = rows_of(Table("t", columns("~time [95 %]"), rows))
    assert heads == ["time (s)", "time (s)_sign", "time (s)_low", "time (s)_high", "time (s)_high_sign"]
    assert told == [
        ["420.0", "", "300.0", "1200.0", ">"],
        ["900.0", ">", "840.0", "900.0", ">"],
        ["360.0", "", "300.0", "420.0", ""],
    ]


def test_a_number_is_a_number_whatever_the_page_writes_for_it() -> None:
    rows = (
        (
            Cell("$1,234.50", 1234.5),
            Cell("2 of 5", 2, more=(("of", 5),)),
            Cell("12%", 0.12),
            Cell("1.2k", 1234),
        ),
        (Cell("too few seeds"), Cell("–"), Cell("–"), Cell("1,234*", 1234, more=(("note", "provisional"),))),
    )
    heads, *told = rows_of(Table("t", columns("#dollars", "#reached", "#share", "#frames"), rows))
    assert heads == ["dollars", "reached", "reached_of", "share", "frames", "frames_note"]
    assert told == [
        ["1234.5", "2", "5", "0.12", "1234", ""],
        ["too few seeds", "", "", "", "1234", "provisional"],
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

"""CSV cells: text for a spreadsheet, the same value for a reader."""

from __future__ import annotations

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.csv_export import cell, cells
from tests.helpers import from_cell

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "'=1", "--lr"]
PLAIN = ["-0.5", "+3", "-1e-3", "-inf", "mappo", "", "'quoted'", "a=b", "1,-2", ".5"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", PLAIN)
def test_numbers_and_other_text_stay(text: str) -> None:
    assert cell(text) == text


@pytest.mark.parametrize("value", [-1, -0.5, None, True])
def test_what_is_no_text_stays(value: object) -> None:
    assert cell(value) is value


@given(st.text(alphabet="=+-@'\t\ra1.", max_size=6))
def test_a_reader_gets_what_was_written(text: str) -> None:
    assert from_cell(str(cell(text))) == text


@given(st.lists(st.text(alphabet="=+-@'\ta1.,\"", max_size=6), min_size=1, max_size=5))
def test_a_table_says_what_a_cell_says(values: list[str]) -> None:
    table = pl.DataFrame(
        {"+task.x": [*values, None], "n": range(-1, len(values)), "@a": ["b"] * (len(values) + 1)}
    )
    made = cells(table)
    assert made.columns == ["'+task.x", "n", "'@a"]
    assert made["'+task.x"].to_list() == [*map(cell, values), None]
    assert made["n"].to_list() == table["n"].to_list()
    rows = list(csv.reader(io.StringIO(made.write_csv())))[1:]
    assert [from_cell(row[0]) for row in rows] == [*values, ""]

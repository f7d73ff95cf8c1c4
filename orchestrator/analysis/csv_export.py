"""Escape table cells so that a spreadsheet shows them as text and computes nothing.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, and ``=HYPERLINK(…)``
as a grid's value could send data away. A leading apostrophe makes it text; numbers stay numbers.
"""

from __future__ import annotations

import re

import polars as pl

# Leading apostrophes are escaped too, so that the text before can be had back.
_FORMULA = r"^'*[=+\-@\t\r]"
_NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)$"


def cell(value: object) -> object:
    """Escape a value for a CSV cell."""
    if isinstance(value, str) and re.search(_FORMULA, value) and not re.search(_NUMBER, value):
        return f"'{value}"
    return value


def cells(table: pl.DataFrame) -> pl.DataFrame:
    """Escape every text cell and column name of a table."""
    columns = []
    for column in table.get_columns():
        if column.dtype == pl.String:
            formula = column.str.contains(_FORMULA) & ~column.str.contains(_NUMBER)
            if formula.any():
                column = column.zip_with(~formula.fill_null(False), "'" + column)
        columns.append(column.alias(str(cell(column.name))))
    return pl.DataFrame(columns)

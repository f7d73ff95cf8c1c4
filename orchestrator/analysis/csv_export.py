"""Tables as CSV that a spreadsheet shows and does not compute.

A cell that begins with ``=``, ``+``, ``-`` or ``@`` is a formula to it, and ``=HYPERLINK(…)`` in a grid's
value would be one that sends data away. An apostrophe before it makes it text; numbers stay numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# Apostrophes before it count too, so that :func:`from_cell` knows which one was added.
_FORMULA = r"^'*[=+\-@\t\r]"
_NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)$"


def cell(value: object) -> object:
    """A value as it goes into a cell."""
    if isinstance(value, str) and re.search(_FORMULA, value) and not re.search(_NUMBER, value):
        return f"'{value}"
    return value


def from_cell(text: str) -> str:
    """The text that :func:`cell` made this of."""
    return text[1:] if text.startswith("'") and re.search(_FORMULA, text[1:]) else text


def cells(table: pl.DataFrame) -> pl.DataFrame:
    """The table as :func:`cell` has it, names of columns too."""
    import polars as pl

    columns = []
    for column in table.get_columns():
        if column.dtype == pl.String:
            formula = column.str.contains(_FORMULA) & ~column.str.contains(_NUMBER)
            if formula.any():
                column = column.zip_with(~formula.fill_null(False), "'" + column)
        columns.append(column.alias(str(cell(column.name))))
    return pl.DataFrame(columns)

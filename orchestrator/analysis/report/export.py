"""Tables of the page as files: CSV for programs, LaTeX for papers.

The page's script ``download.js`` writes the same of what the page shows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

from orchestrator.analysis import csv_export
from orchestrator.analysis.report.blocks import (
    MISSING,
    Block,
    Cell,
    Column,
    Folded,
    Section,
    Table,
    number_text,
)

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def table_stems(sections: Iterable[Section]) -> dict[int, str]:
    """Return the stem of each table's files, by the table's identity; equal names are numbered."""
    stems: dict[int, str] = {}
    for table in (table for section in sections for table in _tables(section.blocks)):
        stem = stem_of(table.name)
        number = sum(re.fullmatch(rf"{stem}(-\d+)?", other) is not None for other in stems.values())
        stems[id(table)] = f"{stem}-{number + 1}" if number else stem
    return stems


def table_files(sections: Iterable[Section]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every table's files."""
    found = list(sections)
    stems = table_stems(found)
    for table in (table for section in found for table in _tables(section.blocks)):
        yield f"{stems[id(table)]}.csv", as_csv(table).encode()
        yield f"{stems[id(table)]}.tex", as_latex(table).encode()


def stem_of(name: str) -> str:
    """Return the beginning of a table's file names."""
    return "table-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "of")


def as_csv(table: Table) -> str:
    """Return a table as CSV; numbers keep all digits, and intervals have columns of their own."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    spans = [any(cell.ends for cell in cells) for cells in zip(*table.rows, strict=True)]
    spans = spans or [False] * len(table.columns)
    if table.columns:
        named = zip(table.columns, spans, strict=True)
        writer.writerow([name for column, span in named for name in _names(column, span)])
    numeric = [column.numeric for column in table.columns] or [False] * len(spans)
    for row in table.rows:
        cells = zip(row, numeric, spans, strict=True)
        writer.writerow([text for cell, number, span in cells for text in _texts(cell, number, span)])
    return file.getvalue()


def _names(column: Column, span: bool) -> list[str]:
    name = str(csv_export.cell(column.name.removesuffix(" [95 %]") if span else column.name))
    return [name, f"{name}_low", f"{name}_high"] if span else [name]


def _texts(cell: Cell, numeric: bool, span: bool) -> list[str]:
    """Return the cell's columns: a number with all digits where the text is no more than that number."""
    if span:
        ends = cell.ends or (None, None)
        return ["" if cell.text == MISSING else cell.key or cell.text, *map(number_text, ends)]
    if cell.sort is not None and _is_number(cell.text):
        return [cell.key]
    return ["" if numeric and cell.text == MISSING else str(csv_export.cell(cell.text))]


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def as_latex(table: Table) -> str:
    """Return a table as LaTeX for the package booktabs."""
    width = len(table.columns) or max((len(row) for row in table.rows), default=1)
    numeric = [at < len(table.columns) and table.columns[at].numeric for at in range(width)]
    head = [_row(column.name for column in table.columns), r"\midrule"] if table.columns else []
    body = (_row(cell.text for cell in row) for row in table.rows)
    begin = f"\\begin{{tabular}}{{{''.join('r' if one else 'l' for one in numeric)}}}"
    return "\n".join((begin, r"\toprule", *head, *body, r"\bottomrule", r"\end{tabular}", ""))


def _row(texts: Iterable[str]) -> str:
    told = " & ".join(
        "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split())) for text in texts
    )
    # After the end of a row, \\, an asterisk or a bracket would belong to that command.
    return ("{}" if told.startswith(("[", "*")) else "") + told + r" \\"


def _tables(blocks: Iterable[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Folded):
            yield from _tables(block.blocks)

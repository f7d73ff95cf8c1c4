"""Tables of the page as files: CSV for programs, LaTeX for papers.

The page's script ``download.js`` writes the same of what the page shows.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.analysis import cells, csv_export
from orchestrator.analysis.cells import Cell, Column, Table
from orchestrator.analysis.report.blocks import Section

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
    for table in (table for section in sections for table in section.tables):
        stem = stem_of(table.name)
        number = sum(re.fullmatch(rf"{stem}(-\d+)?", other) is not None for other in stems.values())
        stems[id(table)] = f"{stem}-{number + 1}" if number else stem
    return stems


def table_files(sections: Iterable[Section]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every table's files."""
    kept = list(sections)
    stems = table_stems(kept)
    for table in (table for section in kept for table in section.tables):
        yield f"{stems[id(table)]}.csv", as_csv(table).encode()
        yield f"{stems[id(table)]}.tex", as_latex(table).encode()


def stem_of(name: str) -> str:
    """Return the beginning of a table's file names."""
    return "table-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "of")


def as_csv(table: Table) -> str:
    """Return a table as CSV; numbers keep all digits, and what else a cell says has columns of its own.

    A column ``time`` of intervals is followed by ``time_low`` and ``time_high``. Where a number is no more
    than a bound, ``time_sign`` has ``>``.
    """
    width = len(table.columns) or max(map(len, table.rows), default=0)
    heads = table.columns or (Column(""),) * width
    rows = [[_facts(cell, head.numeric) for cell, head in zip(row, heads, strict=True)] for row in table.rows]
    suffixes = [_suffixes(row[at] for row in rows) for at in range(width)]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if table.columns:
        named = zip(table.columns, suffixes, strict=True)
        writer.writerow([name for column, own in named for name in _names(column, own)])
    for row in rows:
        pairs = zip(row, suffixes, strict=True)
        writer.writerow([facts.get(suffix, "") for facts, own in pairs for suffix in own])
    return file.getvalue()


# Of the columns that a column with intervals and bounds becomes.
_ORDER = ("", "sign", "low", "low_sign", "high", "high_sign")


def _suffixes(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return what the columns end with that these cells need."""
    used = dict.fromkeys(suffix for facts in rows for suffix in facts) | {"": None}
    return [*(name for name in _ORDER if name in used), *(name for name in used if name not in _ORDER)]


def _names(column: Column, suffixes: Sequence[str]) -> list[str]:
    name = _SPAN.sub("", column.name) if "low" in suffixes else column.name
    name = str(csv_export.cell(f"{name} ({column.unit})" if column.unit else name))
    return [f"{name}_{suffix}" if suffix else name for suffix in suffixes]


_SPAN = re.compile(r" \[\d+ %\]$")


def _facts(cell: Cell, numeric: bool) -> dict[str, str]:
    """Return what the cell says by suffix; in a column of numbers its number, with all digits."""
    known = cell.sort is not None and (numeric or _is_number(cell.text))
    missing = cell.text == cells.MISSING
    facts = {"": cell.key if known else "" if missing else str(csv_export.cell(cell.text))}
    if cell.ends is not None:
        facts |= {"low": cells.number_text(cell.ends[0]), "high": cells.number_text(cell.ends[1])}
    if cell.bound is not None and not math.isinf(cell.bound):
        for suffix in [name for name, text in facts.items() if text == cells.number_text(math.inf)]:
            facts[suffix] = cells.number_text(cell.bound)
            facts[f"{suffix}_sign".lstrip("_")] = ">"
    return facts | {name: one if isinstance(one, str) else cells.number_text(one) for name, one in cell.more}


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
    begin = f"\\begin{{tabular}}{{{''.join('r' if is_number else 'l' for is_number in numeric)}}}"
    return "\n".join((begin, r"\toprule", *head, *body, r"\bottomrule", r"\end{tabular}", ""))


def _row(texts: Iterable[str]) -> str:
    told = " & ".join(map(latex_text, texts))
    # After the end of a row, \\, an asterisk or a bracket would belong to that command.
    return ("{}" if told.startswith(("[", "*")) else "") + told + r" \\"


def latex_text(text: str) -> str:
    """Return a text with what is special in LaTeX escaped, on one line."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))

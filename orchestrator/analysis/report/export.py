"""Tables of the page as files: CSV for programs, LaTeX for papers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

from orchestrator.analysis.report.blocks import Block, Cell, Folded, Section, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
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
    """Return a table as CSV; numbers keep all digits."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if table.columns:
        writer.writerow([column.name for column in table.columns])
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return file.getvalue()


def _plain(cell: Cell) -> str:
    """Return a number with all digits where the text is no more than that number."""
    if cell.sort is not None and _is_number(cell.text):
        return cell.key
    # A spreadsheet would run a text that begins so.
    return f"'{cell.text}" if cell.text[:1] in ("=", "+", "@") else cell.text


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
    return (
        " & ".join("".join(_SPECIAL.get(letter, letter) for letter in " ".join(t.split())) for t in texts)
        + r" \\"
    )


def _tables(blocks: Iterable[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Folded):
            yield from _tables(block.blocks)

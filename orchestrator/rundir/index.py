"""The sweep's index file ``index.tsv``: each run with its id, its place in the grid and its point."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Run
from orchestrator.rundir.files.atomic import parse_exactly, write_atomic
from orchestrator.rundir.files.plain_files import Version, current_version, read_text

RUN_ID = re.compile(r"[0-9a-f]{16}")
SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
COPIED_INDEX_HINT = "sync again once it is repaired at its source"
_HEADER = "run_id\tin_grid\tpoint"


class IndexRow(NamedTuple):
    """A run in `index.tsv`. ``in_grid``: part of the latest grid."""

    run_id: str
    in_grid: bool
    point: dict[str, Any]


def index_text(rows: Iterable[IndexRow]) -> str:
    """Return the content of the index file; keys stay in the grid's order, in which tables show them."""
    lines = [f"{_HEADER}\n"]
    lines += [
        f"{row.run_id}\t{int(row.in_grid)}\t{json.dumps(row.point, ensure_ascii=False)}\n" for row in rows
    ]
    return "".join(lines)


class IndexFile:
    """A sweep's index file, parsed again only once it has changed.

    ``describe``: returns a run's description. Raises ``OSError`` and :class:`DamagedFileError`.
    """

    def __init__(self, path: Path, describe: Callable[[str], Run]) -> None:
        self._path, self._describe = path, describe
        self._known: tuple[Version, list[IndexRow]] | None = None

    def write(self, rows: Sequence[IndexRow]) -> None:
        """Replace the index."""
        write_atomic(self._path, index_text(rows).encode())

    def read(self, hint: str) -> list[IndexRow]:
        """Read the index; empty before the first. Raises :class:`DamagedFileError` with this hint."""
        try:
            version = current_version(self._path)
            if self._known is None or self._known[0] != version:
                text = read_text(self._path, hint, errors="surrogateescape")
                self._known = version, parse_index(self._path, text, hint, self._point)
        except FileNotFoundError:
            return []
        return self._known[1]

    def _point(self, run_id: str) -> dict[str, Any] | None:
        """Return the values by key of a run by its description; None without a readable one."""
        try:
            return self._describe(run_id).point
        except (DamagedFileError, OSError):
            return None


def parse_index(
    path: Path, text: str, hint: str, described: Callable[[str], dict[str, Any] | None]
) -> list[IndexRow]:
    """Parse the ``text`` of the index file ``path``. Raises :class:`DamagedFileError`.

    A damaged line counts as long as its run is named and ``described`` finds the point of its description.
    """
    header, *lines = text.split("\n")
    if header != _HEADER:
        raise DamagedFileError(path, f"begins with {header[:40]!r}, expected {_HEADER!r}", hint=hint)
    rows = []
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        try:
            rows.append(_row(line))
        except ValueError as error:
            run_id, _, rest = line.partition("\t")
            point = described(run_id) if RUN_ID.fullmatch(run_id) else None
            if point is not None:
                rows.append(IndexRow(run_id, not rest.startswith("0"), point))
                continue
            raise DamagedFileError(path, f"line {number} is not a run ({error})", hint=hint) from error
    return rows


def index_rows(index: Path) -> list[IndexRow]:
    """Read the index file of a source; empty if there is none. Raises :class:`DamagedFileError`."""
    try:
        text = read_text(index, COPIED_INDEX_HINT, errors="surrogateescape")
    except FileNotFoundError:
        return []
    return parse_index(index, text, COPIED_INDEX_HINT, lambda _: None)


def _row(line: str) -> IndexRow:
    """Parse a line. Raises ``ValueError``."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise ValueError("is not text") from None
    run_id, in_grid, text = line.split("\t", 2)
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"found {run_id[:40]!r}, expected the id of a run")
    point = parse_exactly(text)
    if not isinstance(point, dict):
        raise ValueError(f"found {text[:40]!r}, expected values by key")
    return IndexRow(run_id, in_grid == "1", point)


def results_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that hold sweeps among a project's files, each with a final slash.

    A sweep has an index and a ledger.
    """
    tops: dict[str, set[str]] = {}
    for name in names:
        for mark in ("index.tsv", "ledger"):
            top, found, rest = name.rpartition(f"/{mark}")
            if found and (rest.startswith("/") if mark == "ledger" else not rest):
                tops.setdefault(f"{top}/", set()).add(mark)
    return tuple(sorted(top for top, marks in tops.items() if len(marks) > 1))

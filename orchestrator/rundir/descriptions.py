"""Descriptions of runs without a folder: one file for each submission.

::

    results/<sweep>/descriptions/0001.tsv    a line for each run: its id and the content of its run.json

The first claim of a run makes its folder and stores the description there, for good. So a sweep
of thousands of runs needs a handful of files until it trains. Files are numbered and never changed. Where two
describe the same run, the newer counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Run
from orchestrator.rundir.files.atomic import dump_json, parse_exactly, storage_errors, write_exclusive
from orchestrator.rundir.files.kinds import MALFORMED
from orchestrator.rundir.files.plain_files import Version, read_plain, version_of

FOLDER = "descriptions"
_SUFFIX = ".tsv"
_HINT = "run `orchestrate sweep` with the grid again: it describes the run anew"


class Descriptions:
    """Run descriptions in the folder ``sweep``."""

    def __init__(self, sweep: Path) -> None:
        self._folder = sweep / FOLDER
        self._read: dict[str, tuple[Version, dict[str, bytes]]] = {}

    def add(self, runs: Sequence[Run]) -> None:
        """Describe runs in a new file, durably."""
        if not runs:
            return
        data = b"".join(run.run_id.encode() + b"\t" + dump_json(plain(run)) for run in runs)
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            newest = int(Path(self._names()[0]).stem) if self._names() else 0
            if write_exclusive(self._folder / f"{newest + 1:04d}{_SUFFIX}", data):
                return

    def find(self, run_id: str) -> Run | None:
        """Return the newest description of a run; None if there is none. Raises :class:`DamagedFileError`."""
        for name in self._names():
            line = self._lines(name).get(run_id)
            if line is not None:
                return self._parsed(name, run_id, line)
        return None

    def has(self, run: Run) -> bool:
        """Return whether this is the newest description of the run."""
        try:
            found = self.find(run.run_id)
            return found is not None and dump_json(plain(found)) == dump_json(plain(run))
        except DamagedFileError:
            return False

    def run_ids(self) -> Iterable[str]:
        """Return the ids of all described runs; damaged files are skipped."""
        found: set[str] = set()
        for name in self._names():
            try:
                found.update(self._lines(name))
            except DamagedFileError:
                continue
        return found

    def _parsed(self, name: str, run_id: str, line: bytes) -> Run:
        path = self._folder / name
        try:
            run = parse(Run, parse_exactly(line))
        except MALFORMED as error:
            problem = f"the line of run {run_id} is not a description ({error})"
            raise DamagedFileError(path, problem, hint=_HINT) from error
        if run.run_id != run_id:
            raise DamagedFileError(path, f"the line of run {run_id} describes another run", hint=_HINT)
        return run

    def _names(self) -> list[str]:
        """List the files, newest first."""
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        numbered = [name for name in names if name.endswith(_SUFFIX) and Path(name).stem.isdecimal()]
        return sorted(numbered, key=lambda name: (int(Path(name).stem), name), reverse=True)

    def _lines(self, name: str) -> dict[str, bytes]:
        """Return a file's lines by run id, read again only after a change."""
        path = self._folder / name
        try:
            about = os.stat(path)
        except FileNotFoundError:
            raise DamagedFileError(path, "is a link that leads nowhere", hint=_HINT) from None
        version = version_of(about)
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = version, _by_run(path)
        return known[1]


def _by_run(path: Path) -> dict[str, bytes]:
    try:
        lines = read_plain(path).split(b"\n")
    except DamagedFileError as error:
        error.hint = _HINT
        raise
    fields = (line.partition(b"\t") for line in lines)
    return {run_id.decode(errors="replace"): rest for run_id, _, rest in fields if rest}

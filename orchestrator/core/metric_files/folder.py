"""The metrics that a program leaves in its working folder, read while it runs and at its end."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.core.metric_files.binary import EventFile, WandbFile
from orchestrator.core.metric_files.names import (
    CSV,
    FORMATS,
    JSONL,
    MONITOR,
    TENSORBOARD,
    WANDB,
    FoundRow,
    Names,
    RowMaker,
    format_of,
)
from orchestrator.core.metric_files.points import GrowingFile, Parser, Point
from orchestrator.core.metric_files.tables import CsvFile, JsonLines

_PARSERS: Mapping[str, Callable[[], Parser]] = {
    TENSORBOARD: EventFile,
    WANDB: WandbFile,
    JSONL: JsonLines,
    CSV: CsvFile,
    MONITOR: CsvFile,
}
_NEVER = {"__pycache__", "node_modules", "site-packages"}
_DEEPEST, _MOST_FILES, _MOST_SOURCES = 8, 20_000, 50


def metric_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return files that may hold metrics, relative to the folder, with size and time. Links are left out."""
    found: dict[Path, tuple[int, int]] = {}
    seen = 0
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _NEVER and len(here.parts) < _DEEPEST
        ]
        seen += len(files) + len(folders)
        for name in files:
            path = folder / here / name
            if format_of(here / name) and not path.is_symlink():
                try:
                    stat = path.stat()
                except OSError:
                    continue
                found[here / name] = stat.st_size, stat.st_mtime_ns
        if seen > _MOST_FILES:
            break
    return found


@dataclass(frozen=True, order=True)
class _Place:
    """A source of metrics: a file, or files that belong together."""

    file_format: str
    name: str


class MetricFolder:
    """The metrics in a working folder, of the files that its program wrote.

    ``declared``: the section `metrics` of a grid. ``before``: what stood in the folder when the program was
    started. ``behind``: there is more to read.
    """

    def __init__(
        self, folder: Path, declared: Mapping[str, str], before: Mapping[Path, tuple[int, int]] | None = None
    ) -> None:
        self._folder, self._declared = folder, declared
        self._before = dict(metric_files(folder) if before is None else before)
        self._reading: _Source | None = None
        self.behind = False

    def program_started(self, since: float) -> None:
        """Take files that are older than ``since``, in epoch seconds, for those that stood there before."""
        stamps = metric_files(self._folder)
        self._before = {path: stamp for path, stamp in stamps.items() if stamp[1] < since * 1e9}

    def rows(self) -> list[FoundRow]:
        """Return new rows, of the best source that there was when the first one was found."""
        if self._reading is None:
            self._reading = self._best()
        return self._read(ended=False)

    def ended(self) -> bool:
        """Choose again after the program's end; return whether other rows take the place of those so far."""
        best = self._best()
        if best is None or (self._reading and self._reading.same(best)):
            return False
        anew, self._reading = self._reading is not None, best
        return anew

    def last_rows(self) -> list[FoundRow]:
        """Return new rows of a program that has ended, in which the last line of a file is whole."""
        return self._read(ended=True)

    def looked_for(self) -> str:
        """Say what was looked for, and what was found instead."""
        seen = [place.name for place in self._places()]
        wanted = self._declared.get("from") or "TensorBoard, W&B, JSON lines, CSV, Monitor"
        said = f"looked for {wanted} in the run's working folder"
        return f"{said}; without frames or values: {', '.join(seen[:5])}" if seen else said

    def _read(self, *, ended: bool) -> list[FoundRow]:
        if self._reading is None:
            return []
        found: list[FoundRow] = []
        self.behind = True
        while self.behind and not found:  # the part of earlier attempts gives none by itself
            found = self._reading.rows(ended=ended)
            self.behind = self._reading.behind
        return found

    def _best(self) -> _Source | None:
        """Return the best source that has rows: by format, a return among its names, and its length."""
        found = []
        for place, files in list(self._places().items())[:_MOST_SOURCES]:
            source = self._source(place, files)
            names, number = source.probe()
            if number:
                known = Names.of(names, place.file_format, self._declared)
                has_return = bool(known.training or known.evaluation)
                found.append((FORMATS.index(place.file_format), not has_return, -number, place, files, known))
        if not found:
            return None
        *_, place, files, known = min(found, key=lambda one: one[:4])
        return self._source(place, files, known)

    def _source(self, place: _Place, files: Mapping[Path, int], names: Names | None = None) -> _Source:
        parser = _PARSERS[place.file_format]
        opened = [GrowingFile(self._folder / path, parser, start) for path, start in files.items()]
        return _Source(place, opened, names, self._declared)

    def _places(self) -> dict[_Place, dict[Path, int]]:
        """Return sources that the program wrote, best format first, each file with its size before."""
        now = metric_files(self._folder)
        found: dict[_Place, dict[Path, int]] = {}
        for path in sorted(now, key=lambda path: (now[path][1], path)):
            if self._wanted(path):
                before = self._before.get(path, (0, 0))[0]
                found.setdefault(_place(path), {})[path] = before if before <= now[path][0] else 0
        written = {_place(path) for path, stamp in now.items() if self._before.get(path) != stamp}
        places = [place for place in found if place in written]
        return {
            place: found[place] for place in sorted(places, key=lambda one: FORMATS.index(one.file_format))
        }

    def _wanted(self, path: Path) -> bool:
        wanted = self._declared.get("from", "")
        if not wanted or wanted in FORMATS:
            return format_of(path) == (wanted or format_of(path))
        return fnmatch.fnmatch(path.as_posix(), wanted)


@dataclass
class _Source:
    """Files that are one source; ``names`` are chosen by what was recorded."""

    place: _Place
    files: list[GrowingFile]
    names: Names | None
    declared: Mapping[str, str]
    behind: bool = False

    def __post_init__(self) -> None:
        self._old: list[Point] | None = []
        self._maker = self._row_maker(self.names or Names())

    def same(self, other: _Source) -> bool:
        """Whether the other one reads the same under the same names."""
        return (self.place, self.names, len(self.files)) == (other.place, other.names, len(other.files))

    def probe(self) -> tuple[list[str], int]:
        """Return the names of the first values, and how many rows there are, of these alone."""
        points = [point for file in self.files for point in _read(file, ended=True)]
        names = list(dict.fromkeys(name for point in points for name in point.values))
        maker = self._row_maker(Names.of(names, self.place.file_format, self.declared))
        return names, sum(1 for _ in maker.rows(points))

    def _row_maker(self, names: Names) -> RowMaker:
        counts = bool(self.declared.get("from")) and not names.frames
        return RowMaker(names, self.place.file_format, counts)

    def rows(self, *, ended: bool) -> list[FoundRow]:
        """Return new rows; with the first ones those of earlier attempts, as far as they are continued."""
        fresh: list[Point] = []
        for file in self.files:
            points = _read(file, ended=ended)
            if self._old is not None and file.is_old:
                self._old += points
            else:
                fresh += points
        self.behind = any(file.behind for file in self.files)
        if self._old is None:
            return list(self._maker.rows(fresh))
        if not fresh and not (ended and not self.behind):
            return []
        old, self._old = list(self._maker.rows(self._old)), None
        new = list(self._maker.rows(fresh))
        return [*_continued(old, new), *new]


def _continued(old: list[FoundRow], new: list[FoundRow]) -> Iterator[FoundRow]:
    """Yield the rows of earlier attempts without those that a later one wrote anew."""
    kept: list[FoundRow] = []
    for row in [*old, *new[:1]]:
        while kept and kept[-1].frames >= row.frames:
            kept.pop()
        kept.append(row)
    for row in kept[: len(kept) - len(new[:1])]:
        yield replace(row, earlier=True)


def _read(file: GrowingFile, *, ended: bool) -> list[Point]:
    try:
        return file.read(ended=ended)
    except OSError:  # removed, or written anew this moment
        file.behind = False
        return []


def _place(path: Path) -> _Place:
    kind = format_of(path)
    return _Place(kind, (path.parent if kind in (TENSORBOARD, MONITOR) else path).as_posix())

"""Parse tables and logs in text: CSV with a header, Stable-Baselines3's Monitor, JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

from orchestrator.core.metric_files.points import Point, numbers

_DELIMITERS = ",;\t"


class CsvFile:
    """Parse a table with names in its first line; lines before it that begin with # are comments."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._delimiter = ","

    def feed(self, data: bytes, at: int) -> tuple[list[Point], int]:  # noqa: ARG002
        lines, used = _whole_lines(data)
        points = []
        for line in lines:
            if not self._names:
                if line.startswith("#"):
                    continue
                self._delimiter = max(_DELIMITERS, key=line.count)
                self._names = [name.strip() for name in self._row(line)]
                continue
            values = dict(self._numbers(line))
            points += [Point(values)] if values else []
        return points, used

    def _numbers(self, line: str) -> Iterator[tuple[str, float]]:
        for name, text in zip(self._names, self._row(line), strict=False):
            try:
                yield name, float(text)
            except ValueError:
                continue

    def _row(self, line: str) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=self._delimiter), [])
        except csv.Error:
            return []


class JsonLines:
    """Parse an object on each line; names of nested levels are joined by a slash."""

    def feed(self, data: bytes, at: int) -> tuple[list[Point], int]:  # noqa: ARG002
        lines, used = _whole_lines(data)
        points = []
        for line in lines:
            try:
                found = json.loads(line)
                values = numbers(found, "", "/") if isinstance(found, dict) else {}
            except (ValueError, RecursionError):
                continue
            points += [Point(values)] if values else []
        return points, used


def _whole_lines(data: bytes) -> tuple[list[str], int]:
    """Return the lines that are not empty, and the number of bytes up to the last newline."""
    *lines, rest = data.split(b"\n")
    texts = (line.decode(errors="replace").strip("\r\ufeff") for line in lines)
    return [text for text in texts if text.strip()], len(data) - len(rest)

"""Every error a user can meet.

Tree::

    OrchestrateError            exit code 2 unless it says otherwise
    ├── GridError               a grid file cannot be used: file, line, column, found, expected
    ├── NotFoundError           no such sweep or run, or the name fits several
    ├── DamagedFileError        a file of the results tree cannot be read as what it should be
    ├── StorageError            the results tree cannot be written (full, read-only)         exit 3
    └── BackendUnavailableError a backend cannot be used at all                              exit 3

A message names the object, what was found and what was expected; ``hint`` is the next thing to type.
"""

from __future__ import annotations

from pathlib import Path


class OrchestrateError(Exception):
    """Base of all errors shown to users; ``exit_code`` is what the command line returns."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class GridError(OrchestrateError):
    """A grid file that cannot be used. ``line`` and ``column`` count from 1."""

    def __init__(
        self,
        message: str,
        *,
        file: Path | str,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}", hint=hint)
        self.file, self.line, self.column = str(file), line, column


class NotFoundError(OrchestrateError):
    """A sweep or run that does not exist, or a name that fits several."""


class DamagedFileError(OrchestrateError):
    """A file of the results tree that cannot be read as what it should be."""

    def __init__(self, path: Path | str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = str(path)


class StorageError(OrchestrateError):
    """The results tree cannot be written: disk full, quota, read-only."""

    exit_code = 3


class BackendUnavailableError(OrchestrateError):
    """A backend (or the program it drives) cannot be used at all."""

    exit_code = 3

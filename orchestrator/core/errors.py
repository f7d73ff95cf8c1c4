"""Every error a user can meet.

Tree::

    OrchestrateError            exit code 2 unless it says otherwise
    ├── PlacedError             a file a person wrote cannot be used: file, line, column, found, expected
    │   ├── GridError
    │   └── ProfileError
    ├── NotFoundError           no such sweep or run, or the name fits several
    ├── DamagedFileError        a file of the results tree cannot be read as what it should be
    ├── StorageError            the results tree cannot be written (full, read-only)         exit 3
    ├── BudgetError             it would cost more than the budget, or that is spent         exit 4
    ├── UploadError             nothing can be uploaded: no key, no server                   exit 3
    └── BackendUnavailableError a backend cannot be used at all                              exit 3
        ├── RefusedError        it said no: what was asked of it did not happen              exit 3
        │   └── QueueFullError  it takes no more jobs of this user now                       exit 3
        └── HostError           a machine behind ssh cannot be used                          exit 3
            └── UnreachableError  it does not answer now: nothing is known, nothing changed  exit 3

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

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows; IPython asks for it. As on the command line, no traceback."""
        return [f"{type(self).__name__}: {self}", *([f"  {self.hint}"] if self.hint else [])]


class PlacedError(OrchestrateError):
    """A file that a person wrote cannot be used. ``line`` and ``column`` count from 1."""

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


class GridError(PlacedError):
    """A grid file that cannot be used."""


class ProfileError(PlacedError):
    """A profile that cannot be used."""


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


class BudgetError(OrchestrateError):
    """It would cost more than a person allowed, or what was allowed is spent: nothing was launched."""

    exit_code = 4


class UploadError(OrchestrateError):
    """Nothing can be uploaded: no client, no key, no server, or a key that it refuses."""

    exit_code = 3


class BackendUnavailableError(OrchestrateError):
    """A backend (or the program it drives) cannot be used at all."""

    exit_code = 3


class RefusedError(BackendUnavailableError):
    """The scheduler answered, and the answer was no: nothing was submitted."""


class QueueFullError(RefusedError):
    """The scheduler takes no more jobs of this user now."""


class HostError(BackendUnavailableError):
    """A machine behind ssh cannot be used: no such name, no access, a key that changed, no rsync there."""


class UnreachableError(HostError):
    """A machine does not answer now. Nothing follows from it for what runs there.

    ``begun``: it had taken up what it was asked, and may be at it or through with it.
    """

    def __init__(self, message: str, *, hint: str | None = None, begun: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.begun = begun

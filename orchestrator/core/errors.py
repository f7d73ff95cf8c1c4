"""All errors shown to users, as one tree of exceptions.

Tree::

    OrchestrateError            exit code 2 by default
    ├── PlacedError             a grid or profile cannot be used: file, line, column, found, expected
    │   ├── GridError
    │   └── ProfileError
    ├── ChecksFailedError       runs of a sweep cannot work: nothing was submitted
    ├── NotFoundError           no such sweep or run, or the name fits several
    ├── DamagedFileError        a file of the results tree cannot be read or has the wrong content
    ├── FormatError             a tree, a code snapshot or a message has a format of another version
    ├── StorageError            the results tree cannot be written (full, read-only)         exit 3
    │   └── FileServerError     its file server failed, or did not answer, for a moment     exit 3
    ├── BudgetError             the cost exceeds the budget, or the budget is spent          exit 4
    ├── UploadError             nothing can be uploaded: no key, no server                   exit 3
    └── BackendUnavailableError a backend cannot be used at all                              exit 3
        ├── RefusedError        it refused the request: nothing was submitted               exit 3
        │   └── QueueFullError  it takes no more jobs of this user now                       exit 3
        └── HostError           a machine behind ssh cannot be used                          exit 3
            └── UnreachableError  no answer now: the state there is unknown                  exit 3

A message names the object, what was found and what was expected; ``hint`` is the next command.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class OrchestrateError(Exception):
    """Base of all errors shown to users; ``exit_code`` is the exit code of the command line."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a traceback; IPython calls this method."""
        return [f"{type(self).__name__}: {self}", *([f"  {self.hint}"] if self.hint else [])]


class ChecksFailedError(OrchestrateError):
    """Runs that cannot work were found before a submission. ``problems``: a line each."""

    def __init__(self, problems: Iterable[object]) -> None:
        self.problems = tuple(map(str, problems))
        super().__init__("\n".join(self.problems))


class PlacedError(OrchestrateError):
    """A grid or profile that cannot be used. ``line`` and ``column`` count from 1."""

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
    """A file of the results tree that cannot be read or has the wrong content."""

    def __init__(self, path: Path | str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = str(path)


class FormatError(OrchestrateError):
    """A record in an unknown format, written by another version of this program."""


class StorageError(OrchestrateError):
    """The results tree cannot be written: disk full, quota, read-only."""

    exit_code = 3


class FileServerError(StorageError):
    """The server of the results tree's file system failed, or did not answer, for a moment."""


class BudgetError(OrchestrateError):
    """The cost exceeds the budget, or the budget is spent: nothing was launched."""

    exit_code = 4


class UploadError(OrchestrateError):
    """Nothing can be uploaded: no client, no key, no server, or a key that the server refuses."""

    exit_code = 3


class BackendUnavailableError(OrchestrateError):
    """A backend (or the program it drives) cannot be used at all."""

    exit_code = 3


class RefusedError(BackendUnavailableError):
    """The scheduler refused the request: nothing was submitted."""


class QueueFullError(RefusedError):
    """The scheduler takes no more jobs of this user now."""


class HostError(BackendUnavailableError):
    """A machine behind ssh cannot be used: no such name, no access, a key that changed, no rsync there."""


class UnreachableError(HostError):
    """A machine does not answer now. Its jobs may still run.

    ``begun``: the request had arrived there and may be in progress or done.
    """

    def __init__(self, message: str, *, hint: str | None = None, begun: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.begun = begun

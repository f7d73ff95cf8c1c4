"""Which runs went up to W&B: a line for each upload, appended when all of it had arrived.

JSON lines. A line that was cut by a kill is not there, so its run goes up once more, in place of itself.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir.atomic import dump_json, parse_json, storage_errors
from orchestrator.rundir.plain_files import open_to_write, read_plain


@dataclass(frozen=True)
class Uploaded:
    """``digest``: of what was sent; ``place``: where it was to go, as asked; ``url``: where it is."""

    run_id: str
    digest: str
    place: str
    url: str
    time: float


class UploadLog:
    """A sweep's uploads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep others from uploading the same sweep meanwhile; :class:`OrchestrateError` if one does."""
        with storage_errors(self._path), open_to_write(self._path, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OrchestrateError(
                    f"another upload of {self._path.parent.name} is at work",
                    hint="wait until it has ended, then run the same command again",
                ) from None
            yield

    def read(self) -> list[Uploaded]:
        """Every upload on record, oldest first; lines that cannot be read are left out."""
        try:
            lines = read_plain(self._path).split(b"\n")
        except FileNotFoundError:
            return []
        found = []
        for line in lines[:-1]:
            try:
                found.append(Uploaded(**parse_json(line)))
            except (ValueError, TypeError):
                pass  # it went up, but nobody knows what: it goes up again
        return found

    def add(self, uploaded: Uploaded) -> None:
        with storage_errors(self._path), open_to_write(self._path, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = end > 0 and file.read(1) != b"\n"
            file.seek(0, os.SEEK_END)
            file.write(b"\n" * torn + dump_json(asdict(uploaded)))
            file.flush()
            os.fsync(file.fileno())

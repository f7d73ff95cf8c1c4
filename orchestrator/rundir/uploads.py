"""The log of runs uploaded to W&B: one JSON line for each complete upload.

A line cut by a kill does not count: its run is uploaded once more and replaces itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine.file_locks import lock
from orchestrator.rundir.files.atomic import dump_json, parse_json, storage_errors
from orchestrator.rundir.files.plain_files import open_to_write, read_plain


def wandb_id(sweep: str, run_id: str, retired: int = 0) -> str:
    """Return the id of a run's one W&B run, for all attempts; a new id once the run begins anew.

    A project can hold several sweeps with the same run, and W&B never accepts a deleted id again.
    ``retired``: the newest retired attempt.
    """
    name = f"{sweep}-{run_id}" + (f"-r{retired}" if retired else "")
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


@dataclass(frozen=True)
class Uploaded:
    """A complete upload. ``digest``: its hash; ``place``: the requested project; ``url``: its address."""

    run_id: str
    digest: str
    place: str
    url: str
    time: float


class UploadLog:
    """The log of a sweep's uploads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Prevent simultaneous uploads of a sweep; raise :class:`OrchestrateError` during another one."""
        with storage_errors(self._path), open_to_write(self._path, "ab") as file:
            if not lock(file, wait=False):
                raise OrchestrateError(
                    f"another upload of {self._path.parent.name} is running",
                    hint="wait until it has ended, then run the same command again",
                )
            yield

    def read(self) -> list[Uploaded]:
        """Return all uploads, oldest first; unreadable lines are skipped."""
        try:
            lines = read_plain(self._path).split(b"\n")
        except FileNotFoundError:
            return []
        found = []
        for line in lines[:-1]:
            try:
                found.append(Uploaded(**parse_json(line)))
            except (ValueError, TypeError):
                pass  # unknown content: upload it again
        return found

    def add(self, uploaded: Uploaded) -> None:
        """Append an upload, durably."""
        with storage_errors(self._path), open_to_write(self._path, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = end > 0 and file.read(1) != b"\n"
            file.seek(0, os.SEEK_END)
            file.write(b"\n" * torn + dump_json(asdict(uploaded)))
            file.flush()
            os.fsync(file.fileno())

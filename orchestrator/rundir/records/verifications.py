"""Verifications: runs trained again, and how their metrics compare with those on record. A JSON file each."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.machine.file_locks import lock
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Int64
from orchestrator.rundir.copy_origin import source_folders
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic
from orchestrator.rundir.files.plain_files import open_to_write

FOLDER, SCRATCH = "verified", ".verify"
# How the words on a run begin that is not as on record.
DIFFERS = "differs"
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.json")


@dataclass(frozen=True)
class Difference:
    """The first place where a training differs from the record, with both values as text."""

    iteration: Int64
    frames: Int64
    metric: str
    recorded: str
    trained: str

    def __str__(self) -> str:
        at = f"iteration {self.iteration}, {self.frames:,} frames"
        return f"{at}: {self.metric} is {self.recorded} on record, {self.trained} trained again"


@dataclass(frozen=True)
class Verification:
    """A run, or its part after ``start`` frames, trained again up to ``frames``.

    ``result``: the SHA-256 of its result then; ``time``: in epoch seconds. ``host`` and the rest say where.
    ``share``: how much was to be trained. ``checkpoint``: whether the last checkpoint is equal, too, by its
    tensors or its whole content. ``not_compared``: metrics that differ between two trainings here.
    ``difference``: the first one, ``None`` if all is equal; ``note``: what may explain it.
    """

    run_id: str
    result: str
    time: float
    host: str
    start: Int64
    frames: Int64
    cpu_model: str | None = None
    cpu_capability: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    checkpoint: bool = False
    not_compared: tuple[str, ...] = ()
    difference: Difference | None = None
    note: str = ""

    def __str__(self) -> str:
        """When and where, or the difference."""
        place = f"{time.strftime('%Y-%m-%d', time.localtime(self.time))} on {self.host}"
        if self.difference is not None:
            return f"{DIFFERS}: {self.difference} ({place})"
        part = f", the first {100 * self.share:.3g} %" if self.share < 1 else ""
        return f"{place}{part}"

    @property
    def name(self) -> str:
        """The name of its file: the same verification again replaces it."""
        asked = [self.run_id, self.result, self.host, self.share]
        return f"{self.run_id}-{hashlib.sha256(dump_json(asked)).hexdigest()[:16]}.json"


class VerificationLog:
    """A sweep's verifications: those of this tree and those fetched from further sources."""

    def __init__(self, sweep: Path) -> None:
        self._path, self._sweep = sweep / FOLDER, sweep

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Prevent simultaneous verifications; raise :class:`OrchestrateError` during another one."""
        scratch = self._sweep / SCRATCH
        with storage_errors(scratch):
            scratch.mkdir(exist_ok=True)
            with open_to_write(scratch / ".lock", "a") as file:
                if not lock(file, wait=False):
                    hint = "wait until it has ended, then run the same command again"
                    raise OrchestrateError(
                        f"another verification of {self._sweep.name} is running", hint=hint
                    )
                yield

    def add(self, verification: Verification) -> None:
        """Store a verification."""
        with storage_errors(self._path):
            self._path.mkdir(exist_ok=True)
        write_atomic(self._path / verification.name, dump_json(plain(verification), indent=1))

    def by_run(self) -> dict[str, list[Verification]]:
        """Return the verifications of each run, oldest first; unreadable files are skipped."""
        found: dict[str, Verification] = {}
        for path in self._files():
            try:
                found.setdefault(path.name, parse(Verification, read_json(path)))
            except (DamagedFileError, OSError, ValueError):
                continue  # the run counts as not verified
        runs: dict[str, list[Verification]] = {}
        for one in sorted(found.values(), key=lambda one: one.time):
            runs.setdefault(one.run_id, []).append(one)
        return runs

    def _files(self) -> Iterator[Path]:
        for folder in (self._path, *(source / FOLDER for source in source_folders(self._sweep))):
            if folder.is_dir():
                yield from (path for path in sorted(folder.iterdir()) if _NAME.fullmatch(path.name))


def standing_verification(known: list[Verification], checksum: str) -> Verification | None:
    """Return the one of the result with this checksum: one that differs, else of the largest share."""
    own = [one for one in known if one.result == checksum]
    return max(own, key=lambda one: (one.difference is not None, one.share, one.time), default=None)

"""Checkpoints of a run: written whole or not at all, checked before use, pruned to the last two.

A checkpoint is one file named after its frames and its checksum. The contents of replay buffers go into
segments, files of their own that later checkpoints, also of later attempts, refer to again. All files load
with ``weights_only=True``.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import AttemptDir, CheckpointFile, RunDir, sha256
from orchestrator.rundir.files.atomic import fsync_folder, storage_errors, temporary_name
from orchestrator.rundir.files.plain_files import open_plain

# What reading a file of unknown content can raise.
_UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    pickle.UnpicklingError,
)
# What restoring a state can raise where networks, buffers or environments have another shape.
MISFITS = (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError)

_OTHER_CONTENT = "is truncated or damaged: its content has another checksum than its name"


@dataclass(frozen=True)
class Segment:
    """Items ``start`` to ``start + count`` ever added to the buffer of agent group ``group``."""

    attempt: int
    group: int
    start: int
    count: int
    digest: str

    @property
    def stop(self) -> int:
        return self.start + self.count


@dataclass(frozen=True)
class Loaded:
    """A checkpoint read back whole: its ``payload`` as saved, and its segments."""

    file: CheckpointFile
    payload: dict[str, Any]
    segments: tuple[Segment, ...]


def pass_over(why: str) -> None:
    """Warn in the run's log that a checkpoint is not used."""
    sys.stderr.write(f"warning: checkpoint passed over: {why}\n")


class CheckpointStore:
    """Writes one attempt's checkpoints, and reads those of earlier attempts.

    ``guard`` raises once the claim is lost; it is called before files of other attempts are removed.
    """

    def __init__(
        self, run_dir: RunDir, attempt: AttemptDir, guard: Callable[[], None] = lambda: None
    ) -> None:
        self._run_dir, self._attempt, self._guard = run_dir, attempt, guard
        self._newest: set[Path] = set()  # the files of the newest checkpoint

    def newest(self, candidates: Iterable[CheckpointFile]) -> Loaded | None:
        """Return the first candidate that is whole with its segments; warn on stderr of each damaged one."""
        for file in candidates:
            try:
                loaded = self._load(file)
            except DamagedFileError as error:
                pass_over(str(error))
                continue
            except _UNREADABLE as error:
                pass_over(f"{file.path}: is no checkpoint of this program ({type(error).__name__}: {error})")
                continue
            self._newest = {file.path, *(self._path(segment) for segment in loaded.segments)}
            return loaded
        return None

    def save(self, frames: int, payload: dict[str, Any], segments: Iterable[Segment] = ()) -> CheckpointFile:
        """Write a checkpoint; keep it and the one before, and remove every other of this run.

        The caller holds the claim and has made the metrics durable.
        """
        segments = tuple(segments)
        content = {"payload": payload, "segments": [asdict(segment) for segment in segments]}
        path, digest = self._write(content, lambda digest: self._attempt.checkpoint_name(frames, digest))
        before, self._newest = self._newest, {path, *(self._path(segment) for segment in segments)}
        self._guard()  # writing may have taken long
        self._prune(before | self._newest)
        return CheckpointFile(self._attempt.number, frames, digest, path)

    def add_segment(self, group: int, start: int, count: int, items: Any) -> Segment:
        """Write a piece of a buffer for the next checkpoint to refer to."""
        _, digest = self._write(items, lambda digest: self._attempt.segment_name(group, start, count, digest))
        return Segment(self._attempt.number, group, start, count, digest)

    @property
    def files(self) -> list[Path]:
        """The files of the newest checkpoint, sorted."""
        return sorted(self._newest)

    def read_segment(self, segment: Segment) -> Any:
        """Return the items of a segment."""
        return torch.load(self._path(segment), weights_only=True)

    def _load(self, file: CheckpointFile) -> Loaded:
        _require_digest(file.path, file.digest)
        content = torch.load(file.path, weights_only=True)
        if not isinstance(content, dict) or not isinstance(content.get("payload"), dict):
            raise DamagedFileError(file.path, "is no checkpoint of this program: it holds no payload")
        segments = tuple(Segment(**segment) for segment in content["segments"])
        if file.attempt == 0:  # of a shorter run, whose attempts had other numbers
            segments = tuple(replace(segment, attempt=0) for segment in segments)
        for segment in segments:
            _require_digest(self._path(segment), segment.digest)
        return Loaded(file, content["payload"], segments)

    def _write(self, value: Any, name: Callable[[str], Path]) -> tuple[Path, str]:
        """Write a file of this attempt under the ``name`` for its checksum; return both."""
        with _written(self._attempt.checkpoints, value) as file:
            digest = sha256(file)[:16]
            path = name(digest)
            os.replace(file, path)
        return path, digest

    def _path(self, segment: Segment) -> Path:
        attempt = self._run_dir.attempt(segment.attempt)
        return attempt.segment_name(segment.group, segment.start, segment.count, segment.digest)

    def _prune(self, keep: set[Path]) -> None:
        """Remove files that no kept checkpoint needs, torn writes of ended attempts included."""
        for attempt in self._run_dir.current_attempts():
            if attempt.number > self._attempt.number or not attempt.checkpoints.is_dir():
                continue
            left = 0
            for path in attempt.checkpoints.iterdir():
                if path in keep:
                    left += 1
                else:
                    path.unlink(missing_ok=True)
            if not left:
                attempt.checkpoints.rmdir()


def save_file(path: Path, value: Any) -> Path:
    """Write tensors and plain values to a file, whole or not at all; return its path."""
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _written(path.parent, value) as file:
        os.replace(file, path)
    return path


@contextmanager
def _written(folder: Path, value: Any) -> Iterator[Path]:
    """Provide a temporary file of the value, all bytes on disk, to be renamed within this folder.

    The folder is created, and no folder above it: an attempt that was removed does not come back.
    """
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
        temporary = temporary_name(folder / "checkpoint")
        try:
            with open(temporary, "xb") as file:
                _dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
        fsync_folder(folder)


def read_payload(checkpoint: CheckpointFile) -> dict[str, Any]:
    """Return a checkpoint's payload on the CPU, without its buffers.

    Raises ``FileNotFoundError`` if training has replaced the file by a newer one, and
    :class:`DamagedFileError`.
    """
    with open_plain(checkpoint.path) as file:  # an open file stays readable when its name is removed
        if hashlib.file_digest(file, "sha256").hexdigest()[:16] != checkpoint.digest:
            raise DamagedFileError(checkpoint.path, _OTHER_CONTENT)
        file.seek(0)
        return read_checkpoint(file, checkpoint.path)


def read_checkpoint(source: Any, path: Path) -> dict[str, Any]:
    """Return the payload of an open checkpoint on the CPU; ``path``: its name in the error.

    Raises :class:`DamagedFileError`.
    """
    try:
        payload: dict[str, Any] = torch.load(source, weights_only=True, map_location="cpu")["payload"]
    except _UNREADABLE as error:
        raise DamagedFileError(path, f"cannot be read ({error})"[:300]) from error
    return payload


def _dump(value: Any, file: Any) -> None:
    try:
        torch.save(value, file)
    except RuntimeError as error:
        # torch's writer hides the operating system's refusal behind an error of its own.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _require_digest(path: Path, digest: str) -> None:
    if not path.is_file():
        raise DamagedFileError(path, "is missing")
    if sha256(path)[:16] != digest:
        raise DamagedFileError(path, _OTHER_CONTENT)

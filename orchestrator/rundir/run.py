"""A run's folder and its attempts': claims, checkpoints, history, the published result."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Reason, Run, RunState
from orchestrator.rundir.atomic import (
    dump_json,
    fsync_folder,
    read_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.claims import (
    Claim,
    age_by_file_server,
    create_claim,
    read_claim,
)
from orchestrator.rundir.copy_origin import bring_again
from orchestrator.rundir.delegation import foreign_attempts, read_absent
from orchestrator.rundir.descriptions import Descriptions
from orchestrator.rundir.metrics import Executed, ResumePoint, Row, merge, read_metrics, walk_back
from orchestrator.rundir.plain_files import open_plain, read_plain

_RETIRED = re.compile(r"retired-(\d+)\.json")
_OUTCOMES = [state.value for state in RunState]
_REASONS = [None, *(reason.value for reason in Reason)]
CHECKPOINT = re.compile(r"(?P<frames>\d{12})-(?P<digest>[0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint by name: ``digest`` is the first half of the SHA-256 of its bytes."""

    attempt: int
    frames: int
    digest: str
    path: Path


class AttemptDir:
    """One execution's folder; only its claim's holder writes here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)
        self.claim_path = path / "claim"
        self.log = path / "log.txt"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.scratch = path / "scratch"
        self.wandb = path / "wandb"
        self.wandb_packed = path / "wandb.tar"
        self.end_path = path / "end.json"

    def claim(self) -> Claim | None:
        return read_claim(self.claim_path)

    def end(self) -> dict[str, Any] | None:
        """The end record: ``outcome`` (a run state), ``reason``, ``message``, ``frames``, …"""
        try:
            record: dict[str, Any] = read_json(self.end_path)
        except FileNotFoundError:
            return None
        if not _is_end(record):
            raise DamagedFileError(self.end_path, "is not an end record")
        return record

    def write_end(self, record: Mapping[str, Any]) -> bool:
        """Say why the attempt ended. The first word stands: ``False`` if there is one."""
        return write_exclusive(self.end_path, dump_json(dict(record)))

    @property
    def inbox_metrics(self) -> Path:
        """Where a training program writes its metrics for the trainer to take over."""
        return self.scratch / "metrics.jsonl"

    @property
    def inbox_imports(self) -> Path:
        """Where a training program's Python notes which packages it imported."""
        return self.scratch / "imports.txt"

    @property
    def inbox_checkpoints(self) -> Path:
        """Where a training program puts its checkpoints for the trainer to take over."""
        return self.scratch / "checkpoints"

    def adopt_checkpoint(self, source: Path, frames: int) -> Path:
        """Move a finished checkpoint from the inbox to its place; durable on return."""
        with storage_errors(self.checkpoints):
            with open_plain(source) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
                os.fsync(file.fileno())
            self.checkpoints.mkdir(exist_ok=True)
            path = self.checkpoint_name(frames, digest)
            os.replace(source, path)
            fsync_folder(self.checkpoints)
        return path

    def checkpoint_name(self, frames: int, digest: str) -> Path:
        return self.checkpoints / f"{frames:012d}-{digest}.pt"

    def checkpointed(self) -> int | None:
        """Frames in the most advanced checkpoint that this attempt wrote itself."""
        found = [match for name in listdir(self.checkpoints) if (match := CHECKPOINT.fullmatch(name))]
        return max((int(match["frames"]) for match in found), default=None)

    def segment_name(self, group: int, start: int, count: int, digest: str) -> Path:
        """A piece of a replay buffer: items ``start`` to ``start + count`` ever added by an agent group."""
        return self.checkpoints / f"segment-{group}-{start:012d}-{count}-{digest}.pt"

    def event_files(self) -> list[Path]:
        return sorted(path for path in self.path.glob("events.out.tfevents.*") if path.is_file())

    def offline_wandb(self) -> Path | None:
        """The archive or the folder in which W&B logged offline; ``None`` if there is no such thing."""
        if self.wandb_packed.is_file() and not self.wandb_packed.is_symlink():
            return self.wandb_packed
        return self.wandb if not self.wandb.is_symlink() and self._offline_logs() else None

    def offline_digest(self) -> str:
        """A hash of what :meth:`offline_wandb` holds."""
        if self.offline_wandb() == self.wandb_packed:
            return sha256(self.wandb_packed)
        parts = [f"{path.relative_to(self.wandb)} {sha256(path)}\n" for path in self._offline_logs()]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def _offline_logs(self) -> list[Path]:
        found = sorted(self.wandb.glob("offline-run-*/run-*.wandb"))
        links = (path.is_symlink() or path.parent.is_symlink() for path in found)
        return [path for path, link in zip(found, links, strict=True) if not link and path.is_file()]

    def pack_wandb(self) -> None:
        """Turn W&B's folder of small files into one archive, and remove the folder only then.

        Its links stay out: they name logs in this machine's home.
        """
        if not self.wandb.is_dir():
            return
        temporary = self.path / ".wandb.tar.tmp"
        with storage_errors(temporary), tarfile.open(temporary, "w") as archive:
            archive.add(self.wandb, arcname="wandb", filter=_unless_link)
        os.replace(temporary, self.wandb_packed)
        shutil.rmtree(self.wandb)


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path, descriptions: Descriptions | None = None) -> None:
        self.path = path
        self.run_id = path.name
        self._submitted = descriptions or Descriptions(path.parent.parent)
        self.description_path = path / "run.json"
        self.result_path = path / "result.json"
        self._attempts = path / "attempts"

    def describe(self, run: Run) -> None:
        """Store the description in the run's folder. From the first attempt on it never changes."""
        data = _as_file(run)
        with storage_errors(self._attempts):
            self._attempts.mkdir(parents=True, exist_ok=True)
        try:
            if read_plain(self.description_path) == data or (self.attempts() and self.description()):
                return
        except (FileNotFoundError, DamagedFileError):
            pass
        write_atomic(self.description_path, data)

    def description(self) -> Run:
        """The run's own description, or the submission's while it has no folder.

        Raises ``FileNotFoundError`` and :class:`DamagedFileError`.
        """
        try:
            return Run.from_json(read_json(self.description_path))
        except FileNotFoundError:
            if (submitted := self._submitted.find(self.run_id)) is None:
                raise
            return submitted
        except (TypeError, KeyError) as error:
            raise DamagedFileError(
                self.description_path,
                "is not a run description",
                hint=f"delete {self.path} if it holds nothing you need, then run the sweep again",
            ) from error

    def attempts(self) -> list[AttemptDir]:
        """Claimed attempts, oldest first."""
        try:
            names = os.listdir(self._attempts)
        except FileNotFoundError:
            return []
        numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        attempts = [self.attempt(number) for number in numbers]
        return [attempt for attempt in attempts if attempt.claim_path.exists()]

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self._attempts / str(number))

    def blocked_by(self) -> AttemptDir | None:
        """The newest attempt, if nothing proves that it ended."""
        attempts = self.attempts()
        if not attempts or attempt_ended(attempts[-1]):
            return None
        return attempts[-1]

    def take(self, claim: Claim) -> AttemptDir | None:
        """Claim the next attempt; ``None`` if the run is done, taken, or another was faster.

        Proof first, then the result, then the claim: an attempt that ended by finishing published before it
        ended, so no attempt is ever begun for a finished run.
        """
        attempts = self.attempts()
        if attempts and not attempt_ended(attempts[-1]):
            return None
        if self.result_path.exists():
            return None
        own = bool(attempts) and attempts[-1].number > foreign_attempts(self.path)
        if own and not _end_leftovers(attempts[-1]):
            return None
        before = attempts[-1].number if attempts else 0
        attempt = self.attempt(max(before, self.retired) + 1)
        with storage_errors(attempt.path):
            attempt.path.mkdir(parents=True, exist_ok=True)
        self._keep_description()
        return attempt if create_claim(attempt.claim_path, claim) else None

    def _keep_description(self) -> None:
        """Put the submission's description into the folder, before anybody works on the run."""
        if not self.description_path.exists() and (run := self._submitted.find(self.run_id)) is not None:
            write_exclusive(self.description_path, _as_file(run))

    def superseded(self, attempt: AttemptDir) -> bool:
        """Whether a later attempt exists, so that this one must not publish."""
        return self.attempt(attempt.number + 1).claim_path.exists()

    def checkpoints(self, below: int | None = None) -> list[CheckpointFile]:
        """Checkpoints of all attempts (before attempt ``below``), the most advanced and newest first."""
        found = []
        for attempt in self.current_attempts():
            if below is not None and attempt.number >= below:
                continue
            for name in listdir(attempt.checkpoints):
                match = CHECKPOINT.fullmatch(name)
                if match and (attempt.checkpoints / name).is_file():
                    found.append(
                        CheckpointFile(
                            attempt.number,
                            int(match["frames"]),
                            match["digest"],
                            attempt.checkpoints / name,
                        )
                    )
        return sorted(found, key=lambda item: (item.frames, item.attempt), reverse=True)

    def history(self, last: int | None = None) -> list[Row]:
        """The run's merged metrics as attempt ``last`` (default: the newest) saw them."""
        return merge(self.chain(last))

    def chain(self, last: int | None = None) -> list[Executed]:
        """The attempts whose metrics make up that history, oldest first; no other attempt's are read."""
        if last is None:
            current = self.current_attempts()
            if not current:
                return []
            last = current[-1].number

        def read(number: int) -> tuple[ResumePoint | None, list[Row]]:
            metrics = self.attempt(number).metrics
            if number != last and not metrics.exists():
                if metrics.relative_to(self.path).as_posix() in read_absent(self.path).files:
                    return None, []
                raise self._damaged(metrics, "is missing, though a later attempt builds on it")
            return read_metrics(metrics)

        return walk_back(last, read)

    def publish(
        self,
        result: Mapping[str, Any],
        manifest: Iterable[tuple[Path, bool]],
        guard: Callable[[], None] = lambda: None,
    ) -> bool:
        """Publish the result, once. ``manifest``: files and whether the result is void without them.

        ``guard`` is called when all is read and written but the last step, and stops it by raising.
        ``False`` if the run has a result already, which then stands.
        """
        files = [
            {
                "path": path.relative_to(self.path).as_posix(),
                "sha256": sha256(path),
                "bytes": path.stat().st_size,
                "required": required,
            }
            for path, required in manifest
        ]
        data = dump_json({**result, "run_id": self.run_id, "manifest": files}, indent=1)
        return write_exclusive(self.result_path, data, guard)

    def result(self) -> dict[str, Any] | None:
        """The published result, or ``None``. Raises :class:`DamagedFileError` if it is not one."""
        try:
            result = read_json(self.result_path)
        except FileNotFoundError:
            return None
        if not isinstance(result, dict) or result.get("run_id") != self.run_id:
            raise self._damaged(self.result_path, f"is not the result of run {self.run_id}")
        if not _is_manifest(result.get("manifest")):
            raise self._damaged(self.result_path, "has no list of its files (`manifest`)")
        return result

    def verify(self, result: Mapping[str, Any], *, checksums: bool = False) -> None:
        """Check the result's required files: present, of their size, with ``checksums`` of their content.

        Files that are known to lie elsewhere count as present.
        """
        for item in result["manifest"]:
            path = self.path / item["path"]
            if not item["required"]:
                continue
            if not path.is_file():
                if item["path"] in read_absent(self.path).files:
                    continue
                raise self._damaged(path, "is missing, though the result needs it")
            size = path.stat().st_size
            if size != item["bytes"]:
                raise self._damaged(path, f"holds {size} bytes, the result says {item['bytes']}")
            if checksums and sha256(path) != item["sha256"]:
                raise self._damaged(path, "has other content than when the result was published")

    def retire_result(self) -> None:
        """Put a result aside, for a run that is to be done again from its beginning.

        It and its attempts stay as they are, the result as retired-<n>.json, n its newest attempt.
        """
        newest = max((attempt.number for attempt in self.attempts()), default=0)
        try:
            os.replace(self.result_path, self.path / f"retired-{newest}.json")
        except FileNotFoundError:
            pass

    def begin_anew(self, reason: str = "what its attempts left cannot be used") -> None:
        """Have the next attempt begin from nothing; those so far stay as they are and are not read again.

        For a run without a result. The mark is a retired-<n>.json that says why in place of a result.
        """
        if attempts := self.attempts():
            mark = self.path / f"retired-{attempts[-1].number}.json"
            write_exclusive(mark, dump_json({"reason": reason}))

    @property
    def retired(self) -> int:
        """The newest attempt that was put aside, with a result or without; 0 if none ever was."""
        found = (_RETIRED.fullmatch(name) for name in listdir(self.path))
        return max((int(match[1]) for match in found if match), default=0)

    def current_attempts(self) -> list[AttemptDir]:
        """The attempts since the last that was put aside, oldest first: those that build on each other."""
        last = self.retired
        return [attempt for attempt in self.attempts() if attempt.number > last]

    def _damaged(self, path: Path, problem: str) -> DamagedFileError:
        sweep = self.path.parent.parent.name
        hint = f"restore the file, or train the run again: orchestrate retry {sweep} {self.run_id}"
        if again := bring_again(self.path):
            hint = f"fetch it again: {again}"
        return DamagedFileError(path, problem, hint=hint)


def attempt_ended(attempt: AttemptDir) -> bool:
    """Whether it is proved that nobody works on the attempt any more."""
    if attempt.end() is not None:
        return True
    claim = attempt.claim()
    assert claim is not None, attempt.path
    alive = claim.holder.alive()
    if alive is None:
        return age_by_file_server(attempt.claim_path) > 2 * claim.lease
    return not alive


def _as_file(run: Run) -> bytes:
    """What a run's own description holds."""
    return dump_json(run.to_json(), indent=1)


def _is_end(record: Any) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("message", ""), str):
        return False
    counts = (record.get("frames"), record.get("checkpointed"))
    return (
        record.get("outcome") in _OUTCOMES
        and record.get("reason") in _REASONS
        and all(type(count) in (int, NoneType) for count in counts)
    )


def _is_manifest(value: Any) -> bool:
    def is_item(item: Any) -> bool:
        return isinstance(item, dict) and all(
            type(item.get(key)) is kind
            for key, kind in (("path", str), ("sha256", str), ("bytes", int), ("required", bool))
        )

    return isinstance(value, list) and all(map(is_item, value))


def _end_leftovers(attempt: AttemptDir) -> bool:
    claim = attempt.claim()
    return claim is None or claim.holder.end_survivors()


def sha256(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listdir(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unless_link(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.issym() else member

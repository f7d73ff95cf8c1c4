"""A folder of one attempt at a run: its claim, metrics, checkpoints, logs and end record."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import plain
from orchestrator.rundir.attempts.claims import Claim, read_claim
from orchestrator.rundir.attempts.end import End
from orchestrator.rundir.files.atomic import (
    dump_json,
    fsync_folder,
    read_record,
    storage_errors,
    write_exclusive,
)
from orchestrator.rundir.files.file_server import persist
from orchestrator.rundir.files.plain_files import PathWithin, is_listed, open_plain

POLICY = re.compile(r"\d{12}\.pt")
CHECKPOINT = re.compile(r"(?P<frames>\d{12})-(?P<digest>[0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint's file name, parsed: ``digest`` is the first half of the SHA-256 of its bytes."""

    attempt: int
    frames: int
    digest: str
    path: Path


class AttemptDir:
    """The folder of one attempt; only its claim's holder writes here."""

    claim_path = PathWithin("claim")
    log = PathWithin("log.txt")
    metrics = PathWithin("metrics.jsonl")
    checkpoints = PathWithin("checkpoints")
    scratch = PathWithin("scratch")
    wandb = PathWithin("wandb")
    wandb_packed = PathWithin("wandb.tar")
    end_path = PathWithin("end.json")
    policy = PathWithin("policy.pt")
    policies = PathWithin("policies")
    # Of an attempt 0: the run that it is taken from, and of that the policy, if it is all that is taken.
    prefix_path = PathWithin("prefix.json")
    init = PathWithin("init.pt")
    # What a program had written in the run's working folder when the attempt's result was retired.
    work = PathWithin("work")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)

    def claim(self) -> Claim | None:
        """Read the claim."""
        return read_claim(self.claim_path)

    def is_claimed(self) -> bool:
        """Return whether the attempt's claim exists."""
        return self.claim_path.exists() or is_listed(self.claim_path, levels=2)

    def seconds_of_life(self) -> float | None:
        """Return the seconds from the claim to the last renewal of its lease, or line of metrics."""
        try:
            claim = self.claim()
            signs = [path.stat().st_mtime for path in (self.claim_path, self.metrics) if path.exists()]
        except (DamagedFileError, OSError):
            return None
        return None if claim is None else max(0.0, max(signs, default=claim.created) - claim.created)

    def end(self) -> End | None:
        """Read the end record; None if there is none. Raises :class:`DamagedFileError`."""
        return read_record(End, self.end_path, "an end record")

    def write_end(self, end: End) -> bool:
        """Record the end of the attempt. The first record stands: return False if one exists."""
        return write_exclusive(self.end_path, dump_json({**plain(end), "time": time.time()}))

    @property
    def records(self) -> set[Path]:
        """The small files that stay for good."""
        return {self.claim_path, self.end_path, self.log, self.metrics, self.prefix_path}

    @property
    def inbox_metrics(self) -> Path:
        """The file in which a training program writes metrics for the trainer to collect."""
        return self.scratch / "metrics.jsonl"

    @property
    def inbox_imports(self) -> Path:
        """The file in which a training program's Python notes its imported packages."""
        return self.scratch / "imports.txt"

    @property
    def inbox_checkpoints(self) -> Path:
        """The folder in which a training program writes checkpoints for the trainer to collect."""
        return self.scratch / "checkpoints"

    def adopt_checkpoint(self, source: Path, frames: int) -> Path:
        """Move a finished checkpoint from the inbox to its place, durably."""
        name = ""

        def adopt() -> Path:
            nonlocal name
            if not name:
                with open_plain(source) as file:
                    name = hashlib.file_digest(file, "sha256").hexdigest()[:16]
                    os.fsync(file.fileno())
            self.checkpoints.mkdir(exist_ok=True)
            path = self.checkpoint_name(frames, name)
            if source.exists():
                os.replace(source, path)
            fsync_folder(self.checkpoints)
            return path

        with storage_errors(self.checkpoints):
            return persist(adopt)

    def checkpoint_name(self, frames: int, digest: str) -> Path:
        """Return the path of a checkpoint."""
        return self.checkpoints / f"{frames:012d}-{digest}.pt"

    def kept_policy(self, frames: int) -> Path:
        """Return the path of the policy after so many frames, which is kept beside the checkpoints."""
        return self.policies / f"{frames:012d}.pt"

    def checkpoint_names(self) -> list[str]:
        """List the folder of checkpoints."""
        is_listed(self.checkpoints)
        return listdir(self.checkpoints)

    def checkpointed(self) -> int | None:
        """Return the frames of the most advanced checkpoint that this attempt itself wrote."""
        found = [match for name in self.checkpoint_names() if (match := CHECKPOINT.fullmatch(name))]
        return max((int(match["frames"]) for match in found), default=None)

    def newest_checkpoint(self) -> dict[str, float] | None:
        """Return frames, modification time and bytes of the most advanced checkpoint here, for display."""
        name = max(filter(CHECKPOINT.fullmatch, listdir(self.checkpoints)), default=None)
        try:
            about = os.stat(self.checkpoints / name) if name else None
        except OSError:  # replaced by its successor a moment ago
            about = None
        if name is None or about is None:
            return None
        return {"frames": int(name.partition("-")[0]), "time": about.st_mtime, "bytes": about.st_size}

    def segment_name(self, group: int, start: int, count: int, digest: str) -> Path:
        """Return the path of a piece of a replay buffer.

        It holds the items ``start`` to ``start + count`` ever added by an agent group.
        """
        return self.checkpoints / f"segment-{group}-{start:012d}-{count}-{digest}.pt"

    def event_files(self) -> list[Path]:
        """List TensorBoard's event files."""
        return sorted(path for path in self.path.glob("events.out.tfevents.*") if path.is_file())

    def offline_wandb(self) -> Path | None:
        """Return the archive or folder of W&B's offline logs; None if there is neither."""
        if self.wandb_packed.is_file() and not self.wandb_packed.is_symlink():
            return self.wandb_packed
        return self.wandb if not self.wandb.is_symlink() and self._offline_logs() else None

    def offline_digest(self) -> str:
        """Hash the content of :meth:`offline_wandb`."""
        if self.offline_wandb() == self.wandb_packed:
            return sha256(self.wandb_packed)
        parts = [f"{path.relative_to(self.wandb)} {sha256(path)}\n" for path in self._offline_logs()]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def _offline_logs(self) -> list[Path]:
        found = sorted(self.wandb.glob("offline-run-*/run-*.wandb"))
        links = (path.is_symlink() or path.parent.is_symlink() for path in found)
        return [path for path, link in zip(found, links, strict=True) if not link and path.is_file()]

    def pack_wandb(self) -> None:
        """Pack W&B's folder of small files into one archive, then remove the folder.

        Its links are left out: they lead to logs in this machine's home.
        """
        if not self.wandb.is_dir():
            return
        if self.wandb_packed.exists():  # complete; the folder's removal failed
            shutil.rmtree(self.wandb)
            return
        temporary = self.path / ".wandb.tar.tmp"
        with storage_errors(temporary), tarfile.open(temporary, "w") as archive:
            archive.add(self.wandb, arcname="wandb", filter=_unless_link)
        os.replace(temporary, self.wandb_packed)
        shutil.rmtree(self.wandb)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listdir(folder: Path) -> list[str]:
    """List a folder's names; empty if it does not exist."""
    try:
        return persist(lambda: os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unless_link(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.issym() else member

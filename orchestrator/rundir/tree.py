"""The results tree: the one place that knows a file name in it.

::

    results/<sweep>/
      grids/0001.yaml …            every grid as submitted; the latest defines the sweep
      ledger/0001.json …           one entry per submission, cancellation or retry, in order
      journals/<token>.jsonl       one per worker; compacted.jsonl holds those that left
      index.tsv                    run_id ↔ overrides
      runs/<run_id>/
        run.json                   the immutable run description
        attempts/<n>/claim         who works on it; its modification time is the lease
                     log.txt  metrics.jsonl  checkpoints/  scratch/  wandb/ or wandb.tar  events.out.tfevents…
                     end.json      why the attempt ended
        result.json                last, by link(): the result with its manifest of checksums
      results.parquet  results.csv  metrics.parquet  report/
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import DamagedFileError, NotFoundError, OrchestrateError
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
    lease_seconds,
    read_claim,
)
from orchestrator.rundir.journal import (
    Event,
    Journal,
    WorkerLog,
    read_compacted,
    read_journal,
    write_compacted,
)
from orchestrator.rundir.metrics import ResumePoint, Row, merge_attempts, read_metrics
from orchestrator.types import Run

SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RUN_ID = re.compile(r"[0-9a-f]{16}")
_CHECKPOINT = re.compile(r"(?P<frames>\d{12})-(?P<digest>[0-9a-f]{16})\.pt")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class IndexRow(NamedTuple):
    """A run as `index.tsv` lists it. ``in_grid``: part of the latest grid."""

    run_id: str
    in_grid: bool
    point: dict[str, Any]


@dataclass(frozen=True)
class LedgerEntry:
    """One decision of a person or a command line. ``number`` orders them all."""

    number: int
    kind: str
    data: Mapping[str, Any]


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
            record = read_json(self.end_path)
        except FileNotFoundError:
            return None
        if not isinstance(record, dict):
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
    def inbox_checkpoints(self) -> Path:
        """Where a training program puts its checkpoints for the trainer to take over."""
        return self.scratch / "checkpoints"

    def adopt_checkpoint(self, source: Path, frames: int) -> Path:
        """Move a finished checkpoint from the inbox to its place; durable on return."""
        with storage_errors(self.checkpoints):
            with open(source, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
                os.fsync(file.fileno())
            self.checkpoints.mkdir(exist_ok=True)
            path = self.checkpoint_name(frames, digest)
            os.replace(source, path)
            fsync_folder(self.checkpoints)
        return path

    def checkpoint_name(self, frames: int, digest: str) -> Path:
        return self.checkpoints / f"{frames:012d}-{digest}.pt"

    def has_checkpoint(self) -> bool:
        return any(_CHECKPOINT.fullmatch(name) for name in _listdir(self.checkpoints))

    def segment_name(self, group: int, start: int, count: int, digest: str) -> Path:
        """A piece of a replay buffer: items ``start`` to ``start + count`` ever added by an agent group."""
        return self.checkpoints / f"segment-{group}-{start:012d}-{count}-{digest}.pt"

    def event_files(self) -> list[Path]:
        return sorted(self.path.glob("events.out.tfevents.*"))

    def pack_wandb(self) -> None:
        """Turn W&B's folder of small files into one archive, and remove the folder only then."""
        if not self.wandb.is_dir():
            return
        temporary = self.path / ".wandb.tar.tmp"
        with storage_errors(temporary), tarfile.open(temporary, "w") as archive:
            archive.add(self.wandb, arcname="wandb")
        os.replace(temporary, self.wandb_packed)
        shutil.rmtree(self.wandb)


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.description_path = path / "run.json"
        self.result_path = path / "result.json"
        self._attempts = path / "attempts"

    def describe(self, run: Run) -> None:
        """Store the run description. From the first attempt on it never changes.

        Not forced to the disk, for a sweep has thousands: one lost to a power cut is written again here.
        """
        data = dump_json(run.to_json(), indent=1)
        self._attempts.mkdir(parents=True, exist_ok=True)
        try:
            if self.description_path.read_bytes() == data or (self.attempts() and self.description()):
                return
        except (FileNotFoundError, DamagedFileError):
            pass
        write_atomic(self.description_path, data, durable=False)

    def description(self) -> Run:
        try:
            return Run.from_json(read_json(self.description_path))
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
        if attempts and not _end_leftovers(attempts[-1]):
            return None
        attempt = self.attempt(attempts[-1].number + 1 if attempts else 1)
        with storage_errors(attempt.path):
            attempt.path.mkdir(parents=True, exist_ok=True)
        return attempt if create_claim(attempt.claim_path, claim) else None

    def superseded(self, attempt: AttemptDir) -> bool:
        """Whether a later attempt exists, so that this one must not publish."""
        return self.attempt(attempt.number + 1).claim_path.exists()

    def checkpoints(self, below: int | None = None) -> list[CheckpointFile]:
        """Checkpoints of all attempts (before attempt ``below``), the most advanced and newest first."""
        found = []
        for attempt in self.attempts():
            if below is not None and attempt.number >= below:
                continue
            for name in _listdir(attempt.checkpoints):
                if match := _CHECKPOINT.fullmatch(name):
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
        attempts: dict[int, tuple[ResumePoint | None, list[Row]]] = {}
        for attempt in self.attempts():
            if last is None or attempt.number <= last:
                attempts[attempt.number] = read_metrics(attempt.metrics)
        return merge_attempts(attempts, last)

    def publish(self, result: Mapping[str, Any], manifest: Iterable[tuple[Path, bool]]) -> bool:
        """Publish the result, once. ``manifest``: files and whether the result is void without them.

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
        return write_exclusive(
            self.result_path, dump_json({**result, "run_id": self.run_id, "manifest": files}, indent=1)
        )

    def result(self) -> dict[str, Any] | None:
        """The published result, or ``None``. Raises :class:`DamagedFileError` if it is not one."""
        try:
            result = read_json(self.result_path)
        except FileNotFoundError:
            return None
        if not isinstance(result, dict) or result.get("run_id") != self.run_id:
            raise self._damaged(self.result_path, f"is not the result of run {self.run_id}")
        return result

    def verify(self, result: Mapping[str, Any], *, checksums: bool = False) -> None:
        """Check the result's required files: present, of their size, with ``checksums`` of their content."""
        for item in result["manifest"]:
            path = self.path / item["path"]
            if not item["required"]:
                continue
            if not path.is_file():
                raise self._damaged(path, "is missing, though the result needs it")
            size = path.stat().st_size
            if size != item["bytes"]:
                raise self._damaged(path, f"holds {size} bytes, the result says {item['bytes']}")
            if checksums and sha256(path) != item["sha256"]:
                raise self._damaged(path, "has other content than when the result was published")

    def retire_result(self) -> None:
        """Put a result aside, for a run that is to be done again. It stays readable as result-<n>.json."""
        number = 1
        while (aside := self.path / f"result-{number}.json").exists():
            number += 1
        try:
            os.link(self.result_path, aside)
            self.result_path.unlink()
        except FileNotFoundError:
            pass

    def _damaged(self, path: Path, problem: str) -> DamagedFileError:
        sweep = self.path.parent.parent.name
        hint = f"restore the file, or train the run again: orchestrate retry {sweep} {self.run_id}"
        return DamagedFileError(path, problem, hint=hint)


class SweepDir:
    """One sweep's folder."""

    def __init__(self, results: Path, name: str) -> None:
        if not SWEEP_NAME.fullmatch(name):
            raise OrchestrateError(
                f"{name!r} cannot name a sweep: letters, digits, '.', '_' and '-', 100 at most, "
                "beginning with a letter or digit"
            )
        self.results, self.name, self.path = results, name, results / name
        self.index_path = self.path / "index.tsv"
        self.table_parquet = self.path / "results.parquet"
        self.table_csv = self.path / "results.csv"
        self.metrics_parquet = self.path / "metrics.parquet"
        self.report = self.path / "report"
        self.report_page = self.report / "index.html"
        self._grids, self._ledger = self.path / "grids", self.path / "ledger"
        self._journals, self._runs = self.path / "journals", self.path / "runs"
        self._compacted = self._journals / "compacted.jsonl"

    @classmethod
    def existing(cls, results: Path, name: str) -> SweepDir:
        """The sweep's folder; :class:`NotFoundError` names the sweeps there are."""
        if SWEEP_NAME.fullmatch(name) and (results / name / "grids").is_dir():
            return cls(results, name)
        known = ", ".join(sweep.name for sweep in sweeps(results)) or "none yet"
        raise NotFoundError(f"no sweep named {name!r} in {results}/ (found: {known})")

    def create(self) -> None:
        with storage_errors(self.path):
            for folder in (self._grids, self._ledger, self._journals, self._runs):
                folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One command line at a time decides. An aid for order only: claims keep runs safe without it."""
        with storage_errors(self.path), open(self.path / ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Grids and the index

    def record_grid(self, text: str) -> int:
        """Keep the grid as submitted; its number. The same text as the latest is not stored again."""
        latest = self.latest_grid()
        if latest is not None and latest[1] == text:
            return latest[0]
        number = latest[0] + 1 if latest else 1
        write_atomic(self._grids / f"{number:04d}.yaml", text.encode())
        return number

    def latest_grid(self) -> tuple[int, str] | None:
        numbers = _numbered(self._grids, ".yaml")
        if not numbers:
            return None
        return numbers[-1], (self._grids / f"{numbers[-1]:04d}.yaml").read_text()

    def latest_grid_path(self) -> Path:
        return self._grids / f"{_numbered(self._grids, '.yaml')[-1]:04d}.yaml"

    def write_index(self, rows: Sequence[IndexRow]) -> None:
        lines = ["run_id\tin_grid\tpoint\n"]
        for row in rows:
            point = dump_json(row.point).decode()
            lines.append(f"{row.run_id}\t{int(row.in_grid)}\t{point}")
        write_atomic(self.index_path, "".join(lines).encode())

    def read_index(self) -> list[IndexRow]:
        import json

        try:
            lines = self.index_path.read_text().split("\n")
        except FileNotFoundError:
            return []
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            if not line:
                continue
            try:
                run_id, in_grid, point = line.split("\t", 2)
                rows.append(IndexRow(run_id, in_grid == "1", json.loads(point)))
            except ValueError as error:
                raise DamagedFileError(
                    self.index_path,
                    f"line {number} is not a run ({error})",
                    hint="run `orchestrate sweep` with the grid again: it writes the index anew",
                ) from error
        return rows

    # The ledger

    def add_to_ledger(self, kind: str, data: Mapping[str, Any]) -> int:
        """Append an entry; its number. Two writers never get the same one."""
        while True:
            numbers = _numbered(self._ledger, ".json")
            number = numbers[-1] + 1 if numbers else 1
            if write_exclusive(self._entry(number), dump_json({"kind": kind, **data}, indent=1)):
                return number

    def amend_ledger(self, number: int, kind: str, data: Mapping[str, Any]) -> None:
        """Complete one's own entry, as with the ids of its jobs."""
        write_atomic(self._entry(number), dump_json({"kind": kind, **data}, indent=1))

    def read_ledger(self, after: int = 0) -> list[LedgerEntry]:
        entries = []
        for number in _numbered(self._ledger, ".json"):
            if number > after:
                data = read_json(self._entry(number))
                entries.append(LedgerEntry(number, data.pop("kind"), data))
        return entries

    def _entry(self, number: int) -> Path:
        return self._ledger / f"{number:04d}.json"

    # Journals

    def take_token(self, token: str, started: Event) -> Journal | None:
        """Begin a worker's journal; ``None`` if the token is used up."""
        if not _TOKEN.fullmatch(token):
            raise OrchestrateError(f"{token!r} cannot name a worker")
        if any(log.token == token for log in self._read_compacted()):
            return None
        return Journal.create(self._journals / f"{token}.jsonl", started)

    def read_journals(self) -> list[WorkerLog]:
        """Every worker there ever was, by token."""
        logs: dict[str, WorkerLog] = {}
        for name in sorted(_listdir(self._journals)):
            if name.endswith(".jsonl") and name != self._compacted.name:
                try:
                    log = read_journal(self._journals / name)
                except FileNotFoundError:  # compacted a moment ago: below
                    continue
                logs[log.token] = log
        for log in self._read_compacted():  # after the files, so that none falls between
            logs.setdefault(log.token, log)
        return [logs[token] for token in sorted(logs)]

    def compact_journals(self, ended: Iterable[WorkerLog]) -> None:
        """Fold the journals of workers that left into one file. Call under :meth:`lock`."""
        ended = list(ended)
        if len(ended) < 2:
            return
        kept = {log.token: log for log in self._read_compacted()}
        write_compacted(self._compacted, [*kept.values(), *(log for log in ended if log.token not in kept)])
        for log in ended:
            (self._journals / f"{log.token}.jsonl").unlink(missing_ok=True)

    def worker_output(self, token: str) -> Path:
        """Where a worker's own output goes; a file of the job, removed when it stayed empty."""
        return self._journals / f"{token}.log"

    def _read_compacted(self) -> list[WorkerLog]:
        try:
            return read_compacted(self._compacted)
        except FileNotFoundError:
            return []

    # Runs

    def run(self, run_id: str) -> RunDir:
        assert RUN_ID.fullmatch(run_id), run_id
        return RunDir(self._runs / run_id)

    def run_ids(self) -> list[str]:
        return sorted(name for name in _listdir(self._runs) if RUN_ID.fullmatch(name))


def sweeps(results: Path) -> list[SweepDir]:
    """The sweeps in a results folder, by name."""
    names = (name for name in _listdir(results) if SWEEP_NAME.fullmatch(name))
    return [SweepDir(results, name) for name in sorted(names) if (results / name / "grids").is_dir()]


def attempt_ended(attempt: AttemptDir) -> bool:
    """Whether it is proved that nobody works on the attempt any more."""
    if attempt.end() is not None:
        return True
    claim = attempt.claim()
    assert claim is not None, attempt.path
    alive = claim.holder.alive()
    if alive is None:
        return age_by_file_server(attempt.claim_path) > 2 * lease_seconds()
    return not alive


def _end_leftovers(attempt: AttemptDir) -> bool:
    claim = attempt.claim()
    return claim is None or claim.holder.end_survivors()


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listdir(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _numbered(folder: Path, suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in _listdir(folder) if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())

"""Transfer the files of a job on a temporary machine: marks between it and home, and file lists.

::

    results/<sweep>/
      handover/<token>.ended.json    the job's worker ended: when, and with what exit code
               <token>.safe          home has all files of the job

Home reads the first on the machine and writes the second there. A sync fetches neither.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.attempts.attempt import CHECKPOINT, AttemptDir, listdir
from orchestrator.rundir.copies.synced import HANDOVER, RUNS
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic
from orchestrator.rundir.files.placed import written_files
from orchestrator.rundir.files.plain_files import read_plain
from orchestrator.rundir.run import ATTEMPTS, RETIRED, RunDir
from orchestrator.rundir.sweep import GRIDS, LEDGER, SweepDir

# A file's size in bytes and modification time in nanoseconds: different after every write.
Stamp = tuple[int, int]


@dataclass(frozen=True)
class WorkerEnd:
    """The end of a job's worker (epoch seconds by its machine's clock) and its exit code."""

    time: float
    exit_code: int


class Handover:
    """One job's marks in one results tree. Names are relative to the sweep's folder."""

    def __init__(self, sweep: SweepDir, token: str) -> None:
        self._sweep = sweep
        self.ended_name = PurePosixPath(HANDOVER, f"{token}.ended.json")
        self.safe_name = PurePosixPath(HANDOVER, f"{token}.safe")

    def mark_ended(self, ended: WorkerEnd) -> None:
        """Record that the worker ended."""
        self._write(self.ended_name, dump_json({"time": ended.time, "exit_code": ended.exit_code}))

    def ended(self) -> WorkerEnd | None:
        """Read the worker's end; None before it. Raises :class:`DamagedFileError`."""
        path = self._sweep.path / self.ended_name
        try:
            data = read_json(path)
            return WorkerEnd(float(data["time"]), int(data["exit_code"]))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(path, f"is not a worker's end record ({error!r})") from error

    def mark_safe(self) -> None:
        """Record, in a tree that this machine can write, that home has all files."""
        self._write(self.safe_name, b"")

    @property
    def is_safe(self) -> bool:
        """Whether home has all files of the job."""
        return (self._sweep.path / self.safe_name).exists()

    def _write(self, name: PurePosixPath, data: bytes) -> None:
        path = self._sweep.path / name
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True)
        write_atomic(path, data)


class JobFiles:
    """The present files of one job, named relative to the results folder."""

    def __init__(self, sweep: SweepDir, token: str) -> None:
        self._sweep, self._token = sweep, token
        self._handover = Handover(sweep, token)
        self._own: dict[Path, bool] = {}

    def records(self) -> list[str]:
        """List the files that define the sweep: its grids, index and ledger."""
        folder = self._sweep.path
        tops = (folder / GRIDS, folder / LEDGER, self._sweep.index_path)
        return [self._name(path) for top in tops for path, _ in _files(top)]

    def words(self) -> dict[str, Stamp]:
        """Return the journal and the output of the job's worker."""
        log = self._sweep.worker_output(self._token)
        found = [*_files(log.with_suffix(".jsonl")), *_files(log)]
        return {self._name(path): stamp for path, stamp in found if stamp[0]}

    def last_words(self) -> list[str]:
        """Return the last file to transfer: the end mark, if it exists."""
        name = self._handover.ended_name
        return [f"{self._sweep.name}/{name}"] if (self._sweep.path / name).exists() else []

    def attempts(self, run_id: str) -> list[str]:
        """Return the folders of this job's own attempts."""
        return [self._name(attempt.path) for attempt in self._own_attempts(run_id)]

    def reached(self, run_id: str) -> tuple[str, ...]:
        """List the job's milestones with a run: checkpoints, ends of attempts, the result."""
        found: list[str] = []
        for attempt in self._own_attempts(run_id):
            found += [name for name in listdir(attempt.checkpoints) if CHECKPOINT.fullmatch(name)]
            found += [f"end {attempt.number}"] * attempt.end_path.exists()
        result = bool(found) and self._run(run_id).result_path.exists()
        return (*sorted(found), *["result"] * result)

    def folder(self, run_id: str) -> str:
        """Return the name of a run's folder."""
        return self._name(self._run(run_id).path)

    def result_name(self, run_id: str) -> str:
        """Return the name of a run's result file."""
        return self._name(self._run(run_id).result_path)

    def result(self, run_id: str) -> str | None:
        """Return the name of the run's result file if it exists."""
        return self.result_name(run_id) if self._run(run_id).result_path.exists() else None

    def listed(self, run_id: str) -> list[str]:
        """List the files that the run's result requires. Raises :class:`DamagedFileError`."""
        return [
            f"{self.folder(run_id)}/{item.path}" for item in self._run(run_id).manifest() if item.required
        ]

    def is_result(self, run_id: str, data: bytes) -> bool:
        """Return whether ``data`` equals the run's result here."""
        path = self._run(run_id).result_path
        return path.exists() and read_plain(path) == data

    def was_put_aside(self, run_id: str, data: bytes) -> bool:
        """Return whether ``data`` is a former result of the run that a retry retired."""
        folder = self._run(run_id).path
        aside = [folder / name for name in listdir(folder) if RETIRED.fullmatch(name)]
        return any(read_plain(path) == data for path in aside)

    def files(self, run_id: str) -> dict[str, Stamp]:
        """Return all files of a run except its result, scratch and unfinished ones."""
        run = self._run(run_id)
        # List checkpoints first: a file that one depends on then exists when it is listed.
        found = {path: stamp for one in run.attempts() for path, stamp in _files(one.checkpoints)}
        left_out = {run.result_path, run.work, *(attempt.scratch for attempt in run.attempts())}
        for path, stamp in _files(run.path, left_out):
            if not is_checkpoint(path.name):
                found[path] = stamp
        for path in written_files(run.work):
            found |= _files(path)
        return {self._name(path): stamp for path, stamp in found.items()}

    def _own_attempts(self, run_id: str) -> list[AttemptDir]:
        return [attempt for attempt in self._run(run_id).attempts() if self._is_own(attempt)]

    def _is_own(self, attempt: AttemptDir) -> bool:
        if attempt.path not in self._own:
            try:
                claim = attempt.claim()
            except DamagedFileError:
                claim = None
            self._own[attempt.path] = claim is not None and claim.worker == self._token
        return self._own[attempt.path]

    def _run(self, run_id: str) -> RunDir:
        return self._sweep.run(run_id)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._sweep.results).as_posix()


def is_checkpoint(name: str) -> bool:
    """Return whether the name, with or without a folder, is a checkpoint's."""
    return CHECKPOINT.fullmatch(PurePosixPath(name).name) is not None


def attempt_of(name: str) -> str | None:
    """Return the attempt's folder of a file named as in :class:`JobFiles`; None if there is none."""
    parts = PurePosixPath(name).parts
    of_attempt = len(parts) > 5 and parts[1] == RUNS and parts[3] == ATTEMPTS
    return "/".join(parts[:5]) if of_attempt else None


def _files(path: Path, without: Collection[Path] = ()) -> Iterator[tuple[Path, Stamp]]:
    """Yield plain files at or below a path, without hidden files and links; vanished ones are skipped."""
    if path in without:
        return
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            yield path, (found.st_size, found.st_mtime_ns)
        names = sorted(os.listdir(path)) if stat.S_ISDIR(found.st_mode) else []
    except FileNotFoundError:
        return
    for name in names:
        if not name.startswith("."):
            yield from _files(path / name, without)

"""The results tree: with its neighbours the one place that knows a file name in it.

::

    results/<sweep>/
      grids/0001.yaml …            every grid as submitted; the latest defines the sweep
      ledger/0001.json …           one entry per submission, cancellation or retry, in order
      journals/<token>.jsonl       one per worker; compacted.jsonl holds those that left
      scripts/<token>.sh           what was submitted, one per job or job array
      code/<id>/                   the code that a submission's jobs run
      heard/<place>.json           what trees behind ssh last said of runs that they were given
      handover/<token>…            marks between a job on a cloud instance and home
      index.tsv                    run_id ↔ overrides
      descriptions/0001.tsv …      the runs of a submission, until each has its folder
      runs/<run_id>/
        run.json                   the immutable run description, as the run was first claimed
        attempts/<n>/claim         who works on it; its modification time is the lease
                     log.txt  metrics.jsonl  checkpoints/  scratch/  wandb/ or wandb.tar  events.out.tfevents…
                     end.json      why the attempt ended
        result.json                last, by link(): the result with its manifest of checksums
        retired-<n>.json           a result put aside by a retry, or why there is none: of attempts up to n
      results.parquet  results.csv  metrics.parquet  marl_eval.json  report/
      compare-<key>/               a comparison by that key: its table and pictures
      speeds.json                  how fast its finished runs were; made of their results, again when lost
      uploads.jsonl                which runs went up to W&B from here
      evaluations/<run_id>-….json  what trained policies achieved when they were evaluated
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError, NotFoundError, OrchestrateError
from orchestrator.core.types import Run
from orchestrator.rundir.atomic import (
    check_writable,
    dump_json,
    read_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.descriptions import Descriptions
from orchestrator.rundir.evaluations import EvaluationLog
from orchestrator.rundir.holder import Holder
from orchestrator.rundir.index import RUN_ID, IndexRow, index_text, parse_index
from orchestrator.rundir.journal import (
    Event,
    Journal,
    JournalReader,
    WorkerLog,
    ends_with_exit,
    read_compacted,
    read_journal,
    write_compacted,
)
from orchestrator.rundir.plain_files import Version, open_to_write, read_plain, version_of
from orchestrator.rundir.run import RunDir, listdir
from orchestrator.rundir.uploads import UploadLog

# How the folders of comparisons begin.
COMPARISON = "compare-"
SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Kinds of ledger entries that name runs and their newest attempts, and some of them a place.
_OF_RUNS = ("cancel", "retry", "memory", "assigned", "recalled", "released", "share")
_PLACE = {"name", "address", "ssh", "folder"}
_FOUND = {"attempt", "frames", "value", "code_id"}
_INDEX_HINT = "run `orchestrate sweep` with the grid again: it writes the index anew"
_COPIED_INDEX_HINT = "sync again once it is repaired at its source"
# For so many seconds after its worker left, a job's output is not taken away: it may submit what is left.
_LAST_WORDS_S = 900.0
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


@dataclass(frozen=True)
class LedgerEntry:
    """One decision of a person or a command line. ``number`` orders them all."""

    number: int
    kind: str
    data: Mapping[str, Any]


# The kind of a ledger entry that cannot be read; its ``problem`` says why.
DAMAGED = "damaged"


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
        self.marl_eval = self.path / "marl_eval.json"
        self.report = self.path / "report"
        self.report_page = self.report / "index.html"
        self.speeds = self.path / "speeds.json"
        self.uploads = UploadLog(self.path / "uploads.jsonl")
        self.evaluations = EvaluationLog(self.path, "evaluations", "sources")
        self._descriptions = Descriptions(self.path)
        self._reader = JournalReader()
        self._index: tuple[Version, list[IndexRow]] | None = None
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
        with storage_errors(self.path), open_to_write(self.path / ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def lock_if_free(self) -> Iterator[bool]:
        """As :meth:`lock`, but ``False`` at once where somebody else decides just now."""
        with storage_errors(self.path), open_to_write(self.path / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def check_writable(self) -> None:
        """Raise ``StorageError`` unless there is room for more than a few lines."""
        check_writable(self._journals)

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
        return numbers[-1], _text(self._grids / f"{numbers[-1]:04d}.yaml")

    def latest_grid_path(self) -> Path:
        return self._grids / f"{_numbered(self._grids, '.yaml')[-1]:04d}.yaml"

    def write_index(self, rows: Sequence[IndexRow]) -> None:
        write_atomic(self.index_path, index_text(rows).encode())

    def read_index(self) -> list[IndexRow]:
        copy = (self.path / ".synced" / "copy.json").exists()
        hint = _COPIED_INDEX_HINT if copy else _INDEX_HINT
        try:
            version = version_of(os.stat(self.index_path))
            if self._index is None or self._index[0] != version:
                text = _text(self.index_path, hint=hint)
                self._index = version, parse_index(self.index_path, text, hint)
        except FileNotFoundError:
            return []
        return list(self._index[1])

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
        """Every entry after that number, in order. One that cannot be read is of kind "damaged"."""
        numbers = _numbered(self._ledger, ".json")
        return [self._read_entry(number) for number in numbers if number > after]

    def _read_entry(self, number: int) -> LedgerEntry:
        path = self._entry(number)
        try:
            data = read_json(path)
            entry = LedgerEntry(number, data.pop("kind"), data)
            _require_shape(entry.kind, data)
        except (DamagedFileError, OSError) as error:
            return LedgerEntry(number, DAMAGED, {"problem": str(error)})
        except (AttributeError, KeyError, TypeError) as error:
            return LedgerEntry(number, DAMAGED, {"problem": f"{path}: is not a ledger entry ({error!r})"})
        return entry

    def _entry(self, number: int) -> Path:
        return self._ledger / f"{number:04d}.json"

    # Journals

    def take_token(self, token: str, started: Event) -> Journal | None:
        """Begin a worker's journal, or go on with it in the same job begun again; ``None`` if it is used."""
        if not _TOKEN.fullmatch(token):
            raise OrchestrateError(f"{token!r} cannot name a worker")
        path = self._journals / f"{token}.jsonl"
        if self._compacted_token(token):
            return None
        # Two takers in one millisecond must not write the same bytes: each would think it was the one.
        own = replace(started, data={**started.data, "nonce": secrets.token_hex(8)})
        journal = Journal.create(path, own)
        if journal is None:
            return self._resume_journal(path, own)
        if self._compacted_token(token):  # compacted between the two lines above
            path.unlink()
            return None
        return journal

    def has_begun(self, token: str) -> bool:
        """Whether a worker ever took that token, or it was used up."""
        return (self._journals / f"{token}.jsonl").exists() or self._compacted_token(token)

    def has_left(self, token: str) -> bool:
        """Whether the worker with that token says last that it left, or its journal is folded away."""
        try:
            return ends_with_exit(self._journals / f"{token}.jsonl")
        except FileNotFoundError:
            return True

    def worker_log(self, token: str) -> WorkerLog | None:
        """What the worker with that token told so far; ``None`` if nobody took it, or it is told no more."""
        try:
            return read_journal(self._journals / f"{token}.jsonl")
        except FileNotFoundError:
            return None

    def _resume_journal(self, path: Path, started: Event) -> Journal | None:
        """The journal of this very job, which was given back to the queue; ``None`` if it is another's."""
        try:
            before = read_journal(path).holder
        except FileNotFoundError:
            return None
        holder = Holder.from_json(started.data["holder"]) if "holder" in started.data else None
        if before is None or holder is None or not holder.continues(before):
            return None
        journal = Journal(path)
        journal.append(started)
        return journal

    def read_journals(self) -> list[WorkerLog]:
        """Every worker there ever was, by token."""
        logs: dict[str, WorkerLog] = {}
        for name in sorted(listdir(self._journals)):
            if name.endswith(".jsonl") and name != self._compacted.name:
                try:
                    log = self._reader.read(self._journals / name)
                except FileNotFoundError:  # compacted a moment ago: below
                    continue
                logs[log.token] = log
        for log in self._read_compacted():  # after the files, so that none falls between
            logs.setdefault(log.token, log)
        return [logs[token] for token in sorted(logs)]

    def compact_journals(self, ended: Iterable[WorkerLog]) -> None:
        """Fold the journals of workers that left into one file. Call under :meth:`lock`."""
        ended = [log for log in ended if not log.damaged]  # that one stays, for a person to look at
        if not ended:
            return
        kept = {log.token: log for log in self._read_compacted()}
        write_compacted(self._compacted, [*kept.values(), *(log for log in ended if log.token not in kept)])
        for log in ended:
            (self._journals / f"{log.token}.jsonl").unlink(missing_ok=True)

    def clear_empty_outputs(self) -> None:
        """Remove empty outputs of workers that are gone for good: their journals are folded for long."""
        with os.scandir(self._journals) as entries:
            files = [entry for entry in entries if entry.name.endswith(".log") and entry.is_file()]
            empty = [Path(entry.path) for entry in files if not entry.stat().st_size]
        logs = self._read_compacted() if empty else []
        # A job outlives its journal while it submits what is left, and may have something to say of that.
        before = time.time() - _LAST_WORDS_S
        folded = {log.token for log in logs if not log.events or log.events[-1].time < before}
        for path in empty:
            if path.stem in folded:
                path.unlink(missing_ok=True)

    def worker_output(self, token: str) -> Path:
        """Where a worker's own output goes; a file of the job, removed when it stayed empty."""
        return self._journals / f"{token}.log"

    def mailbox(self, token: str) -> Path:
        """Where a job's script leaves word for its worker; gone when the job is."""
        return self._journals / f"{token}.mail"

    def heard(self, place: str) -> Path:
        """What a tree behind ssh last said of its runs; ``place`` names it. Lost, it is heard again."""
        return self.path / "heard" / f"{place}.json"

    def script(self, token: str) -> Path:
        """What is submitted for an array."""
        return self.path / "scripts" / f"{token}.sh"

    def keep_script(self, token: str, text: str) -> None:
        path = self.script(token)
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True)
        write_atomic(path, text.encode())

    def _compacted_token(self, token: str) -> bool:
        return any(log.token == token for log in self._read_compacted())

    def _read_compacted(self) -> list[WorkerLog]:
        try:
            return read_compacted(self._compacted)
        except FileNotFoundError:
            return []

    # Runs

    def run(self, run_id: str) -> RunDir:
        assert RUN_ID.fullmatch(run_id), run_id
        return RunDir(self._runs / run_id, self._descriptions)

    def run_ids(self) -> list[str]:
        """Every run that has a folder or is described."""
        return sorted(filter(RUN_ID.fullmatch, {*listdir(self._runs), *self._descriptions.run_ids()}))

    def describe(self, runs: Iterable[Run]) -> dict[str, str]:
        """Store the descriptions of runs that are to be trained; those whose folders take none, and why.

        All runs without a folder share one file. From its first attempt on a run's description never changes.
        Call under :meth:`lock`.
        """
        folders, new, problems = set(listdir(self._runs)), [], {}
        for run in runs:
            try:
                if run.run_id in folders:
                    self.run(run.run_id).describe(run)
                elif not self._is_described(run):
                    new.append(run)
            except (DamagedFileError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                problems[run.run_id] = str(error)
        self._descriptions.add(new)
        return problems

    def _is_described(self, run: Run) -> bool:
        try:
            found = self._descriptions.find(run.run_id)
            return found is not None and dump_json(found.to_json()) == dump_json(run.to_json())
        except DamagedFileError:
            return False


def comparison_dir(home: Path, key: str) -> Path:
    """Where a comparison by ``key`` goes: in a sweep's folder, or of several sweeps in that of all."""
    return home / (COMPARISON + re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[:80])


def sweeps(results: Path) -> list[SweepDir]:
    """The sweeps in a results folder, by name."""
    names = (name for name in listdir(results) if SWEEP_NAME.fullmatch(name))
    return [SweepDir(results, name) for name in sorted(names) if (results / name / "grids").is_dir()]


def _require_shape(kind: str, data: Mapping[str, Any]) -> None:
    """Raise ``KeyError`` or ``TypeError`` unless an entry of that kind holds what its readers rely on."""
    if kind == "submission":
        _require(data["job_ids"], str)
        _require(data["skipped"], str)
        if not isinstance(data["time"], int | float) or not isinstance(data["jobs"], list):
            raise TypeError("a submission has a time and a list of jobs")
        for job in data["jobs"]:
            if not isinstance(job["token"], str) or not isinstance(job["run_ids"], list):
                raise TypeError("a job has a token and a list of runs")
            if any(type(run_id) is not str for run_id in job["run_ids"]):
                raise TypeError("runs are named by texts")
    elif kind in _OF_RUNS:
        _require(data["runs"], int)
        _require_place(kind, data)
    elif kind == "found":
        _require(data["runs"], dict)
        for about in data["runs"].values():
            if set(about) - _FOUND or type(about["attempt"]) is not int:
                raise TypeError(f"a result found is told by {sorted(_FOUND)}")


def _require_place(kind: str, data: Mapping[str, Any]) -> None:
    """As :func:`_require_shape`, for entries about results trees elsewhere."""
    if kind in ("assigned", "recalled", "released"):
        _require(data["place"], str)
        if set(data["place"]) != _PLACE:
            raise TypeError(f"a place has {sorted(_PLACE)}")
    if kind == "share":
        _require({name: data[name] for name in ("home", "owner")}, str)
        _require({"number": data["number"]}, int)
    if kind == "assigned":
        code = data["code"]
        _require({"home": data["home"], "id": code["id"], "cwd": code["cwd"] or ""}, str)
        _require({"accepted": data["accepted"]}, bool)
        if any(type(path) is not str for path in code["python_path"]):
            raise TypeError("folders are texts")


def _require(value: Any, of: type) -> None:
    if not isinstance(value, dict) or any(type(item) is not of for item in value.values()):
        raise TypeError(f"expected {of.__name__} by name, found {value!r}"[:200])


def _text(path: Path, hint: str | None = None) -> str:
    try:
        return read_plain(path).decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(path, f"is not text ({error})", hint=hint) from error
    except DamagedFileError as error:
        error.hint = hint
        raise


def _numbered(folder: Path, suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in listdir(folder) if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())

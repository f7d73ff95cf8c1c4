"""A sweep's folder in the results tree: grids, index, ledger, journals, runs.

::

    results/<sweep>/
      grids/0001.yaml …            every grid as submitted; the latest defines the sweep
      ledger/0001.json …           one entry per submission, cancellation or retry, in order
      journals/<token>.jsonl       one per worker; compacted.jsonl holds those of exited workers
      scripts/<token>.sh           the submitted script, one per job or job array
      code/<id>/                   the code snapshot of a submission
      heard/<place>.json           the last status from trees behind ssh of runs assigned to them
      handover/<token>…            marks between a job on a cloud instance and home
      index.tsv                    run_id ↔ overrides
      descriptions/0001.tsv …      descriptions of a submission's runs, until each has its folder
      runs/<run_id>/
        run.json                   the immutable run description, from the first claim on
        attempts/<n>/claim         its holder; the modification time renews the lease
                     log.txt  metrics.jsonl  checkpoints/  scratch/  wandb/ or wandb.tar  events.out.tfevents…
                     end.json      the reason of the attempt's end
        attempts/0/                a shorter run's final state, which prefix.json names: the run's beginning
        adopted.json               the tree that an adopted run comes from
        result.json                last, by link(): the result with its manifest of checksums
        retired-<n>.json           a result retired by a retry, or the reason for none: of attempts up to n
      results.parquet  results.csv  metrics.parquet  marl_eval.json  report/  figures/
      compare-<key>/               a comparison by that key: its table and pictures
      speeds.json                  speeds of its finished runs, derived from their results
      uploads.jsonl                runs uploaded to W&B from here
      notices/0001-failure …       messages sent by `notify`, by submission and kind
      evaluations/<run_id>-….json  evaluations of trained policies
      audits/<code_id>.json        what resume loses, as `orchestrate audit` found
      verified/<run_id>-….json     runs trained again by `verify`, and what differed
      .verify/                     trees in which it trains them
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

from orchestrator.core.errors import DamagedFileError, FormatError, NotFoundError, OrchestrateError
from orchestrator.core.formats import require_known_format, stamp
from orchestrator.core.machine.file_locks import lock
from orchestrator.core.records import parse
from orchestrator.core.types import Run
from orchestrator.rundir.attempts.attempt import listdir
from orchestrator.rundir.attempts.holder import Holder
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.descriptions import Descriptions
from orchestrator.rundir.evaluations import EvaluationLog
from orchestrator.rundir.files.atomic import (
    check_writable,
    dump_json,
    read_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.files.file_server import is_server_error
from orchestrator.rundir.files.kinds import MALFORMED
from orchestrator.rundir.files.plain_files import Version, current_version, open_to_write, read_text
from orchestrator.rundir.index import COPIED_INDEX_HINT, RUN_ID, SWEEP_NAME, IndexFile, IndexRow
from orchestrator.rundir.records.audits import AuditLog
from orchestrator.rundir.records.journal import (
    Event,
    Journal,
    JournalReader,
    WorkerLog,
    ends_with_exit,
    read_journal,
    write_compacted,
)
from orchestrator.rundir.records.ledger_entries import DamagedEntry, LedgerEntry, parse_entry
from orchestrator.rundir.records.verifications import SCRATCH, VerificationLog
from orchestrator.rundir.run import RunDir
from orchestrator.rundir.uploads import UploadLog
from orchestrator.rundir.versions import SweepCopies, counting_run

# Prefix of a comparison's folder.
COMPARISON = "compare-"
GRIDS, LEDGER = "grids", "ledger"
_INDEX_HINT = "run `orchestrate sweep` with the grid again: it writes the index anew"
# Seconds after a worker's exit for which its output stays: the job may still submit waiting runs.
_LAST_WORDS_S = 900.0
_STAMP = frozenset(stamp())
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class SweepDir:
    """The folder of one sweep."""

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
        self.report, self.figures = self.path / "report", self.path / "figures"
        self.speeds = self.path / "speeds.json"
        self.uploads = UploadLog(self.path / "uploads.jsonl")
        self.evaluations = EvaluationLog(self.path)
        self.audits = AuditLog(self.path)
        self.verifications, self.verify_scratch = VerificationLog(self.path), self.path / SCRATCH
        self._descriptions = Descriptions(self.path)
        self._reader = JournalReader()
        self._entries: dict[int, tuple[Version, LedgerEntry]] = {}
        self._index = IndexFile(self.index_path, lambda run_id: self.run(run_id).description())
        self._copies = SweepCopies(self.path, SweepDir)
        self._grids, self._ledger = self.path / GRIDS, self.path / LEDGER
        self._journals, self._runs = self.path / "journals", self.path / "runs"
        self._compacted = self._journals / "compacted.jsonl"

    @classmethod
    def existing(cls, results: Path, name: str) -> SweepDir:
        """Return an existing sweep's folder; otherwise :class:`NotFoundError` lists the sweeps."""
        if SWEEP_NAME.fullmatch(name) and (results / name / GRIDS).is_dir():
            return cls(results, name)
        known = [sweep.name for sweep in sweeps(results)]
        meant = Path(name).stem if name.endswith((".yaml", ".yml")) else name
        near = get_close_matches(meant, known, 1)
        raise NotFoundError(
            f"no sweep named {name!r} in {results}/ (found: {', '.join(known) or 'none yet'})",
            hint=f"did you mean {near[0]}?" if near else None,
        )

    def is_used_by(self, user: int) -> bool:
        """Return whether the user made the sweep, has a decision in its ledger, or may yet make it."""
        if not self.path.exists():
            return True
        made = (path.stat().st_uid for path in (self.path, *self._ledger.glob("*.json")))
        return user in made

    def create(self) -> None:
        """Create the sweep's folders."""
        with storage_errors(self.path):
            for folder in (self._grids, self._ledger, self._journals, self._runs):
                folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one command at a time decide. Orders decisions only: claims keep runs safe without it."""
        with storage_errors(self.path), open_to_write(self.path / ".lock", "a") as file:
            lock(file)
            yield

    @contextmanager
    def lock_if_free(self) -> Iterator[bool]:
        """Yield True holding :meth:`lock`, or False at once while another command holds it."""
        with storage_errors(self.path), open_to_write(self.path / ".lock", "a") as file:
            yield lock(file, wait=False)

    def check_writable(self) -> None:
        """Raise ``StorageError`` unless there is space for more than a few lines."""
        check_writable(self._journals)

    def mark_notice(self, name: str, nonce: str) -> bool:
        """Note that a message is about to be sent; return False if it is noted already."""
        folder = self.path / "notices"
        folder.mkdir(exist_ok=True)
        return write_exclusive(folder / name, nonce.encode())

    # Grids and the index

    def record_grid(self, text: str) -> int:
        """Store the grid as submitted; return its number. A grid equal to the latest is not stored again."""
        latest = self.latest_grid()
        if latest is not None and latest[1] == text:
            return latest[0]
        number = latest[0] + 1 if latest else 1
        write_atomic(self._grids / f"{number:04d}.yaml", text.encode())
        return number

    def latest_grid(self) -> tuple[int, str] | None:
        """Return the number and text of the latest grid; None before the first."""
        numbers = _numbered(self._grids, ".yaml")
        if not numbers:
            return None
        return numbers[-1], read_text(self._grids / f"{numbers[-1]:04d}.yaml")

    def latest_grid_path(self) -> Path:
        """Return the path of the latest grid."""
        return self._grids / f"{_numbered(self._grids, '.yaml')[-1]:04d}.yaml"

    def write_index(self, rows: Sequence[IndexRow]) -> None:
        """Replace the index."""
        self._index.write(rows)

    def read_index(self) -> list[IndexRow]:
        """Read the index, in a copy also of further sources where it is undamaged.

        Raises :class:`DamagedFileError`.
        """
        is_copy = read_copy(self.path) is not None
        found = list(self._index.read(COPIED_INDEX_HINT if is_copy else _INDEX_HINT))
        for copy in self.copies() if is_copy else ():
            known = {row.run_id for row in found}
            with suppress(DamagedFileError):
                found += [row for row in copy.read_index() if row.run_id not in known]
        return found

    # The ledger

    def add_to_ledger(self, entry: LedgerEntry) -> int:
        """Append an entry; return its number. Two writers never get the same one."""
        while True:
            numbers = _numbered(self._ledger, ".json")
            number = numbers[-1] + 1 if numbers else 1
            if write_exclusive(self._entry(number), dump_json({**stamp(), **entry.to_json()}, indent=1)):
                return number

    def amend_ledger(self, entry: LedgerEntry) -> None:
        """Replace this command's own entry, as with the ids of its jobs."""
        write_atomic(self._entry(entry.number), dump_json({**stamp(), **entry.to_json()}, indent=1))

    def read_ledger(self, after: int = 0, *, strict: bool = True) -> list[LedgerEntry]:
        """Return every entry after that number, in order. An unreadable one has the kind "damaged".

        Raises :class:`FormatError` for an entry of another format; unless ``strict``, that is unreadable too.
        """
        numbers = _numbered(self._ledger, ".json")
        return [self._read_entry(number, strict) for number in numbers if number > after]

    def _read_entry(self, number: int, strict: bool) -> LedgerEntry:
        path = self._entry(number)
        try:
            version = current_version(path)
            known = self._entries.get(number)
            if known is not None and known[0] == version:
                return known[1]
            record = read_json(path)
            if type(record.get("format", 0)) is not int:
                raise TypeError("a format is a number")
            require_known_format(record, path)
            entry = parse_entry({name: record[name] for name in record if name not in _STAMP}, number)
            self._entries[number] = version, entry
            return entry
        except FormatError as error:
            if strict:
                raise
            return DamagedEntry(number=number, problem=str(error))
        except (DamagedFileError, OSError) as error:
            if not strict and is_server_error(error):
                raise  # damaged, it would be passed over for good
            return DamagedEntry(number=number, problem=str(error))
        except MALFORMED as error:
            return DamagedEntry(number=number, problem=f"{path}: is not a ledger entry ({error!r})")

    def _entry(self, number: int) -> Path:
        return self._ledger / f"{number:04d}.json"

    # Journals

    def take_token(self, token: str, started: Event) -> Journal | None:
        """Start a worker's journal, or continue it in the same requeued job; None if the token is taken."""
        if not _TOKEN.fullmatch(token):
            raise OrchestrateError(f"{token!r} cannot name a worker")
        path = self._journals / f"{token}.jsonl"
        if self._compacted_token(token):
            return None
        # The nonce makes simultaneous starts differ: with equal bytes both would seem to be the holder.
        own = started.adding(nonce=secrets.token_hex(8))
        journal = Journal.create(path, own)
        if journal is None:
            return self._resume_journal(path, own)
        if self._compacted_token(token):  # compacted between the two lines above
            path.unlink()
            return None
        return journal

    def has_begun(self, token: str) -> bool:
        """Return whether a worker ever took the token, or it was revoked."""
        return bool(self.begun([token]))

    def begun(self, tokens: Iterable[str]) -> set[str]:
        """Return those of the tokens that a worker ever took, or that were revoked."""
        wanted, names = set(tokens), set(listdir(self._journals))
        found = {token for token in wanted if f"{token}.jsonl" in names}
        if found < wanted:  # looked at after the files, so that none is missed
            found |= wanted & {log.token for log in self._read_compacted()}
        return found

    def has_left(self, token: str) -> bool:
        """Return whether the worker's last event is its exit, or its journal is compacted."""
        try:
            return ends_with_exit(self._journals / f"{token}.jsonl")
        except FileNotFoundError:
            return True

    def worker_log(self, token: str) -> WorkerLog | None:
        """Return the worker's log so far; None if the token is not taken or the journal is compacted."""
        try:
            return read_journal(self._journals / f"{token}.jsonl")
        except FileNotFoundError:
            return None

    def _resume_journal(self, path: Path, started: Event) -> Journal | None:
        """Continue the journal of this very job after a requeue; None if it is another job's."""
        try:
            before = read_journal(path).holder
        except FileNotFoundError:
            return None
        holder = parse(Holder, started.data["holder"]) if "holder" in started.data else None
        if before is None or holder is None or not holder.continues(before):
            return None
        journal = Journal(path, started)
        journal.append(started)
        return journal

    def read_journals(self) -> list[WorkerLog]:
        """Return the logs of all workers, sorted by token."""
        logs: dict[str, WorkerLog] = {}
        for name in sorted(listdir(self._journals)):
            if name.endswith(".jsonl") and name != self._compacted.name:
                try:
                    log = self._reader.read(self._journals / name)
                except FileNotFoundError:  # compacted a moment ago: read below
                    continue
                logs[log.token] = log
        for log in self._read_compacted():  # after the files, so that none is missed
            logs.setdefault(log.token, log)
        return [logs[token] for token in sorted(logs)]

    def compact_journals(self, ended: Iterable[WorkerLog]) -> None:
        """Compact the journals of exited workers into one file. Call under :meth:`lock`."""
        ended = [log for log in ended if not log.damaged]  # damaged ones stay for a user to inspect
        if not ended:
            return
        kept = {log.token: log for log in self._read_compacted()}
        write_compacted(self._compacted, [*kept.values(), *(log for log in ended if log.token not in kept)])
        for log in ended:
            (self._journals / f"{log.token}.jsonl").unlink(missing_ok=True)

    def clear_empty_outputs(self) -> None:
        """Remove empty outputs of workers after their journals were compacted long ago."""
        with os.scandir(self._journals) as entries:
            files = [entry for entry in entries if entry.name.endswith(".log") and entry.is_file()]
            empty = [Path(entry.path) for entry in files if not entry.stat().st_size]
        logs = self._read_compacted() if empty else []
        # A job outlives its journal while it submits waiting runs, and may still print errors.
        before = time.time() - _LAST_WORDS_S
        folded = {log.token for log in logs if not log.events or log.events[-1].time < before}
        for path in empty:
            if path.stem in folded:
                path.unlink(missing_ok=True)

    def worker_output(self, token: str) -> Path:
        """Return the file of a worker's own output, removed if it stays empty."""
        return self._journals / f"{token}.log"

    def mailbox(self, token: str) -> Path:
        """Return the file through which a job's script notifies its worker; removed with the job."""
        return self._journals / f"{token}.mail"

    def heard(self, place: str) -> Path:
        """Return the file with the last status from a tree behind ssh, named ``place``; restored if lost."""
        return self.path / "heard" / f"{place}.json"

    def script(self, token: str) -> Path:
        """Return the file of an array's submitted script."""
        return self.path / "scripts" / f"{token}.sh"

    def keep_script(self, token: str, text: str) -> None:
        """Store an array's script."""
        path = self.script(token)
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True)
        write_atomic(path, text.encode())

    def _compacted_token(self, token: str) -> bool:
        return any(log.token == token for log in self._read_compacted())

    def _read_compacted(self) -> list[WorkerLog]:
        try:
            return self._reader.read_compacted(self._compacted)
        except FileNotFoundError:
            return []

    # Runs

    def run(self, run_id: str) -> RunDir:
        """Return the folder of a run."""
        assert RUN_ID.fullmatch(run_id), run_id
        return RunDir(self._runs / run_id, self._descriptions)

    def copies(self) -> list[SweepDir]:
        """Return the copies of this sweep from further sources, in the order of their first sync."""
        return list(self._copies.read()[0])

    def versions(self, run_id: str) -> list[RunDir]:
        """Return the folders of all versions of a run: the sweep's own first, then by further source."""
        return [one.run(run_id) for one in (self, *self.copies())]

    def run_to_read(self, run_id: str) -> RunDir:
        """Return the folder of a run's version that counts, for readers. Workers write to :meth:`run`."""
        copies, is_copy = self._copies.read()
        return counting_run(self.run(run_id), [copy.run(run_id) for copy in copies], is_copy=is_copy)

    def run_folders(self) -> set[str]:
        """Return the ids of all runs with a folder, here or in a copy."""
        own = set(filter(RUN_ID.fullmatch, listdir(self._runs)))
        return own.union(*(copy.run_folders() for copy in self.copies()))

    def run_ids(self) -> list[str]:
        """Return the ids of all runs with a folder or a description."""
        return sorted({*self.run_folders(), *filter(RUN_ID.fullmatch, self._descriptions.run_ids())})

    def describe(self, runs: Iterable[Run]) -> dict[str, str]:
        """Store descriptions of runs to be trained; return refused ones with the reason.

        All runs without a folder share one file. After its first attempt a run's description never changes.
        Call under :meth:`lock`.
        """
        folders, new, problems = set(listdir(self._runs)), [], {}
        for run in runs:
            try:
                if run.run_id in folders:
                    self.run(run.run_id).describe(run)
                elif not self._descriptions.has(run):
                    new.append(run)
            except (DamagedFileError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                problems[run.run_id] = str(error)
        self._descriptions.add(new)
        return problems


def comparison_dir(home: Path, key: str) -> Path:
    """Return the folder of a comparison by ``key``, in ``home``: a sweep's folder or that of all sweeps."""
    return home / (COMPARISON + re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[:80])


def sweeps(results: Path) -> list[SweepDir]:
    """Return the sweeps in a results folder, by name."""
    names = (name for name in listdir(results) if SWEEP_NAME.fullmatch(name))
    return [SweepDir(results, name) for name in sorted(names) if (results / name / GRIDS).is_dir()]


def _numbered(folder: Path, suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in listdir(folder) if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())

"""Copies of sweeps from elsewhere: their layout, their state, and the selection of files to fetch.

::

    results/<sweep>/                 a sweep of this tree's own, or a copy of one source's
      .synced/                       beside copy.json (copy_origin.py):
        lock                         held by a running sync
        refused.json                 finished runs there that were refused, with the reason
        state.json                   verified runs
        incoming/  results/          during a sync
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.machine.file_locks import lock
from orchestrator.rundir.attempts.absent_files import MARK
from orchestrator.rundir.attempts.attempt import AttemptDir, listdir
from orchestrator.rundir.attempts.fingerprint import fingerprint, is_unchanged
from orchestrator.rundir.copy_origin import SOURCES, SYNCED, read_copy
from orchestrator.rundir.files.atomic import dump_json, read_json, storage_errors, write_atomic
from orchestrator.rundir.files.plain_files import open_to_write
from orchestrator.rundir.records.journal import JournalReader
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.run import RETIRED, RunDir
from orchestrator.rundir.sweep import COMPARISON, SweepDir

# In a results folder: downloads from buckets in progress.
PARTIAL, BUCKETS = ".partial", ".buckets"

# Kinds of files that `--only` can name; a run's small records are always fetched.
KINDS = ("metrics", "checkpoints", "tensorboard", "wandb", "logs")

RUNS, CODE, INDEX, RESULT = "runs", "code", "index.tsv", "result.json"
JOURNALS, COMPACTED = "journals", "compacted.jsonl"
HANDOVER = "handover"
# Made from the runs by `collect`, `report` and `compare`.
_DERIVED = ("results.parquet", "results.csv", "metrics.parquet", "marl_eval.json", "report")
# Records of this tree's own actions, and of other trees' status.
_OWN = ("uploads.jsonl", "speeds.json", "heard", HANDOVER, SOURCES, INDEX)
_CODE_ID = re.compile(r"[0-9a-f]{16}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# The number of an attempt that no run reaches: of the next attempt the ledger could not hold the number.
TOO_HIGH = re.compile(r"(attempts/|retired-)[0-9]{10}")
_TEMPORARY = re.compile(r"\..*\.tmp")


@dataclass
class State:
    """A sync's memory of a sweep at its source.

    ``settled``: runs verified here and unchanged there, each with a stamp of its state there; ``files``: a
    fingerprint of each of them here. ``codes``: the fingerprint of each code snapshot here, by its id.
    """

    settled: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)

    def settle(self, run_id: str, token: str, folder: str) -> None:
        """Record that a run is the same here and there, with its fingerprint."""
        self.settled[run_id] = token
        self.files[run_id] = fingerprint(folder)

    def unsettle(self, run_id: str) -> None:
        """Forget that a run is settled."""
        self.settled.pop(run_id, None)
        self.files.pop(run_id, None)

    def is_as_left(self, run_id: str, folder: str) -> bool:
        """Return whether the files of a settled run are unchanged here, by sizes and times."""
        known = self.files.get(run_id)
        return known is not None and is_unchanged(folder, known)

    def settle_code(self, code_id: str, folder: str) -> None:
        """Record the fingerprint of a code snapshot."""
        self.codes[code_id] = fingerprint(folder)

    def is_code_as_left(self, code_id: str, folder: str) -> bool:
        """Return whether the files of a code snapshot are unchanged here, by sizes and times."""
        return is_unchanged(folder, self.codes.get(code_id, ""))


class CopyDir:
    """A folder with a copy of a sweep from one source."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = path / SYNCED
        self.index = path / INDEX
        self.incoming = self._own / "incoming"
        self.staged = self._own / "results"
        self._refused = self._own / "refused.json"

    def state(self) -> State:
        """Read the sync's memory; empty if it is lost, so that everything is checked again."""
        try:
            data = read_json(self._own / "state.json")
            return State(
                dict(data["settled"]),
                {run_id: str(known) for run_id, known in data["files"].items()},
                {code_id: str(known) for code_id, known in data["codes"].items()},
            )
        except (FileNotFoundError, OrchestrateError, AttributeError, KeyError, TypeError, ValueError):
            return State()

    def remember(self, state: State) -> None:
        """Store the sync's memory."""
        write_atomic(self._own / "state.json", dump_json(vars(state)), durable=False)

    def refused(self) -> dict[str, str]:
        """Return finished runs there that the latest sync refused, with the reason."""
        try:
            return {str(run_id): str(why) for run_id, why in read_json(self._refused).items()}
        except (FileNotFoundError, NotADirectoryError, DamagedFileError, AttributeError):
            return {}

    def refuse(self, why: Mapping[str, str]) -> None:
        """Store the refused runs."""
        if why:
            write_atomic(self._refused, dump_json(why), durable=False)
        else:
            self._refused.unlink(missing_ok=True)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Provide empty folders :attr:`incoming` and :attr:`staged`, removed afterwards."""
        with storage_errors(self._own):
            self._clear()
            for folder in (self.incoming, self.staged):
                folder.mkdir(parents=True)
        try:
            yield
        finally:
            self._clear()

    def _clear(self) -> None:
        for folder in (self.incoming, self.staged):
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, run_id: str) -> RunDir:
        """Return the folder of a run."""
        return RunDir(self.path / RUNS / run_id)


@contextmanager
def sync_lock(sweep: SweepDir) -> Iterator[int]:
    """Let one sync at a time write to a sweep, from any source.

    Yields the lock's descriptor, for child programs of the sync: the lock is held until the last one ends.
    """
    folder = sweep.path / SYNCED
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open_to_write(folder / "lock", "a")
    with file:
        lock(file)
        yield file.fileno()


@contextmanager
def no_sync(sweep: SweepDir) -> Iterator[None]:
    """Keep syncs from writing to a sweep; raise :class:`OrchestrateError` while one does."""
    try:
        file = open_to_write(sweep.path / SYNCED / "lock", "r+")
    except FileNotFoundError:
        yield
        return
    with file:
        if not lock(file, wait=False):
            hint = "wait until it has ended, then run the same command again"
            raise OrchestrateError(f"a sync of {sweep.name} is running", hint=hint)
        yield


def refuse_links(paths: Iterable[Path], results: Path) -> None:
    """Raise if a path that a sync writes to is a link: it may lead out of the results folder."""
    for path in paths:
        if path.is_symlink():
            raise OrchestrateError(
                f"{path}: found a link, expected a folder or a plain file: nothing is written outside of "
                f"{results}",
                hint="remove the link, or sync to where it leads",
            )


def require_own(sweep: SweepDir) -> None:
    """Raise for a copied sweep: its processes belong to another machine."""
    if (copy := read_copy(sweep.path)) is not None:
        raise OrchestrateError(
            f"{sweep.path} is a copy of {copy.source}: only the source can change it",
            hint="run the command there; for a sweep of your own choose another folder: --results DIR",
        )


def is_derived(path: PurePosixPath) -> bool:
    """Return whether a file, by its path in the sweep's folder, is derived from the runs."""
    top = path.as_posix().partition("/")[0]
    return top in _DERIVED or top.startswith(COMPARISON)


def is_brought(path: PurePosixPath) -> bool:
    """Return whether a sync fetches a file or folder, by its path in the sweep's folder.

    Results are not fetched: they are published when all their files are here. Nor are marks, locks, mailboxes
    and unfinished files.
    """
    top, *rest = path.parts
    if top.startswith(".") or top in _OWN:
        return False
    if top == CODE:
        return not rest or _CODE_ID.fullmatch(rest[0]) is not None
    if top == RUNS and len(rest) == 2 and (rest[1] in (RESULT, MARK)):
        return False
    if top == RUNS and len(rest) > 1 and (rest[1].startswith(".") or TOO_HIGH.match("/".join(rest[1:]))):
        return False
    return not any(_TEMPORARY.fullmatch(part) or part == PARTIAL for part in rest) and path.suffix != ".mail"


def kind_of(path: PurePosixPath) -> str | None:
    """Return a file's kind (:data:`KINDS`) by its path in the run's folder.

    ``""`` stands for a record of the run, None for any other file.
    """
    parts = path.parts
    if len(parts) == 1 and (path.name == "run.json" or RETIRED.fullmatch(path.name)):
        return ""
    if len(parts) < 3 or parts[0] != "attempts":
        return None
    attempt = AttemptDir(Path(*parts[:2])) if parts[1].isdecimal() and parts[1].isascii() else None
    if attempt is None:
        return None
    names = {
        attempt.claim_path.name: "",
        attempt.end_path.name: "",
        attempt.metrics.name: "metrics",
        attempt.checkpoints.name: "checkpoints",
        attempt.policies.name: "checkpoints",
        attempt.policy.name: "checkpoints",
        attempt.wandb.name: "wandb",
        attempt.wandb_packed.name: "wandb",
        attempt.log.name: "logs",
    }
    if parts[2].startswith("events.out.tfevents."):
        return "tensorboard"
    return names.get(parts[2])


def is_plain(path: str) -> bool:
    """Return whether a path only leads downwards and has no control characters."""
    return not _CONTROL.search(path) and not any(part in ("", ".", "..") for part in path.split("/"))


def is_short(path: str, longest_name: int, longest_path: int) -> bool:
    """Return whether a path is text of at most so many bytes, and each of its names, too."""
    try:
        lengths = [len(part.encode()) for part in path.split("/")]
    except UnicodeEncodeError:  # half a character, as JSON can spell it
        return False
    return max(lengths) <= longest_name and sum(lengths) + len(lengths) <= longest_path


def plain_size(folder: Path, relative: str) -> int | None:
    """Return the bytes of a plain file below ``folder``, without following links; None if there is none."""
    path = folder
    for part in PurePosixPath(relative).parts:
        path = path / part
        if path.is_symlink():
            return None
    return path.stat().st_size if path.is_file() else None


def is_tidy(result: Result, there: Collection[str]) -> bool:
    """Return whether a finished run's source has only its final files.

    ``there``: paths in the run's folder at the source.
    """
    attempt = AttemptDir(Path("attempts") / str(result.attempt))
    if attempt.end_path.as_posix() not in there:
        return False
    stays = {item.path for item in result.manifest}
    stays |= {path for path in there if kind_of(PurePosixPath(path)) in ("", "metrics", "logs")}
    stays |= {parent.as_posix() for path in stays for parent in PurePosixPath(path).parents}
    return all(path in stays for path in there if path.startswith("attempts/"))


def leave_journals(folder: Path, there: Collection[str]) -> None:
    """Remove journals here that the source has compacted, and empty logs that it has removed.

    ``there``: paths in the sweep's folder at its source.
    """
    gone = [name for name in listdir(folder / JOURNALS) if f"{JOURNALS}/{name}" not in there]
    compacted = folder / JOURNALS / COMPACTED
    if not gone or f"{JOURNALS}/{COMPACTED}" not in there or not compacted.is_file():
        return
    folded = {log.token for log in JournalReader().read_compacted(compacted)}
    for name in gone:
        path = folder / JOURNALS / name
        empty_log = path.suffix == ".log" and path.stat().st_size == 0
        if empty_log or (path.suffix == ".jsonl" and path.stem in folded):
            path.unlink(missing_ok=True)

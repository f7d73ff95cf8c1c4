"""A run's folder and its attempts: claims, checkpoints, history, the published result."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Run
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.attempts.attempt import (
    CHECKPOINT,
    POLICY,
    AttemptDir,
    CheckpointFile,
    listdir,
    sha256,
)
from orchestrator.rundir.attempts.claims import Claim, age_by_file_server, create_claim
from orchestrator.rundir.attempts.metrics import Executed, ResumePoint, Row, merge, read_metrics, resume_chain
from orchestrator.rundir.copy_origin import fetch_command, main_folder
from orchestrator.rundir.descriptions import Descriptions
from orchestrator.rundir.files.atomic import (
    dump_json,
    parse_json,
    read_json,
    storage_errors,
    write_atomic,
    write_exclusive,
)
from orchestrator.rundir.files.file_server import persist
from orchestrator.rundir.files.kinds import MALFORMED
from orchestrator.rundir.files.placed import remove_placed, written_files
from orchestrator.rundir.files.plain_files import PathWithin, is_listed, read_plain
from orchestrator.rundir.records.result import ManifestItem, Result

ATTEMPTS, WORK, RETIRED = "attempts", "work", re.compile(r"retired-([0-9]+)\.json")


class RunDir:
    """One run's folder."""

    description_path = PathWithin("run.json")
    result_path = PathWithin("result.json")
    # The folder in which a program starts: it holds what the program wrote there, in all attempts.
    work = PathWithin(WORK)
    _attempts = PathWithin(ATTEMPTS)

    def __init__(self, path: Path, descriptions: Descriptions | None = None) -> None:
        self.path, self.run_id = path, path.name
        self._submitted = descriptions or Descriptions(path.parent.parent)

    @property
    def sweep(self) -> str:
        """The name of its sweep."""
        return main_folder(self.path.parent.parent).name

    def describe(self, run: Run) -> None:
        """Store the description in the run's folder. After the first attempt it never changes."""
        data = _description_bytes(run)
        with storage_errors(self._attempts):
            self._attempts.mkdir(parents=True, exist_ok=True)
        try:
            if read_plain(self.description_path) == data or (self.attempts() and self.description()):
                return
        except (FileNotFoundError, DamagedFileError):
            pass
        write_atomic(self.description_path, data)

    def description(self) -> Run:
        """Return the run's own description, or the submission's before the run has a folder.

        Raises ``FileNotFoundError`` and :class:`DamagedFileError`.
        """
        try:
            return parse(Run, read_json(self.description_path))
        except FileNotFoundError:
            if (submitted := self._submitted.find(self.run_id)) is None:
                raise
            return submitted
        except MALFORMED as error:
            raise DamagedFileError(
                self.description_path,
                "is not a run description",
                hint=f"delete {self.path} if it holds nothing you need, then run the sweep again",
            ) from error

    def attempts(self) -> list[AttemptDir]:
        """Return claimed attempts, oldest first."""
        names = listdir(self._attempts)
        numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        attempts = [self.attempt(number) for number in numbers]
        return [attempt for attempt in attempts if attempt.is_claimed()]

    def newest_attempt(self) -> int:
        """Return the number of the newest attempt; 0 without any."""
        return max((attempt.number for attempt in self.attempts()), default=0)

    def attempt(self, number: int) -> AttemptDir:
        """Return the folder of an attempt."""
        return AttemptDir(self._attempts / str(number))

    @property
    def prefix(self) -> AttemptDir | None:
        """The attempt 0 taken from another run; ``None`` without one.

        Once attempts are retired, it counts only for a run that never starts from nothing.
        """
        first = self.attempt(0)
        if not first.prefix_path.exists():
            return None
        return first if not self.retired or self.description().origin else None

    def blocked_by(self) -> AttemptDir | None:
        """Return the newest attempt unless its end is proved; None otherwise."""
        attempts = self.attempts()
        if not attempts or attempt_ended(attempts[-1]):
            return None
        return attempts[-1]

    def take(self, claim: Claim) -> AttemptDir | None:
        """Claim the next attempt; return None if the run is done or another worker has it.

        Proof first, then the result, then the claim: a finishing attempt publishes before it ends, so no
        attempt is ever started for a finished run.
        """
        attempts = self.attempts()
        if attempts and not attempt_ended(attempts[-1]):
            return None
        if self.has_result():
            return None
        if attempts and not _end_leftovers(attempts[-1]):
            return None
        before = attempts[-1].number if attempts else 0
        attempt = self.attempt(max(before, self.retired) + 1)
        with storage_errors(attempt.path):
            persist(lambda: attempt.path.mkdir(parents=True, exist_ok=True))
        self._keep_description()
        return attempt if create_claim(attempt.claim_path, claim) else None

    def _keep_description(self) -> None:
        """Copy the submission's description into the folder, before the first attempt."""
        if not self.description_path.exists() and (run := self._submitted.find(self.run_id)) is not None:
            write_exclusive(self.description_path, _description_bytes(run))

    def superseded(self, attempt: AttemptDir) -> bool:
        """Return whether a later attempt exists, so that this one must not publish."""
        return is_listed(self.attempt(attempt.number + 1).claim_path, levels=2)

    def checkpoints(self, below: int | None = None) -> list[CheckpointFile]:
        """Return checkpoints of all attempts (before attempt ``below``), most advanced and newest first."""
        found = []
        for attempt in self.with_prefix():
            if below is not None and attempt.number >= below:
                continue
            for name in attempt.checkpoint_names():
                match = CHECKPOINT.fullmatch(name)
                if match and (attempt.checkpoints / name).is_file():
                    found.append(
                        CheckpointFile(
                            attempt.number, int(match["frames"]), match["digest"], attempt.checkpoints / name
                        )
                    )
        return sorted(found, key=lambda item: (item.frames, item.attempt), reverse=True)

    def policies(self, below: int) -> list[Path]:
        """Return the policies kept by attempts before ``below``, by frames; of each the newest attempt's."""
        found = {
            name: attempt.policies / name
            for attempt in self.with_prefix()
            if attempt.number < below
            for name in listdir(attempt.policies)
            if POLICY.fullmatch(name)
        }
        return [found[name] for name in sorted(found)]

    def history(self, last: int | None = None) -> list[Row]:
        """Return the run's merged metrics as of attempt ``last`` (default: the newest)."""
        return merge(self.chain(last))

    def chain(self, last: int | None = None) -> list[Executed]:
        """Return the attempts that make up the history, oldest first; read no metrics of others."""
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

        return resume_chain(last, read)

    def publish(
        self,
        result: Mapping[str, Any],
        manifest: Iterable[tuple[Path, bool]],
        guard: Callable[[], None] = lambda: None,
    ) -> bool:
        """Publish the result, once. ``manifest``: files, and whether the result requires them.

        ``guard`` is called before the last step, when all else is written, and can stop it by raising. Return
        False if the run has a result already, which then stands. Raises ``ValueError`` for a result that
        :meth:`result` would refuse.
        """
        files = [
            ManifestItem(path.relative_to(self.path).as_posix(), sha256(path), path.stat().st_size, required)
            for path, required in manifest
        ]
        fields = {**result, "run_id": self.run_id, "manifest": plain(files)}
        data = dump_json(fields, indent=1)
        Result.of(parse_json(data))  # as it is read: NumPy's numbers are JSON's then
        return write_exclusive(self.result_path, data, guard)

    def has_result(self) -> bool:
        """Return whether the run is done: a result is published."""
        return is_listed(self.result_path)

    def result(self) -> Result | None:
        """Read the published result; None if there is none. Raises :class:`DamagedFileError`."""
        try:
            result = Result.of(read_json(self.result_path, parse_json))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError) as error:
            raise self._damaged(self.result_path, f"is not a result ({error})") from error
        if result.run_id != self.run_id:
            raise self._damaged(self.result_path, f"is not the result of run {self.run_id}")
        return result

    def manifest(self) -> tuple[ManifestItem, ...]:
        """Return the files of the published result, none without one. Raises :class:`DamagedFileError`."""
        result = self.result()
        return result.manifest if result is not None else ()

    def verify(self, result: Result, *, checksums: bool = False) -> None:
        """Check that the result's required files exist with their sizes, optionally their ``checksums``.

        Files that are marked as elsewhere count as present.
        """
        for item in result.manifest:
            if not item.required:
                continue
            path = self.path / item.path
            if (size := _size(f"{self.path}/{item.path}")) is None:
                if item.path in read_absent(self.path).files:
                    continue
                raise self._damaged(path, "is missing, though the result needs it")
            if size != item.bytes:
                raise self._damaged(path, f"holds {size} bytes, expected {item.bytes}")
            if checksums and sha256(path) != item.sha256:
                raise self._damaged(path, "has other content than when the result was published")

    def retire_result(self, after: int = 0) -> None:
        """Retire a result, for a run to be trained again from its beginning.

        The result becomes retired-<n>.json, n being its newest attempt; attempts stay unchanged. ``after``:
        the newest attempt of any version, void from now on. What a program wrote moves to its newest attempt:
        a program would continue from a checkpoint of its own, or append to its old metrics.
        """
        if not self.result_path.exists():
            return
        newest = self.newest_attempt()
        if written_files(self.work):
            with storage_errors(self.path):
                remove_placed(self.work)
                os.replace(self.work, self.attempt(newest).work)
        with suppress(FileNotFoundError):
            os.replace(self.result_path, self.path / f"retired-{max(after, newest)}.json")

    def begin_anew(self, reason: str = "what its attempts left cannot be used", after: int = 0) -> None:
        """Let the next attempt start from nothing; earlier attempts stay unchanged and are not read again.

        For a run without a result. The mark is a retired-<n>.json with the reason in place of a result.
        ``after``: the newest attempt of any version, void from now on.
        """
        if last := max(after, self.newest_attempt()):
            with storage_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write_exclusive(self.path / f"retired-{last}.json", dump_json({"reason": reason}))

    @property
    def retired(self) -> int:
        """The newest retired attempt, with a result or without; 0 if there is none."""
        found = (RETIRED.fullmatch(name) for name in listdir(self.path))
        return max((int(match[1]) for match in found if match), default=0)

    def current_attempts(self) -> list[AttemptDir]:
        """Return the attempts after the last retired one, oldest first: those that build on each other."""
        last = self.retired
        return [attempt for attempt in self.attempts() if attempt.number > last]

    def with_prefix(self) -> list[AttemptDir]:
        """Return the prefix, if there is one, and the current attempts."""
        prefix = self.prefix
        return [*([] if prefix is None else [prefix]), *self.current_attempts()]

    def _damaged(self, path: Path, problem: str) -> DamagedFileError:
        hint = f"restore the file, or train the run again: orchestrate retry {self.sweep} {self.run_id}"
        if again := fetch_command(self.path):
            hint = f"fetch it again: {again}"
        return DamagedFileError(path, problem, hint=hint)


def attempt_ended(attempt: AttemptDir) -> bool:
    """Return whether it is proved that no process works on the attempt any more."""
    if attempt.end() is not None:
        return True
    claim = attempt.claim()
    assert claim is not None, attempt.path
    alive = claim.holder.alive()
    if alive is None:
        return age_by_file_server(attempt.claim_path) > 2 * claim.lease
    return not alive


def _description_bytes(run: Run) -> bytes:
    """Return the content of a run's own description."""
    return dump_json(plain(run), indent=1)


def _size(path: str) -> int | None:
    """Return the size of a plain file; ``None`` if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _end_leftovers(attempt: AttemptDir) -> bool:
    claim = attempt.claim()
    return claim is None or claim.holder.end_survivors()

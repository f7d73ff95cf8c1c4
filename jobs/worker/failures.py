"""Why an attempt ended, in one line and one class."""

from __future__ import annotations

import errno
import os
import re
import time
import traceback
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from jobs.training.context import BadConfigError, InterruptedRun
from jobs.training.processes.log_reason import reason_in
from jobs.training.processes.ranks import RankError
from jobs.training.records.error_chain import error_chain
from jobs.worker.scheduler_job import SchedulerJob
from orchestrator.core.errors import DamagedFileError, FileServerError, StorageError
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import AttemptDir, End, Row
from orchestrator.rundir.attempts.holder import JOB_VARIABLE
from orchestrator.rundir.files.file_server import is_server_error, mentions_server_error

# This many attempts in a row that ended before they reached a new checkpoint end a run: attempts whose end
# is on record, and attempts in all. One that died together with its worker was most likely ended from outside
# (preemption, reboot, a killed worker), but a run that kills its worker each time must end too.
_WITNESSED_DEATHS, _ALL_DEATHS = 3, 10
# Seconds from the beginning of the first such attempt to the next one; each further pause is longer.
_FIRST_PAUSE_S, _PAUSE_FACTOR, _LONGEST_PAUSE_S = 1.0, 4, 60.0

# Ends on request or by the machine's fault. All others count, unless their record says otherwise.
_NO_FAULT = (Reason.STOPPED, Reason.PREEMPTED, Reason.NODE_FAILURE)
_MESSAGE_LENGTH = 500
# Lines of metrics at the end of a training that show how far it goes from line to line.
_LAST_STEPS = 11
# Parts of its declared length that a complete training may lack: in any case, and in whole iterations.
_SMALL_PART, _LARGEST_PART = 0.02, 0.25
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NO_SPACE = tuple(os.strerror(number) for number in _DISK_ERRNOS)
# In lower case, with spaces for `_` and `-`: of C libraries, torch, JAX, TensorFlow, C++, cuBLAS, Slurm.
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "cannot allocate memory",
    "out of memory",
    "memoryerror",
    "resource exhausted: failed to allocate",
    "oom when allocating",
    "std::bad alloc",
    "status alloc failed",
    "oom kill event",
)


class ProgramFailed(Exception):
    """A training program failed; the message is complete. ``behind``: errors behind the program's own."""

    def __init__(self, message: str, behind: Sequence[str] = ()) -> None:
        super().__init__(message)
        if behind:
            self.__cause__ = ProgramFailed("\n".join(behind))


class ProgramLeft(Exception):
    """A training program left before it was done, by itself, to go on later."""


class IncompleteRun(ProgramFailed):
    """A training ended without an error before it reached the length that it declared."""


def is_complete(rows: Sequence[Row], total: int | None) -> bool:
    """Return whether a training has reached the ``total`` frames that it declared, if it did.

    One that counts in whole iterations may leave out a last one that is too short. So less than a step from
    line to line may be missing, of the last ones, and a small part in any case: lines can be finer than
    iterations, and be written at their beginning.
    """
    frames = [row.frames for row in rows[-_LAST_STEPS:]]
    total = total or 0
    missing = total - (frames[-1] if frames else 0)
    step = max((later - earlier for earlier, later in pairwise(frames)), default=0)
    return missing <= _SMALL_PART * total or missing < min(step, _LARGEST_PART * total)


def require_complete(rows: Sequence[Row], total: int | None, log: Path) -> None:
    """Raise :class:`IncompleteRun` if a training ended before the ``total`` frames that it declared.

    The message has the exception in its ``log``, which it may have caught.
    """
    if is_complete(rows, total):
        return
    reached = rows[-1].frames if rows else 0
    found = reason_in(log)
    said = f" and reported no error; if it is to end there, its last line has to say total: {reached}"
    said = f": {found.text}" if found.of_exception else said
    raise IncompleteRun(f"stopped at {reached:,} of {total:,} frames{said}", found.behind)


def end_of(error: BaseException) -> End:
    """Return the end that an exception of a trainer means."""
    if isinstance(error, ProgramLeft):
        return End(RunState.INTERRUPTED, Reason.STOPPED, str(error), counts=True)
    if isinstance(error, InterruptedRun):
        return _asked_to_leave(str(error))
    if isinstance(error, RankError):
        lost = error.reason is Reason.KILLED
        return End(RunState.INTERRUPTED if lost else RunState.FAILED, error.reason, one_line(str(error)))
    if isinstance(error, DamagedFileError):
        return End(RunState.FAILED, None, one_line(f"{error}; {_hint(error)}"))
    reason = _reason(error)
    # Storage is no fault of the run: the same command goes on once it works again.
    outcome = RunState.INTERRUPTED if reason in (Reason.DISK_FULL, Reason.STORAGE) else RunState.FAILED
    return End(outcome, reason, describe(error))


def _asked_to_leave(name: str) -> End:
    """Judge a stop signal: SIGUSR1 and SIGUSR2 are a scheduler's warning, never sent by accident."""
    if name in ("SIGUSR1", "SIGUSR2") and JOB_VARIABLE in os.environ:
        if not SchedulerJob.current().nears_end():
            return End(RunState.INTERRUPTED, Reason.PREEMPTED, "warned long before its job's time limit")
        return End(RunState.INTERRUPTED, Reason.TIME_LIMIT, "its job's time limit came near")
    return End(RunState.INTERRUPTED, Reason.STOPPED, f"received {name}")


def describe(error: BaseException) -> str:
    """Return type, message and place of an exception in one line."""
    if isinstance(error, ProgramFailed | BadConfigError | StorageError):
        return one_line(str(error))
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return one_line(text)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})"
    return one_line(text, _MESSAGE_LENGTH - len(place)) + place


def one_line(text: str, length: int = _MESSAGE_LENGTH) -> str:
    """Join the text into one line of at most ``length`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def storage_reason(error: BaseException) -> Reason | None:
    """Return why a file could not be written or read, if the error, or one behind it, is of storage.

    That is a full, read-only or over-quota disk, or a file server that failed for a moment.
    """
    chain = list(error_chain(error))
    if any(isinstance(link, FileServerError) or is_server_error(link) for link in chain):
        return Reason.STORAGE
    if any(
        isinstance(link, StorageError)
        or (isinstance(link, OSError) and link.errno in _DISK_ERRNOS)
        or any(text in str(link) for text in _NO_SPACE)
        for link in chain
    ):
        return Reason.DISK_FULL
    return Reason.STORAGE if any(mentions_server_error(str(link)) for link in chain) else None


def unless_in_vain(end: End, attempts: Sequence[AttemptDir], since: int, witnessed: int = 0) -> End:
    """Fail a run that ended too often before it reached a new checkpoint, now with ``end``.

    Arguments as of :func:`deaths_in_vain`.
    """
    deaths = deaths_in_vain(attempts, since, witnessed)
    return in_vain(deaths, end.reason, end.message, end.frames) if deaths else end


def deaths_in_vain(attempts: Sequence[AttemptDir], since: int, witnessed: int = 0) -> int:
    """Count the last attempts that ended before they reached a new checkpoint; 0 unless they are too many.

    Attempts up to number ``since`` do not count. ``witnessed`` is one without an end on record yet.
    """
    total, on_record = _in_vain(attempts, since, witnessed)
    return total if on_record >= _WITNESSED_DEATHS or total >= _ALL_DEATHS else 0


def pause_before_next(attempts: Sequence[AttemptDir], since: int) -> float:
    """Return the seconds to wait before another attempt; they grow with those that ended in vain.

    An attempt that used up its job's time took long enough.
    """
    total, _ = _in_vain(attempts, since)
    if not total or ((end := attempts[-1].end()) and end.reason is Reason.TIME_LIMIT):
        return 0.0
    pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * _PAUSE_FACTOR ** (total - 1))
    try:
        claim = attempts[-1].claim()
    except DamagedFileError:
        claim = None
    began = claim.created if claim else 0.0
    return min(pause, max(0.0, began + pause - time.time()))  # clocks differ


def _in_vain(attempts: Sequence[AttemptDir], since: int, witnessed: int = 0) -> tuple[int, int]:
    """Count as :func:`deaths_in_vain`, without a limit: attempts in all, and those with a known end."""
    recent = [attempt for attempt in attempts if attempt.number > since]
    total = on_record = 0
    while recent:
        attempt = recent.pop()
        end = attempt.end()
        if not _counts(end) or _is_new(_reached(attempt), map(_reached, reversed(recent))):
            break
        total += 1
        on_record += end is not None or attempt.number == witnessed
    return total, on_record


def _counts(end: End | None) -> bool:
    if end is None:
        return True
    if end.outcome is RunState.DONE:  # its result was lost since
        return False
    return end.reason not in _NO_FAULT if end.counts is None else end.counts


def _reached(attempt: AttemptDir) -> int | None:
    """Return the frames of the attempt's last checkpoint, which may have been pruned since."""
    end = attempt.end()
    known = attempt.checkpointed(), end and end.checkpointed
    return max((found for found in known if found), default=None)


def _is_new(reached: int | None, before: Iterable[int | None]) -> bool:
    """Whether a checkpoint is a new one, and not what the attempt began with, saved again."""
    return reached is not None and reached != next((one for one in before if one is not None), None)


def in_vain(deaths: int, last: Reason | None, cause: str, frames: int | None = None) -> End:
    """Return the end of a run that died so often; ``last`` and ``cause`` are those of its last death."""
    ended = f"ended {deaths} times in a row before it reached a new checkpoint"
    if last is Reason.TIME_LIMIT:
        message = (
            f"{ended}, now by the time limit: "
            "give jobs more time, or have the run save checkpoints more often, then `orchestrate retry`"
        )
        return End(RunState.FAILED, Reason.TIME_LIMIT, message, frames)
    return End(RunState.FAILED, Reason.CRASH_LOOP, one_line(f"{ended} (last: {cause})"), frames)


def _reason(error: BaseException) -> Reason:
    if isinstance(error, BadConfigError):
        return Reason.BAD_CONFIG
    if storage := storage_reason(error):
        return storage
    if any(_is_out_of_memory(link) for link in error_chain(error)):
        return Reason.OUT_OF_MEMORY
    return Reason.INCOMPLETE if isinstance(error, IncompleteRun) else Reason.CODE_ERROR


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch (not imported here) or a program ran out of memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    speaks = isinstance(error, RuntimeError | OSError | ProgramFailed)
    said = re.sub("[_-]", " ", str(error).lower())
    return speaks and any(text in said for text in _NO_MEMORY)


def _hint(error: DamagedFileError) -> str:
    return error.hint or "repair the file, or delete it if no worker holds the run, then `orchestrate retry`"

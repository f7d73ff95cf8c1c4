"""Why an attempt ended, in one line and one class."""

from __future__ import annotations

import errno
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.training.context import BadConfigError, InterruptedRun
from jobs.training.error_chain import error_chain
from jobs.training.ranks import RankError
from jobs.worker.scheduler_job import SchedulerJob
from orchestrator.core.errors import DamagedFileError, StorageError
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import AttemptDir
from orchestrator.rundir.holder import JOB_VARIABLE

# This many attempts in a row that ended before they reached a new checkpoint end a run: attempts that died
# under a worker that went on, or ran out of time, and attempts in all. One that died together with its worker
# was most likely ended from outside (preemption, reboot, a killed worker), but a run that kills its worker
# each time must end too.
_WITNESSED_DEATHS, _ALL_DEATHS = 3, 10

_DEATHS = (Reason.KILLED.value, Reason.CRASH_LOOP.value, Reason.TIME_LIMIT.value)
_MESSAGE_LENGTH = 500
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NO_SPACE = tuple(os.strerror(number) for number in _DISK_ERRNOS)
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "cannot allocate memory",
    "out of memory",
    "memoryerror",
)


@dataclass(frozen=True)
class End:
    """How an attempt ended. ``frames``: recorded; ``checkpointed``: in the last checkpoint of its own."""

    outcome: RunState
    reason: Reason | None = None
    message: str = ""
    frames: int | None = None
    checkpointed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the end record."""
        return {
            "outcome": self.outcome.value,
            "reason": self.reason and self.reason.value,
            "message": self.message,
            "frames": self.frames,
            "checkpointed": self.checkpointed,
            "time": time.time(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> End:
        """Read an end record."""
        reason = data.get("reason")
        return cls(
            RunState(data["outcome"]),
            Reason(reason) if reason else None,
            data.get("message", ""),
            data.get("frames"),
            data.get("checkpointed"),
        )


class ProgramFailed(Exception):
    """A training program failed; the message is complete, without a place in our code."""


def end_of(error: BaseException) -> End:
    """Return the end that an exception of a trainer means."""
    if isinstance(error, InterruptedRun):
        return _asked_to_leave(str(error))
    if isinstance(error, RankError):
        lost = error.reason is Reason.KILLED
        return End(RunState.INTERRUPTED if lost else RunState.FAILED, error.reason, one_line(str(error)))
    if isinstance(error, DamagedFileError):
        return End(RunState.FAILED, None, one_line(f"{error}; {_hint(error)}"))
    reason = _reason(error)
    # A full disk is no fault of the run: the same command goes on once there is room.
    outcome = RunState.INTERRUPTED if reason is Reason.DISK_FULL else RunState.FAILED
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


def is_storage_error(error: BaseException) -> bool:
    """Whether the error, or one behind it, is a full, read-only or over-quota disk."""
    return any(
        isinstance(link, StorageError)
        or (isinstance(link, OSError) and link.errno in _DISK_ERRNOS)
        or any(text in str(link) for text in _NO_SPACE)
        for link in error_chain(error)
    )


def deaths_in_vain(attempts: Sequence[AttemptDir], since: int, witnessed: int = 0) -> int:
    """Count the last attempts that ended before they reached a new checkpoint; 0 unless they are too many.

    They were killed, or their job's time was over; an attempt that was preempted or stopped does not count,
    nor do attempts up to number ``since``. ``witnessed`` is one without an end on record yet.
    """
    total = under_a_worker = 0
    for attempt in reversed(attempts):
        end = attempt.end()
        reason = end.get("reason") if end else Reason.KILLED.value
        in_vain = reason in _DEATHS and attempt.checkpointed() is None
        if attempt.number <= since or not in_vain:
            break
        total += 1
        under_a_worker += end is not None or attempt.number == witnessed
    return total if under_a_worker >= _WITNESSED_DEATHS or total >= _ALL_DEATHS else 0


def in_vain(deaths: int, last: Reason, cause: str, frames: int | None = None) -> End:
    """Return the end of a run that died so often; ``last`` and ``cause`` are those of its last death."""
    if last is Reason.TIME_LIMIT:
        message = (
            f"ended {deaths} times in a row before it reached a new checkpoint, now by the time limit: "
            "give jobs more time, or have the run save checkpoints more often, then `orchestrate retry`"
        )
        return End(RunState.FAILED, Reason.TIME_LIMIT, message, frames)
    message = f"killed {deaths} times in a row before it reached a new checkpoint (last: {cause})"
    return End(RunState.FAILED, Reason.CRASH_LOOP, message, frames)


def _reason(error: BaseException) -> Reason:
    if isinstance(error, BadConfigError):
        return Reason.BAD_CONFIG
    if is_storage_error(error):
        return Reason.DISK_FULL
    if any(_is_out_of_memory(link) for link in error_chain(error)):
        return Reason.OUT_OF_MEMORY
    return Reason.CODE_ERROR


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch (not imported here) or a program ran out of memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    speaks = isinstance(error, RuntimeError | OSError | ProgramFailed)
    return speaks and any(text in str(error).lower() for text in _NO_MEMORY)


def _hint(error: DamagedFileError) -> str:
    return error.hint or "repair the file, or delete it if no worker holds the run, then `orchestrate retry`"

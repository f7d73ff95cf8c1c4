"""Speed, returns and failures as a result tells them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jobs.training.context import BadConfigError, InterruptedRun
from jobs.training.records import result_figures
from jobs.worker.failures import ProgramFailed, end_of, one_line
from orchestrator.core.errors import DamagedFileError, FileServerError, StorageError
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Row


def test_returns_are_of_the_best_named_metric_and_skip_nan() -> None:
    nan = float("nan")
    history = [
        Row(1, 1, 0.0, {"eval": nan, "train": 9.0}),
        Row(2, 2, 0.0, {"eval": 2.0, "train": 8.0, "train/total_episodes": 5.0}),
        Row(3, 3, 0.0, {"eval": 3.0}),
        Row(4, 4, 0.0, {"eval": 1.0, "train/total_episodes": 7.0}),
        Row(5, 5, 0.0, {"eval": nan, "diverged": float("inf")}),
    ]

    def learned(*names: str) -> list[float | None]:
        found = result_figures.learned(history, names)
        assert found.pop("episodes") == 7
        return [found[f"{which}_return"] for which in ("initial", "final", "best")]

    assert learned("eval", "train") == [2.0, 1.0, 3.0]
    assert learned("absent", "train") == [9.0, 8.0, 9.0]
    assert learned("absent") == [None, None, None]
    assert learned("diverged", "train") == [None, None, None]
    assert result_figures.learned([], ["eval"])["episodes"] is None


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("no"), RunState.FAILED, Reason.CODE_ERROR),
        (SystemExit(3), RunState.FAILED, Reason.CODE_ERROR),
        (BadConfigError("no"), RunState.FAILED, Reason.BAD_CONFIG),
        (MemoryError(), RunState.FAILED, Reason.OUT_OF_MEMORY),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), RunState.FAILED, Reason.OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] can't allocate memory"), RunState.FAILED, Reason.OUT_OF_MEMORY),
        (StorageError("full"), RunState.INTERRUPTED, Reason.DISK_FULL),
        (OSError(errno.ENOSPC, "No space left on device"), RunState.INTERRUPTED, Reason.DISK_FULL),
        (OSError(errno.ENOENT, "no such file"), RunState.FAILED, Reason.CODE_ERROR),
        (ProgramFailed("left: No space left on device"), RunState.INTERRUPTED, Reason.DISK_FULL),
        (FileServerError("no answer"), RunState.INTERRUPTED, Reason.STORAGE),
        (OSError(errno.EIO, "Input/output error"), RunState.INTERRUPTED, Reason.STORAGE),
        (OSError(errno.ETIMEDOUT, "timed out", "log.txt"), RunState.INTERRUPTED, Reason.STORAGE),
        (OSError(errno.ETIMEDOUT, "timed out"), RunState.FAILED, Reason.CODE_ERROR),  # of a connection
        (ProgramFailed("h5py: Stale file handle"), RunState.INTERRUPTED, Reason.STORAGE),
        (InterruptedRun("SIGTERM"), RunState.INTERRUPTED, Reason.STOPPED),
        (DamagedFileError("result.json", "is torn"), RunState.FAILED, None),
    ],
)
def test_failures_are_classified(error: BaseException, outcome: RunState, reason: Reason | None) -> None:
    end = end_of(raised(error))
    assert (end.outcome, end.reason) == (outcome, reason)


def test_a_cause_behind_an_error_counts() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert end_of(raised(RuntimeError("writer failed"), full)).reason is Reason.DISK_FULL


def test_a_message_is_one_line_with_type_and_place() -> None:
    message = end_of(raised(ValueError("first\nsecond\t" + "x" * 2000))).message
    assert message.startswith("ValueError: first second xxx")
    assert message.endswith("in raised)")
    assert Path(__file__).name in message
    assert len(message) <= 500
    assert one_line("a\n b") == "a b"

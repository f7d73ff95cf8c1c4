"""A run's process as the worker that forked it sees it."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from jobs.training.processes.life import Life
from jobs.training.processes.run_memory import RunMemory, oom_kills
from jobs.worker.capacity.slots import Slot
from orchestrator.core.records import parse
from orchestrator.rundir import End

# Progress goes to the journal every second at first, and more rarely the longer the run lasts (a hundredth of
# its age, up to the maximum), so that a run of a day leaves thousands of lines and not a hundred thousand.
_PROGRESS_INTERVAL_S, _PROGRESS_INTERVAL_MAX_S = 1.0, 30.0


@dataclass
class RunHandle:
    """A run's process: the messages from its pipe, and its exit. ``frames``: of the latest progress."""

    pid: int
    run_id: str
    slot: Slot
    relay: int
    memory: RunMemory = field(default_factory=RunMemory)
    life: Life = field(default_factory=Life)
    leader: str = "its process"
    attempt: int | None = None
    announced: bool = False
    silent: bool = False
    end: End | None = None
    cancelled: bool = False
    killed_by_us: bool = False
    kill_at: float = float("inf")
    status: int | None = None
    _progress: dict[str, Any] | None = None
    _reported: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)
    frames: int | None = None
    checkpoint_interval: float = 0.0
    _buffer: bytes = b""

    def fileno(self) -> int:
        """Return the pipe's descriptor, for ``select``."""
        return self.relay

    def read(self) -> None:
        """Read the run's new messages."""
        while True:
            try:
                chunk = os.read(self.relay, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self.silent = True
                return
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "attempt" in message:
            self.attempt = message["attempt"]
        elif "end" in message:
            self.end = parse(End, message["end"])
        elif "checkpoint" in message:
            now = time.monotonic()
            self.checkpoint_interval, self._saved = max(self.checkpoint_interval, now - self._saved), now
        else:
            self._progress, self.frames = message, message["frames"]

    def take_progress(self, now: float) -> dict[str, Any] | None:
        """Return the latest progress, at most once a second (``now``: monotonic seconds)."""
        interval = min(_PROGRESS_INTERVAL_MAX_S, max(_PROGRESS_INTERVAL_S, (now - self._began) / 100))
        if self._progress is None or now - self._reported < interval:
            return None
        progress, self._progress, self._reported = self._progress, None, now
        return progress

    def signal(self, number: int) -> None:
        """Send a signal. The process is not reaped yet, so the number is still its own."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and note that this worker did."""
        self.killed_by_us = True
        self.signal(signal.SIGKILL)

    def reap(self) -> bool:
        """Whether the process has exited; its last messages may still be unread."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.status = status
        return True

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.relay)

    @property
    def exit_code(self) -> int:
        """As :func:`os.waitstatus_to_exitcode`: negative for a signal."""
        assert self.status is not None, "reap() comes first"
        return os.waitstatus_to_exitcode(self.status)

    def cause_of_death(self) -> str:
        """Describe an exit without an end record."""
        if silent := self.life.ended_after:
            return f"{self.leader} gave no sign of life for {silent:g} s"
        if self.exit_code == -signal.SIGKILL and oom_kills() is None:
            return "killed by SIGKILL (no control group tells whether for want of memory)"
        if self.exit_code < 0:
            return f"killed by {signal.Signals(-self.exit_code).name}"
        return f"its process left with exit code {self.exit_code} and no end record"

    def out_of_memory(self) -> bool:
        """Whether the kernel killed the process for want of memory."""
        return self.exit_code == -signal.SIGKILL and self.memory.killed

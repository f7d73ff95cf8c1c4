"""What a trainer is given, and what it gives back."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.types import Run
from orchestrator.planning.throughput.measure import Window, rate
from orchestrator.rundir import (
    AttemptDir,
    CheckpointFile,
    Lease,
    MetricsWriter,
    ResumePoint,
    Row,
    RunDir,
)

# An iteration is finished after a stop signal only if this share of the grace covers what is left of it.
_GRACE_SHARE = 0.8


class InterruptedRun(BaseException):
    """The run must leave now, on its last checkpoint. Not an ``Exception``: trainers must not swallow it."""


class FencedRun(BaseException):
    """The attempt lost its claim: not another byte may be written."""


class BadConfigError(OrchestrateError):
    """The trainer refuses the run's configuration; the same attempt again would fail the same way."""


@dataclass(frozen=True)
class Outcome:
    """A finished training.

    ``exactness``: "exact" (interrupted = never interrupted) or "reset" (environments restart every
    so often, interrupted or not).
    ``config`` is the composed configuration, JSON values only. ``files`` of the attempt go into the manifest,
    each with whether the result is void without it.
    """

    frames: int
    iterations: int
    exactness: str
    config: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[Path, bool], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


class RunContext:
    """One attempt, as its trainer sees it. Lives in the run's own process.

    A trainer calls, in this order: :meth:`candidates` to find a checkpoint it can load, :meth:`begin`, then
    per iteration :meth:`record` and, whenever it saves one, :meth:`before_checkpoint` and
    :meth:`checkpointed`; after each iteration :meth:`iteration_done`, which leaves by raising if the run
    was asked to stop. A trainer that sets ``polls_stopping`` looks at :attr:`stopping` by itself and is
    never interrupted in between.
    """

    polls_stopping = False

    def __init__(
        self, sweep: str, run: Run, run_dir: RunDir, attempt: AttemptDir, lease: Lease, relay: int
    ) -> None:
        self.sweep, self.run, self.run_dir, self.attempt = sweep, run, run_dir, attempt
        self.rows: list[Row] = []
        self.checkpointed_frames: int | None = None
        self._window = Window()
        self._iteration_fps: float | None = None
        self._lease, self._relay = lease, relay
        self._metrics: MetricsWriter | None = None
        self._stop_deadline: float | None = None
        self._stop_signal = ""
        self._iteration_began = time.monotonic()
        self._iteration_seconds: float | None = None

    # Resuming

    def candidates(self) -> list[CheckpointFile]:
        """Checkpoints of earlier attempts, the most advanced first; take the first that is whole."""
        return self.run_dir.checkpoints(below=self.attempt.number)

    def begin(self, resumed_from: ResumePoint | None, *, row_at_checkpoint: bool = True) -> list[Row]:
        """Open the metrics file. Returns the history up to the checkpoint resumed from.

        With ``row_at_checkpoint`` the trainer promises that each checkpoint follows a row of as many frames,
        so that a history which lost its end is found out: :class:`DamagedFileError`.
        """
        self.guard()
        if self._metrics is not None:  # of a checkpoint that turned out not to fit
            self._metrics.close()
        self._metrics = MetricsWriter(self.attempt.metrics, resumed_from)
        self.rows = self.run_dir.history(last=self.attempt.number)
        if resumed_from is not None and row_at_checkpoint:
            self._require_whole(resumed_from)
        self._iteration_seconds = _last_iteration(self.rows)
        self._iteration_began = time.monotonic()
        return list(self.rows)

    def _require_whole(self, resumed_from: ResumePoint) -> None:
        last = self.rows[-1].frames if self.rows else 0
        if last != resumed_from.frames:
            raise DamagedFileError(
                self.run_dir.attempt(resumed_from.attempt).metrics,
                f"ends at frames {last}, its checkpoint is of frames {resumed_from.frames}",
                hint=f"train the run anew: orchestrate retry {self.sweep} {self.run.run_id}",
            )

    # Training

    def record(self, row: Row) -> None:
        """Append one iteration's metrics."""
        assert self._metrics is not None, "begin() comes first"
        self.guard()
        self._metrics.append(row)
        self._iteration_fps = rate(self.rows[-1] if self.rows else None, row)
        self._window.add(row)
        self.rows.append(row)

    def progress(self, frames: int, total: int | None, value: float | None) -> None:
        """Tell the worker how far the run is: frames, of how many, the latest return; and how fast it is.

        The end-to-end throughput is that of the attempt so far; after its first iteration, that iteration's.
        """
        so_far = self._window.figures.end_to_end_fps
        self._send(
            {
                "frames": frames,
                "total": total,
                "end_to_end_fps": self._iteration_fps if so_far is None else so_far,
                "iteration_fps": self._iteration_fps,
                "return": value,
            }
        )

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            os.write(self._relay, (json.dumps(message) + "\n").encode())
        except OSError:
            pass  # the worker is gone or slow, and can do without

    def before_checkpoint(self) -> None:
        """Make the metrics durable, so that no checkpoint is ever ahead of them; refuse if fenced."""
        assert self._metrics is not None, "begin() comes first"
        self.guard()
        self._metrics.sync()

    def checkpointed(self, frames: int) -> None:
        """A checkpoint after ``frames`` frames is on disk under its final name."""
        self.checkpointed_frames = frames
        self._send({"checkpoint": frames})

    def iteration_done(self) -> None:
        """End of an iteration, its checkpoint written if one was due."""
        now = time.monotonic()
        self._iteration_seconds, self._iteration_began = now - self._iteration_began, now
        if self.stopping:
            raise InterruptedRun(self._stop_signal)

    @property
    def stopping(self) -> bool:
        """A stop signal came: checkpoint at the end of this iteration, whether or not one is due."""
        return self._stop_deadline is not None

    @property
    def grace_left(self) -> float:
        """Seconds that may still pass until the run must have left, once :attr:`stopping`."""
        assert self._stop_deadline is not None, "no stop signal came"
        return max(0.0, self._stop_deadline - time.monotonic())

    @property
    def stop_signal(self) -> str:
        return self._stop_signal

    def guard(self) -> None:
        """Raise :class:`FencedRun` once the claim is lost. Call before anything that others could see."""
        if self._lease.lost or self.run_dir.superseded(self.attempt):
            raise FencedRun

    # The worker's side

    def on_signal(self, number: int, grace: float) -> None:
        """A stop signal came: finish the iteration if it fits the grace (seconds), else leave."""
        if self._stop_deadline is not None:
            return
        self._stop_signal = signal.Signals(number).name
        self._stop_deadline = time.monotonic() + _GRACE_SHARE * grace
        if self.polls_stopping:
            return
        expected = self._iteration_seconds
        elapsed = time.monotonic() - self._iteration_began
        if expected is None or expected - elapsed > _GRACE_SHARE * grace:
            raise InterruptedRun(self._stop_signal)

    def keep_lease(self) -> threading.Thread:
        """Renew the lease until the process ends; leave at once when it is lost."""

        def renew() -> None:
            while self._lease.renew():
                time.sleep(self._lease.interval)
            os._exit(FENCED_EXIT)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        return thread


def _last_iteration(rows: Sequence[Row]) -> float | None:
    """Seconds that the last of these iterations took; what the next one is expected to take."""
    if not rows:
        return None
    return rows[-1].wall_time - (rows[-2].wall_time if len(rows) > 1 else 0.0)


# Exit codes of a run's process, for the worker that forked it.
DONE_EXIT = 0
FAILED_EXIT = 1
NOT_MINE_EXIT = 3
FENCED_EXIT = 4
INTERRUPTED_EXIT = 75

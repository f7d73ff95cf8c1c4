"""The interface between the worker and a trainer: :class:`RunContext` in, :class:`Outcome` out."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.training.plain_data import read_plain_data, write_plain_data
from jobs.training.processes.life import Life
from jobs.training.processes.ranks import Ranks
from jobs.training.processes.run_memory import RunMemory
from orchestrator.config.program.identity import ProgramFiles
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.types import KEPT, PluginSource, Run, Value
from orchestrator.planning.throughput.measure import Window, rate
from orchestrator.rundir import (
    AttemptDir,
    CheckpointFile,
    Lease,
    MetricsWriter,
    ResumePoint,
    Row,
    RunDir,
    add_row,
    sha256,
)
from orchestrator.rundir.files.atomic import storage_errors, temporary_name
from orchestrator.rundir.files.file_server import persist

# How an interrupted run relates to one left alone: equal; not equal, but continued from its last checkpoint;
# equal because environments restart at fixed points. The last one where nothing is declared.
EXACTNESS = EXACT, NO_PROGRESS_LOST, RESET, UNDECLARED = "exact", "no progress lost", "reset", "undeclared"

# An iteration is finished after a stop signal only if this share of the grace covers what is left of it.
GRACE_SHARE = 0.8


class InterruptedRun(BaseException):
    """The run must leave now, on its last checkpoint. Not an ``Exception``: trainers must not swallow it."""


class FencedRun(BaseException):
    """The attempt lost its claim: not another byte may be written."""


class BadConfigError(OrchestrateError):
    """The trainer refuses the run's configuration; another attempt would fail in the same way."""


@dataclass(frozen=True)
class UsualEvaluation:
    """How a training evaluates its policy: the ``task`` as in a grid, and the episodes of one evaluation."""

    task: str
    episodes: int
    deterministic: bool


@dataclass(frozen=True)
class Outcome:
    """A finished training.

    ``exactness``: one of ``EXACTNESS``; "exact" only where it can be proved. ``config`` is the composed
    configuration, JSON values only. ``files`` of the attempt go into the manifest, each with whether the
    result is void without it. ``evaluation``: how training evaluates, if it does. ``code``: keys of the
    result on the run's code, in place of those of its start. ``final_state``: files from which a longer run
    can go on. Raises ``ValueError`` for another exactness.
    """

    frames: int
    iterations: int
    exactness: str
    config: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[Path, bool], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)
    evaluation: UsualEvaluation | None = None
    final_state: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.exactness not in EXACTNESS:
            raise ValueError(f"exactness is {self.exactness!r}; expected one of {list(EXACTNESS)}")


class RunContext:
    """One attempt, as its trainer sees it, in the run's own process.

    A trainer calls :meth:`load`, then in each iteration :meth:`log`, :meth:`save` if a checkpoint is due, and
    :meth:`iteration_done`, which leaves by raising after a stop signal.

    A trainer with checkpoints of its own calls :meth:`candidates` and :meth:`begin` instead, then in each
    iteration :meth:`record` and, if it writes a checkpoint, :meth:`before_checkpoint` and
    :meth:`checkpointed`, or :meth:`adopt`. With ``polls_stopping`` it looks at :attr:`stopping` and is never
    interrupted in between.

    ``kept``: the checkpoints of :meth:`load`, :meth:`save` and :meth:`adopt`, oldest first; the last one is
    part of the result. ``stop_signal``: the name of the stop signal, empty before one came. ``memory``: that
    of the run's processes; ``life``: their signs of life. ``ranks``: those on the other nodes, which the
    trainer starts. ``plugins``: those of the sweep, which are loaded. ``program``: the files of the program
    that the trainer starts, as they were at the run's start. ``other_bits``: what differs here from what
    trained the shorter run that this one begins with, and may change its bits. ``forked_from``: the point of
    the run that this one goes on from with other keys. ``total``: the frames at the end of the run as it
    declared them; a run that ends before is not done.
    """

    polls_stopping = False

    def __init__(
        self, sweep: str, run: Run, run_dir: RunDir, attempt: AttemptDir, lease: Lease, relay: int
    ) -> None:
        self.sweep, self.run, self.run_dir, self.attempt = sweep, run, run_dir, attempt
        self.rows: list[Row] = []
        self.total: int | None = None
        self.checkpointed_frames: int | None = None
        self.kept: list[Path] = []
        self._window = Window()
        self._iteration_fps: float | None = None
        self._lease, self._relay = lease, relay
        self._metrics: MetricsWriter | None = None
        self._stop_deadline: float | None = None
        self.memory, self.life, self.ranks = RunMemory(), Life(), Ranks()
        self.plugins: tuple[PluginSource, ...] = ()
        self.program: ProgramFiles | None = None
        self.other_bits = ""
        self.forked_from: Mapping[str, Value] | None = None
        self.stop_signal = ""
        self._iteration_began = self._logged = time.monotonic()
        self._iteration_seconds: float | None = None

    # Resuming

    def load(self) -> Any:
        """Open the metrics; return the object of the newest whole checkpoint, ``None`` at a first start."""
        checkpoint = self.newest()
        if checkpoint is None:
            self.begin(None)
            return None
        self.begin(ResumePoint(checkpoint.attempt, checkpoint.frames))
        return read_plain_data(checkpoint.path)

    def newest(self) -> CheckpointFile | None:
        """Return the most advanced checkpoint of earlier attempts that is whole; warn of damaged ones."""
        for file in self.candidates():
            if sha256(file.path).startswith(file.digest):
                self.kept = [file.path]
                return file
            sys.stderr.write(f"warning: {file.path} is damaged; trying the one before\n")
        return None

    def candidates(self) -> list[CheckpointFile]:
        """List checkpoints of earlier attempts, the most advanced first; take the first that is whole.

        With ``other_bits`` that of a shorter run, which this one begins with, does not count; a fork's does.
        """
        found = self.run_dir.checkpoints(below=self.attempt.number)
        if not self.other_bits or all(file.attempt for file in found):
            return found
        if self.run.origin:
            sys.stderr.write(f"warning: the run to fork from was trained elsewhere: {self.other_bits}\n")
            return found
        sys.stderr.write(f"warning: the finished shorter run is no beginning here: {self.other_bits}\n")
        return [file for file in found if file.attempt]

    @property
    def init(self) -> Path | None:
        """The checkpoint with the policy to begin with. Raises :class:`DamagedFileError` if it is lost."""
        path = self.run_dir.attempt(0).init
        if self.run.init and not path.is_file():
            raise DamagedFileError(path, "is missing, and the run begins with that policy")
        return path if self.run.init else None

    def begin(self, resumed_from: ResumePoint | None, *, row_at_checkpoint: bool = True) -> list[Row]:
        """Open the metrics file; return the history up to the checkpoint resumed from.

        With ``row_at_checkpoint`` each checkpoint follows a row of as many frames, so that a history without
        its end raises :class:`DamagedFileError`.
        """
        self.guard()
        if resumed_from is None and self.run.fork and self.run.origin:
            path = self.run_dir.attempt(0).checkpoints
            raise DamagedFileError(path, "holds no whole checkpoint of the run to fork from")
        if self._metrics is not None:  # of a checkpoint that turned out not to fit
            self._metrics.close()
        self._metrics = MetricsWriter(self.attempt.metrics, resumed_from)
        self.rows = self.run_dir.history(last=self.attempt.number)
        if resumed_from is not None and row_at_checkpoint:
            self._require_whole(resumed_from)
        self._iteration_seconds = _last_iteration(self.rows)
        self._iteration_began = self._logged = time.monotonic()
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

    def log(self, frames: int, metrics: Mapping[str, float], total: int | None = None) -> None:
        """Record an iteration that ends now, and show it.

        ``total``: the frames at the end of the run, which it has to reach; the last one counts.
        Numbers of NumPy and PyTorch are taken too.
        """
        frames, metrics = int(frames), {name: float(value) for name, value in metrics.items()}
        now = time.monotonic()
        seconds, self._logged = now - self._logged, now
        last = self.rows[-1] if self.rows else Row(0, 0, 0.0, {})
        self.total = total or self.total
        self.record(Row(last.iteration + 1, frames, last.wall_time + seconds, metrics))
        self.progress(frames, total, metrics.get("return"))

    def save(self, state: object) -> None:
        """Write plain data as the checkpoint of the frames logged last; keep it and the one before.

        Raises ``TypeError`` if it is not plain data (:mod:`jobs.training.plain_data`).
        """
        assert self.rows, "log() comes first"
        temporary = temporary_name(self.attempt.path / "checkpoint")
        try:
            with storage_errors(temporary):
                persist(lambda: write_plain_data(temporary, state))
            self.adopt(temporary, self.rows[-1].frames)
        finally:
            temporary.unlink(missing_ok=True)

    def adopt(self, source: Path, frames: int) -> None:
        """Make a finished file a checkpoint; keep it and the one before, remove others that the run wrote."""
        self.before_checkpoint()
        path = self.attempt.adopt_checkpoint(source, frames)
        self.checkpointed(frames)
        self.kept = [*self.kept[-1:], path]
        self.guard()
        for file in self.run_dir.checkpoints(below=self.attempt.number + 1):
            if file.attempt and file.path not in self.kept:
                file.path.unlink(missing_ok=True)

    def record(self, *rows: Row) -> None:
        """Append the metrics of an iteration, or of several."""
        assert self._metrics is not None, "begin() comes first"
        self.guard()
        self._metrics.append(*rows)
        self.life.mark()
        for row in rows:
            self._iteration_fps = rate(self.rows[-1] if self.rows else None, row)
            self._window.add(row)
            add_row(self.rows, row)

    def progress(self, frames: int, total: int | None, value: float | None, note: str | None = None) -> None:
        """Send the worker the run's progress: frames, of how many, the latest return, and the throughputs.

        ``note``: what `status` is to say of the run.

        The end-to-end throughput is that of the attempt so far; after its first iteration, that iteration's.
        """
        so_far = self._window.figures.end_to_end_fps
        send(
            self._relay,
            {
                "frames": frames,
                "total": total,
                "end_to_end_fps": self._iteration_fps if so_far is None else so_far,
                "iteration_fps": self._iteration_fps,
                "return": value,
                **({"note": note} if note else {}),
            },
        )

    def before_checkpoint(self) -> None:
        """Make the metrics durable, so that no checkpoint is ever ahead of them; refuse if fenced."""
        assert self._metrics is not None, "begin() comes first"
        self.guard()
        self._metrics.sync()

    def checkpointed(self, frames: int) -> None:
        """Note that a checkpoint after ``frames`` frames is on disk under its final name."""
        self.checkpointed_frames = frames
        self.life.mark()
        send(self._relay, {"checkpoint": frames})

    def iteration_done(self) -> None:
        """End an iteration, after its checkpoint if one was due; leave if a stop signal came."""
        now = time.monotonic()
        self._iteration_seconds, self._iteration_began = now - self._iteration_began, now
        if self.stopping:
            raise InterruptedRun(self.stop_signal)

    @property
    def keeps_state(self) -> bool:
        """Whether the last checkpoint holds all that a longer run needs: not of a run that ends by time."""
        return self.run.keep == KEPT[0] and get_trainer(self.run.trainer).minutes_of(self.run) is None

    @property
    def stopping(self) -> bool:
        """Whether a stop signal came: checkpoint at the end of this iteration, due or not."""
        return self._stop_deadline is not None

    @property
    def grace_left(self) -> float:
        """Seconds until the run must have left, once :attr:`stopping`."""
        assert self._stop_deadline is not None, "no stop signal came"
        return max(0.0, self._stop_deadline - time.monotonic())

    def guard(self) -> None:
        """Raise :class:`FencedRun` once the claim is lost. Call before every write that others could see."""
        if self._lease.lost or self.run_dir.superseded(self.attempt):
            raise FencedRun

    # The worker's side

    def on_signal(self, number: int, grace: float) -> None:
        """Take a stop signal: finish the iteration if it fits the grace (seconds), else leave."""
        if self._stop_deadline is not None:
            return
        self.stop_signal = signal.Signals(number).name
        self._stop_deadline = time.monotonic() + GRACE_SHARE * grace
        if self.polls_stopping:
            return
        expected = self._iteration_seconds
        elapsed = time.monotonic() - self._iteration_began
        if expected is None or expected - elapsed > GRACE_SHARE * grace:
            raise InterruptedRun(self.stop_signal)

    def keep_lease(self) -> threading.Thread:
        """Renew the lease until the process ends; leave at once when it is lost."""

        def renew() -> None:
            while self._lease.renew():
                time.sleep(self._lease.interval)
            os._exit(FENCED_EXIT)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        return thread


def send(relay: int, message: Mapping[str, Any]) -> None:
    """Send a line to the worker. A failure does not matter: what counts stands on disk."""
    try:
        os.write(relay, (json.dumps(message) + "\n").encode())
    except OSError:
        pass


def _last_iteration(rows: Sequence[Row]) -> float | None:
    """Return the seconds of the last iteration, as a prediction of the next one."""
    if not rows:
        return None
    return rows[-1].wall_time - (rows[-2].wall_time if len(rows) > 1 else 0.0)


# Exit codes of a run's process, for the worker that forked it.
DONE_EXIT = 0
FAILED_EXIT = 1
NOT_MINE_EXIT = 3
FENCED_EXIT = 4
INTERRUPTED_EXIT = 75

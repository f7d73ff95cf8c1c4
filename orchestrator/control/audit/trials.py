"""Train one short run in a results tree of its own, as a sweep would, whole or killed on the way."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.control.cloud.exchange import Tell
from orchestrator.control.flow import flow_of
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.types import RunState, Sweep
from orchestrator.planning.plan import ReuseOption, SubmitOptions
from orchestrator.rundir import Result, Row, RunDir, SweepDir

# The variable of a program that an audit watches: the folder with its plan and its answers.
HOOK = "ORCHESTRATE_AUDIT"
_POLL_S = 0.02


@dataclass(frozen=True)
class Plan:
    """What the hook does in the program (``orchestrate_audit`` in its Python).

    ``save``: frames at which `run.save` writes, by default when it would. ``kill``: frames of checkpoints
    after which the program kills itself. ``places``: lines that follow a checkpoint. ``at``: those at which
    it notes its state, by frames.
    """

    save: Sequence[int] | None = None
    kill: Sequence[int] = ()
    places: Sequence[Any] = ()
    at: Mapping[int, Sequence[Any]] | None = None

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        about = {"save": self.save, "kill": list(self.kill), "places": list(self.places), "at": self.at or {}}
        (folder / "plan.json").write_text(json.dumps(about))


@dataclass(frozen=True)
class Trial:
    """A trained run: its metrics, its result, and the folder with the hook's answers.

    ``kills``: frames of the checkpoints after which it was killed. ``checkpointed``: whether it wrote a
    checkpoint before its end.
    """

    rows: Sequence[Row]
    result: Result
    hook: Path
    kills: tuple[int, ...]
    checkpointed: bool

    @property
    def frames(self) -> int:
        return self.rows[-1].frames

    def answers(self, name: str) -> list[Any]:
        """Return what the hook noted, without repetitions."""
        try:
            lines = (self.hook / name).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in dict.fromkeys(lines)]


def one_run(sweep: Sweep) -> Sweep:
    """Return the sweep with its first run alone; it sends no messages and has no loggers."""
    first = replace(sweep.runs[0], loggers=(), target=None)
    return replace(sweep, runs=(first,), targets=("local",), notify=())


def train(sweep: Sweep, folder: Path, plan: Plan, tell: Tell, *, watched_kills: int = 0) -> Trial:
    """Train the sweep's one run in ``folder``.

    ``watched_kills``: how often to kill it from outside after a new checkpoint, where no hook does it.
    Raises :class:`OrchestrateError` if the run does not end well.
    """
    hook, results = folder / "hook", folder / "results"
    plan.write(hook)
    sweep_dir, (run,) = SweepDir(results, sweep.name), sweep.runs
    killer = _Killer(sweep_dir.run(run.run_id), watched_kills)
    with _environment(HOOK, str(hook)), killer.watching():
        flow = flow_of(sweep, sweep_dir, SubmitOptions(1, reuse=ReuseOption.NONE), "local")
        seen = None
        try:
            flow.start(tell, tell, detach=False)
            for seen in flow.follow(tell):
                tell(f"{seen.statuses[run.run_id].frames or 0} frames")
        except BaseException:  # such as Ctrl-C: nothing is left at work
            flow.stop()
            raise
    status = seen.statuses[run.run_id] if seen is not None else None
    result, run_dir = sweep_dir.run(run.run_id).result(), sweep_dir.run(run.run_id)
    if status is None or status.state is not RunState.DONE or result is None:
        raise _failed(status.why if status else "", run_dir)
    rows = run_dir.history(result.attempt)
    if not rows:
        raise OrchestrateError(
            "the run left no metrics, so there is nothing to compare",
            hint="write them as docs/run-protocol.md says, or name their file by `metrics:`",
        )
    marks = (int(path.name.partition("-")[2]) for path in hook.glob("killed-*"))
    kills = tuple(sorted({*marks, *killer.frames}))
    return Trial(rows, result, hook, kills, killer.saw_checkpoint)


def _failed(why: str, run: RunDir) -> OrchestrateError:
    logs = [attempt.log for attempt in run.attempts() if attempt.log.exists()]
    tail = logs[-1].read_text(errors="replace").strip().splitlines()[-1:] if logs else []
    said = why or "".join(tail) or "it did not end"
    return OrchestrateError(
        f"the run of the audit failed: {said}",
        hint="mend it, then audit again: `orchestrate sweep` with the grid shows the whole log",
    )


class _Killer:
    """Kills the process of a run after each of its first ``most`` checkpoints.

    ``frames``: of these checkpoints. ``saw_checkpoint``: whether one came before the end.
    """

    def __init__(self, run: RunDir, most: int) -> None:
        self._run, self._most = run, most
        self.frames: list[int] = []
        self.saw_checkpoint = False
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            with suppress(OSError, DamagedFileError):
                self._look()

    def _look(self) -> None:
        newest = max((one.frames for one in self._run.checkpoints()), default=0)
        if not newest or self._run.has_result():
            return
        self.saw_checkpoint = True
        attempt = self._run.attempts()[-1]
        reached = attempt.checkpointed()
        if len(self.frames) < self._most and reached and reached not in self.frames:
            claim = attempt.claim()
            if claim is not None and claim.holder.signal(signal.SIGKILL):
                self.frames.append(reached)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def covering(kills: Collection[int], frames: int) -> int | None:
    """Return the last kill before ``frames``."""
    return max((kill for kill in kills if kill < frames), default=None)

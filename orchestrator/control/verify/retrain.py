"""Train runs again on this machine, in a results tree of their own, by the flow of any sweep."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.control.cloud.exchange import Tell, quietly
from orchestrator.control.decisions import cancel_runs, retry_runs
from orchestrator.control.flow import Flow, flow_of
from orchestrator.control.verify.segments import Segment
from orchestrator.core.types import RunState, Sweep
from orchestrator.planning.plan import ReuseOption, SubmitOptions
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.copies.prefix import place_policy, place_prefix
from orchestrator.rundir.removable import put_away
from orchestrator.status.survey import Survey

_SUFFIX, _LONGEST_NAME = "-verify", 90
# Workers kill what does not leave within half a minute.
_PATIENCE_S, _PAUSE_S = 60.0, 0.1


class Retraining:
    """A scratch tree with the sampled runs, each to be trained up to so many frames (``ends``).

    Killed, it goes on. Nothing is taken from a library, nor from any run but the prefixes. Its sweep has
    another name, so that logs of its runs replace no others.
    """

    def __init__(
        self,
        tree: Path,
        sweep: Sweep,
        segments: Mapping[str, Segment],
        ends: Mapping[str, float],
        slots: int | None,
    ) -> None:
        name = sweep.name[:_LONGEST_NAME] + _SUFFIX
        runs = tuple(segment.description for segment in segments.values())
        self._sweep = replace(sweep, name=name, runs=runs, targets=("local",), notify=(), length="")
        self.segments, self._ends = segments, ends
        self.sweep_dir = SweepDir(tree, name)
        self._flow: Flow = flow_of(
            self._sweep, self.sweep_dir, SubmitOptions(slots, reuse=ReuseOption.NONE), "local"
        )
        self._last: Survey | None = None

    def run(self, run_id: str) -> RunDir:
        """Return the folder in which a run is trained again."""
        return self.sweep_dir.run(run_id)

    def train(self, tell: Tell) -> Iterator[Survey]:
        """Train what is missing; yield the state again and again."""
        self._prepare()
        started = self._flow.start(quietly, tell, detach=False)
        if not started.over:
            for seen in self._flow.follow(tell):
                self._stop_at_end(seen)
                yield seen
        self._await_workers()
        self._last = self._flow.survey()

    def stop(self) -> None:
        """Stop the training, to be continued by the same command."""
        self._flow.stop()

    def why_not(self, run_id: str) -> str:
        """Return why a run could not be trained as far as it should; empty if it was."""
        assert self._last is not None, "after train"
        if self.run(run_id).has_result() or self._reached(run_id):
            return ""
        status = self._last.statuses[run_id]
        return f"cannot be trained again here ({status.why or status.state.value})"

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(put_away(self.sweep_dir.results), ignore_errors=True)

    def _prepare(self) -> None:
        """Place the prefixes, and take up what an earlier command left."""
        self.sweep_dir.create()
        with self.sweep_dir.lock():
            for run_id, segment in self.segments.items():
                if segment.prefix and segment.source and not self.run(run_id).newest_attempt():
                    place = place_policy if segment.description.init else place_prefix
                    place(self.run(run_id), segment.source, segment.prefix)
        if self.sweep_dir.index_path.exists():
            left = [one for one in self.segments if not self.run(one).has_result() and not self._reached(one)]
            retry_runs(self.sweep_dir, left)

    def _await_workers(self) -> None:
        """Wait until the workers have left: a cancelled run ends before its worker does."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not all(log.exited for log in self.sweep_dir.read_journals()):
            time.sleep(_PAUSE_S)

    def _stop_at_end(self, seen: Survey) -> None:
        """Cancel the runs that were trained far enough."""
        past = [
            run_id
            for run_id, status in seen.statuses.items()
            if status.state is RunState.RUNNING and (status.frames or 0) >= self._ends[run_id]
        ]
        if enough := [run_id for run_id in past if self._reached(run_id)]:
            cancel_runs(self.sweep_dir, enough)

    def _reached(self, run_id: str) -> bool:
        """Return whether a run has rows past its end, the last of which may yet lack metrics."""
        run = self.run(run_id)
        rows = run.history() if run.newest_attempt() else []
        return len(rows) > 1 and rows[-2].frames >= self._ends[run_id]

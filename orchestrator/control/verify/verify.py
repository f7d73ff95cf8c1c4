"""Verify finished runs: draw a sample, train it again here, compare, and keep the verdicts with the sweep."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config.sweep import load_sweep
from orchestrator.control.cloud.exchange import Tell
from orchestrator.control.verify.retrain import Retraining
from orchestrator.control.verify.sample import chance, drawn, proposed
from orchestrator.control.verify.segments import Segment, Segments, find_segments
from orchestrator.control.verify.verdict import is_doubtful, judged
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.core.types import Sweep
from orchestrator.rundir import IndexRow, SweepDir
from orchestrator.rundir.records.verifications import Verification
from orchestrator.status.survey import Survey


@dataclass(frozen=True)
class VerifyOptions:
    """What to train again. ``sample``: segments; by default as many as are likely to find a falsified one.

    ``falsified``: the share of all that is assumed to be; ``share``: how much of each segment is trained.
    """

    sample: int | None = None
    seed: int = 0
    falsified: float = 0.1
    share: float = 1.0
    slots: int | None = None


def find_sample(
    sweep_dir: SweepDir, rows: Sequence[IndexRow], options: VerifyOptions, *, named: bool
) -> Verifier:
    """Draw the sample of the finished ones of these runs; if they are ``named``, it is all by default.

    Raises :class:`NotFoundError` without a finished run, :class:`OrchestrateError` if none can be verified.
    """
    finished = [row for row in rows if sweep_dir.run_to_read(row.run_id).has_result()]
    if not finished:
        hint = f"`orchestrate status {sweep_dir.name}` shows how far they are"
        raise NotFoundError(f"{sweep_dir.name}: no run to verify is finished", hint=hint)
    sweep = load_sweep(sweep_dir.latest_grid_path(), sweep_dir.results)
    segments = find_segments(sweep, sweep_dir, finished, Path.cwd())
    asked = {row.run_id for row in finished} if named else segments.found.keys()
    ids = segments.found.keys() & asked
    if not ids:
        run_id, why = next(iter(segments.why_not.items()))
        raise OrchestrateError(
            f"{sweep_dir.name}: no run can be verified: {run_id[:8]}: {why}",
            hint="run the command in the project's folder, with the code that trained the runs",
        )
    size = options.sample or (len(ids) if named else proposed(len(ids), options.falsified))
    chosen = {run_id: segments.found[run_id] for run_id in drawn(ids, size, options.seed)}
    return Verifier(sweep, sweep_dir, replace(segments, found=chosen), len(ids), options)


class Verifier:
    """Trains a sample again. ``total``: the segments that it was drawn from; ``verdicts``: after training.

    ``why_not``: why runs have no verdict.
    """

    def __init__(
        self, sweep: Sweep, sweep_dir: SweepDir, sample: Segments, total: int, options: VerifyOptions
    ) -> None:
        self.total, self.sample, self.why_not = total, sample.found, dict(sample.why_not)
        self.verdicts: list[Verification] = []
        self.failed = False
        self._sweep, self._sweep_dir, self._options = sweep, sweep_dir, options
        self._trainings: list[Retraining] = []

    def train(self, tell: Tell) -> Iterator[Survey]:
        """Train the sample, and what differs once more; yield the state; then judge, and keep the verdicts.

        What was trained is removed if all is equal. Killed, the same command goes on.
        """
        with self._sweep_dir.verifications.writing():
            first = self._training(self.sample)
            yield from first.train(tell)
            self.why_not |= {one: why for one in self.sample if (why := first.why_not(one))}
            whole = {one: segment for one, segment in self.sample.items() if one not in self.why_not}
            doubtful = {one: seg for one, seg in whole.items() if is_doubtful(seg, first.run(one))}
            if doubtful:
                yield from self._training(doubtful).train(tell)
            for run_id, segment in whole.items():
                self._judge(run_id, segment)
            self.failed = len(self.verdicts) < len(self.sample) or any(
                one.difference for one in self.verdicts
            )
            for training in () if self.failed else self._trainings:
                training.remove()

    def stop(self) -> None:
        """Stop what is trained now."""
        for training in self._trainings[-1:]:
            training.stop()

    @property
    def chance(self) -> float:
        """The chance that the verdicts are on a falsified segment, if so many are."""
        return chance(self.total, self._options.falsified, len(self.verdicts))

    @property
    def scratch(self) -> Path:
        """Where runs were trained again."""
        return self._trainings[0].sweep_dir.path

    def _training(self, segments: Mapping[str, Segment]) -> Retraining:
        # Other code and another machine train anew.
        decisive = [socket.gethostname(), *sorted({str(one.result.code_id) for one in self.sample.values()})]
        key = hashlib.sha256("\n".join(decisive).encode()).hexdigest()[:16] + "-again" * len(self._trainings)
        ends = {
            run_id: segment.start + self._options.share * ((segment.result.frames or 0) - segment.start)
            for run_id, segment in segments.items()
        }
        tree = self._sweep_dir.verify_scratch / key
        self._trainings.append(Retraining(tree, self._sweep, segments, ends, self._options.slots))
        return self._trainings[-1]

    def _judge(self, run_id: str, segment: Segment) -> None:
        first, *again = (one for one in self._trainings if run_id in one.segments)
        other = again[0].run(run_id) if again and not again[0].why_not(run_id) else None
        verdict = judged(segment, first.run(run_id), other)
        if isinstance(verdict, str):
            self.why_not[run_id] = verdict
        else:
            self.verdicts.append(replace(verdict, share=self._options.share))
            self._sweep_dir.verifications.add(self.verdicts[-1])

"""What programs really executed, by the trace of tests/commands/count.py, held against what a sweep says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from orchestrator.core.types import Run
from orchestrator.rundir import Row, SweepDir


def expected_rows(seed: int, steps: int = 20) -> list[tuple[int, int, float]]:
    """What tests/commands/count.py records: iteration, frames, return."""
    generator, total, rows = random.Random(seed), 0.0, []
    for step in range(1, steps + 1):
        total += generator.random()
        rows.append((step, step * 100, total))
    return rows


def as_tuples(rows: list[Row]) -> list[tuple[int, int, float]]:
    return [(row.iteration, row.frames, row.metrics["return"]) for row in rows]


class Audit:
    """The lines that programs left, in the order in which they were executed."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines() if path.exists() else []
        self.lines = [(kind, run, process, int(step)) for kind, run, process, step in map(str.split, lines)]

    def of(self, run_id: str) -> list[list[tuple[str, int]]]:
        """Per process that executed the run, in order: what it did at which step."""
        mine = [(kind, process, step) for kind, run, process, step in self.lines if run == run_id]
        return [
            [(kind, step) for kind, _, step in group] for _, group in groupby(mine, key=lambda line: line[1])
        ]

    def check(self, sweep: SweepDir) -> None:
        """No process works beside another, each executes steps in order, and none begins after the result."""
        for run_id in {run for _, run, _, _ in self.lines}:
            executions = self.of(run_id)
            begun = [process for kind, run, process, _ in self.lines if kind == "begin" and run == run_id]
            assert len(executions) == len(begun) == len(set(begun)), f"two processes at once: {run_id}"
            assert len(executions) <= len(sweep.run(run_id).attempts())
            reached = 0
            for execution in executions:
                assert execution[0][0] == "begin"
                began = execution[0][1]
                assert began <= reached, "steps were left out"
                steps = [step for kind, step in execution if kind == "step"]
                assert steps == list(range(began + 1, began + 1 + len(steps)))
                reached = max([began, *steps])


def check_finished(sweep: SweepDir, runs: Iterable[Run], audit: Path, steps: int = 20) -> None:
    """Every run is done, once, with an undisturbed one's history, and its claims tell every execution."""
    Audit(audit).check(sweep)
    for run in runs:
        run_dir = sweep.run(run.run_id)
        result = run_dir.result()
        assert result is not None
        run_dir.verify(result, checksums=True)
        assert as_tuples(run_dir.history()) == expected_rows(run.seed, steps)
        numbers = [attempt.number for attempt in run_dir.attempts()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert result.attempt == numbers[-1] == result.attempts, "a finished run was executed again"
        begun = [began[0][1] for began in Audit(audit).of(run.run_id)]
        resumed = [point_of(attempt.metrics) for attempt in run_dir.attempts() if attempt.metrics.exists()]
        assert set(begun) <= set(resumed), "a run went on from elsewhere than its metrics say"


def point_of(metrics: Path) -> int:
    """The step that an attempt's metrics say it resumed from."""
    first = metrics.read_text().split("\n")[0]
    point = json.loads(first)["resumed_from"] if first else None
    return point["frames"] // 100 if point else 0

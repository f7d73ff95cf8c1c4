"""Metrics of a program that writes faster than they are recorded, and faster still than sinks log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.trainers.command import inbox as inbox_module
from jobs.trainers.command.found_metrics import FoundMetrics
from jobs.trainers.command.inbox import Inbox
from jobs.trainers.command.lines import Dropped
from jobs.training.context import RunContext
from jobs.training.records.loggers import thinned
from orchestrator.rundir import Claim, Lease, Row
from tests.helpers import command_run, make_sweep

LINES = 12_000
ONE_MINUTE = 1.0


@pytest.fixture
def context(results: Path) -> Iterator[RunContext]:
    run = command_run(["true"])
    run_dir = make_sweep(results, [run]).run(run.run_id)
    attempt = run_dir.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    relay = os.open(os.devnull, os.O_WRONLY)
    context = RunContext("tiny", run, run_dir, attempt, Lease(attempt.claim_path), relay)
    yield context
    if context._metrics is not None:
        context._metrics.close()
    os.close(relay)


class Sink:
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def log(self, row: Row) -> None:
        self.rows.append(row)

    def log_video(self, *_: Any) -> None: ...

    def close(self, *, finished: bool) -> None: ...


Flood = Callable[..., Inbox]


@pytest.fixture
def flood(context: RunContext) -> Iterator[Flood]:
    """Fill an inbox: lines of a second of training, every 500th with an evaluation, and a checkpoint."""
    made: list[Inbox] = []

    def fill(minutes: float | None = None, end: str = "\n") -> Inbox:
        inbox = Inbox(context, None, minutes, context.run_dir.path / "work")
        made.append(inbox)
        inbox.sinks = [Sink()]
        lines = []
        for n in range(1, LINES + 1):
            evaluation = {"eval/return": n} if n % 500 == 0 else {}
            metrics = {
                "return": n,
                "timers/collection_time": 0.75,
                "timers/training_time": 0.25,
                **evaluation,
            }
            lines.append(json.dumps({"frames": n, "metrics": metrics}))
        context.attempt.inbox_metrics.write_text("\n".join(lines) + end)
        (context.attempt.inbox_checkpoints / str(LINES)).write_text("{}")
        return inbox

    yield fill
    for inbox in made:
        inbox._file.close()


def test_the_time_is_up_long_before_all_lines_are_taken(context: RunContext, flood: Flood) -> None:
    inbox = flood(ONE_MINUTE)
    inbox.take()
    assert inbox.time.over
    assert inbox.behind
    assert 60 <= len(context.rows) < LINES / 4


@pytest.mark.parametrize("end", ["\n", ""])
def test_all_lines_are_recorded_in_the_end_and_the_checkpoint_after_them(
    context: RunContext, flood: Flood, end: str
) -> None:
    inbox = flood(end=end)
    inbox.take()
    assert context.checkpointed_frames is None
    inbox.take_all(ended=True)
    assert [row.frames for row in context.run_dir.history()] == list(range(1, LINES + 1))
    assert context.checkpointed_frames == LINES


def test_sinks_never_have_more_than_seconds_of_work_left_and_miss_no_name(
    context: RunContext, flood: Flood
) -> None:
    inbox = flood()
    inbox.take_all(ended=True)
    inbox.log(0.0)
    (sink,) = inbox.sinks
    assert isinstance(sink, Sink)
    assert sink.rows == []
    inbox.log()
    assert inbox_module._MOST_WAITING / 2 <= len(sink.rows) <= inbox_module._MOST_WAITING
    assert sink.rows[-1] == context.rows[-1]
    steps = [row.frames for row in sink.rows]
    assert steps == sorted(set(steps))
    assert [row.metrics["eval/return"] for row in sink.rows if "eval/return" in row.metrics] == [
        float(n) for n in range(500, LINES + 1, 500)
    ]


@pytest.mark.parametrize(("number", "steps"), [(2, [1, 2]), (4, [2, 4]), (5, [1, 3, 5]), (6, [2, 4, 6])])
def test_neighbours_become_one_with_the_later_ones_values(number: int, steps: list[int]) -> None:
    rows = [Row(n, n, float(n), {"return": n, f"of {n}": n}) for n in range(1, number + 1)]
    found = thinned(rows, 3)
    assert [row.frames for row in found] == steps
    assert [row.metrics["return"] for row in found] == steps
    assert {name for row in found for name in row.metrics} == {name for row in rows for name in row.metrics}


# Metrics in other files


@pytest.fixture
def work(context: RunContext) -> Path:
    path = context.run_dir.path / "work"
    path.mkdir()
    return path


@pytest.fixture
def found_in(context: RunContext) -> Iterator[Callable[[Path], Inbox]]:
    """Open an inbox beside a working folder."""
    made: list[Inbox] = []

    def opened(folder: Path) -> Inbox:
        made.append(Inbox(context, None, None, folder))
        return made[-1]

    yield opened
    for inbox in made:
        inbox._file.close()


def test_files_count_until_the_program_writes_a_line(
    context: RunContext, work: Path, found_in: Callable[[Path], Inbox]
) -> None:
    inbox = found_in(work)
    inbox.found._next = 0.0  # a look at once
    (work / "log.csv").write_text("step,reward,loss\n10,1.5,0.25\n20,2.5,0.5\n15,9,9\n")
    inbox.take()
    assert [(row.frames, row.iteration, row.metrics["return"]) for row in context.rows] == [
        (10, 1, 1.5),
        (20, 2, 2.5),
    ]
    assert inbox.dropped.lines == 1
    context.attempt.inbox_metrics.write_text('{"frames": 5, "metrics": {"return": 7}}\n')
    inbox.take_all(ended=True)
    assert context.run_dir.history() == context.rows
    assert [(row.frames, row.metrics) for row in context.rows] == [(5, {"return": 7})]


def test_files_are_read_to_their_end_and_a_checkpoint_holds_their_rows(
    context: RunContext, work: Path, found_in: Callable[[Path], Inbox]
) -> None:
    inbox = found_in(work)
    with (work / "log.csv").open("w") as file:
        print("step,reward", *(f"{step},{step}" for step in range(1, 50_001)), sep="\n", file=file)
    (context.attempt.inbox_checkpoints / "5").write_text("{}")
    inbox.take()
    assert context.checkpointed_frames == 5
    assert len(context.rows) > 5
    inbox.take_all(ended=True)
    assert [row.frames for row in context.rows] == list(range(1, 50_001))


def test_a_resumed_attempt_adds_what_is_new(context: RunContext, work: Path) -> None:
    context.begin(None)
    context.record(Row(1, 10, 1.0, {"reward": 1.0}), Row(2, 20, 2.0, {"reward": 2.0}))
    history = list(context.rows)
    path = work / "log.jsonl"
    path.write_text("".join(f'{{"step": {step}, "reward": {step}}}\n' for step in (10, 20, 30)))
    os.utime(path, (1e9, 1e9))
    found = FoundMetrics(work, context.run, history, list)
    found.program_started()
    with path.open("a") as file:
        file.write('{"step": 25, "reward": 7}\n')
    rows = found.look(history[-1], Dropped())
    assert [(row.frames, row.iteration, row.metrics["return"]) for row in rows] == [(25, 3, 7.0)]
    assert rows[0].wall_time >= 2.0


def test_a_program_that_goes_on_by_itself_keeps_the_times_of_earlier_attempts(
    context: RunContext, work: Path
) -> None:
    before = [Row(number, 10 * number, 100.0 * number, {}) for number in (1, 2, 3)]
    path = work / "log.jsonl"
    path.write_text("".join(f'{{"step": {step}, "reward": {step}}}\n' for step in (10, 20, 25)))
    os.utime(path, (1e9, 1e9))
    found = FoundMetrics(work, context.run, [], lambda: before)
    found.program_started()
    with path.open("a") as file:
        file.write('{"step": 30, "reward": 7}\n{"step": 40, "reward": 7}\n')
    rows = found.look(None, Dropped())
    assert [row.frames for row in rows] == [10, 20, 25, 30, 40]
    assert [row.wall_time for row in rows[:3]] == [100.0, 200.0, 200.0]
    assert 200.0 < rows[3].wall_time < rows[4].wall_time


def test_a_file_that_the_project_brought_is_none_of_the_program(context: RunContext, work: Path) -> None:
    found = FoundMetrics(work, context.run, [], list)
    (work / "data.csv").write_text("step,reward\n1,1\n")
    os.utime(work / "data.csv", (1e9, 1e9))  # a copy has the time of its origin
    (work / "fast.csv").write_text("step,reward\n2,2\n")  # before this process goes on
    found.program_started()
    assert not found.ended()
    rows, behind = found.look_last(None, Dropped())
    assert ([row.frames for row in rows], behind) == ([2], False)


def test_a_program_without_metrics_is_reported_once(context: RunContext, work: Path) -> None:
    found = FoundMetrics(work, context.run, [], list)
    assert found.report() == ""
    found._report_at = 0.0
    assert "no metrics found so far: looked for TensorBoard" in found.report()
    assert found.report() == ""


def test_the_return_that_the_grid_names_is_taken_from_lines_too(context: RunContext, work: Path) -> None:
    named = replace(context.run, metrics={"return": "score"})
    found = FoundMetrics(work, named, [], list)
    row = found.with_return(Row(1, 1, 0.0, {"score": 3.0}))
    assert row.metrics == {"score": 3.0, "return": 3.0}
    assert found.lacks_return([row]) == ""
    assert "no 'score'" in found.lacks_return([Row(1, 1, 0.0, {"other": 3.0})])

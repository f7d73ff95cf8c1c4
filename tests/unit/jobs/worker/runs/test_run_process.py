from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.training.context import NOT_MINE_EXIT, InterruptedRun, Outcome, RunContext
from jobs.worker.capacity.slots import Slot
from jobs.worker.runs import run_process
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Claim, End, Lease, MetricsWriter, ResumePoint, Row
from tests.helpers import command_run, enter, make_sweep


def swallows_the_interruption(context: RunContext) -> Outcome:
    """A trainer with a library in it that makes an error of its own of whatever is raised."""
    try:
        context.on_signal(signal.SIGTERM, grace=0.0)
    except InterruptedRun:
        raise RuntimeError("converted by a library") from None
    raise AssertionError("on_signal() raises when there is no time left")


def fails(context: RunContext) -> Outcome:
    raise RuntimeError("a fault of its own")


def test_a_resumed_run_knows_how_long_an_iteration_takes(results: Path) -> None:
    run = command_run(["true"])
    run_dir = make_sweep(results, [run]).run(run.run_id)
    first = run_dir.take(Claim.fresh("0001-0001"))
    assert first is not None
    writer = MetricsWriter(first.metrics, None)
    for number in (1, 2):
        writer.append(Row(number, number, 10.0 * number))
    writer.close()
    first.write_end(End(RunState.INTERRUPTED))
    attempt = run_dir.take(Claim.fresh("0001-0002"))
    assert attempt is not None
    context = RunContext("tiny", run, run_dir, attempt, Lease(attempt.claim_path), -1)
    context.begin(ResumePoint(1, 2))
    assert context._metrics is not None
    context._metrics.close()
    context.on_signal(signal.SIGTERM, grace=20.0)  # an iteration of 10 s fits in: it is finished
    with pytest.raises(InterruptedRun):
        context.iteration_done()


def test_a_trainer_logs_numbers_of_numpy_and_leaves_no_torn_checkpoint(results: Path) -> None:
    run = command_run(["true"])
    run_dir = make_sweep(results, [run]).run(run.run_id)
    attempt = run_dir.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    context = RunContext("tiny", run, run_dir, attempt, Lease(attempt.claim_path), -1)
    assert context.load() is None
    context.log(np.int64(5), {"return": np.float32(1.5)})
    context.save({"step": 5})
    kept = set(attempt.path.iterdir())
    with pytest.raises(TypeError):
        context.save({"step": 6, "later": np.float32(1)})
    assert set(attempt.path.iterdir()) == kept
    assert [(row.frames, row.metrics) for row in run_dir.history()] == [(5, {"return": 1.5})]
    assert context._metrics is not None
    context._metrics.close()


def test_the_speed_of_a_run_at_work_does_not_flip_with_its_evaluations(results: Path) -> None:
    """Every second iteration evaluates: an iteration of 2 s, then one of 4 s."""
    run = command_run(["true"])
    run_dir = make_sweep(results, [run]).run(run.run_id)
    attempt = run_dir.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    told, relay = os.pipe()
    context = RunContext("tiny", run, run_dir, attempt, Lease(attempt.claim_path), relay)
    context.begin(None)
    wall_time = 30.0
    for number in range(1, 12):
        wall_time += 4.0 if number % 2 == 0 else 2.0
        metrics = {"eval/return": 1.0} if number % 2 == 0 else {}
        context.record(Row(number, 600 * number, wall_time, metrics))
        context.progress(600 * number, 6600, None)
    assert context._metrics is not None
    context._metrics.close()
    os.close(relay)
    with open(told, "rb") as file:
        messages = [json.loads(line) for line in file]
    assert [message["iteration_fps"] for message in messages[1:5]] == [150.0, 300.0, 150.0, 300.0]
    assert messages[0]["end_to_end_fps"] == messages[0]["iteration_fps"] == 600 / 32
    assert {message["end_to_end_fps"] for message in messages[3:]} == {200.0}


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """What a run's process does to its signals must not outlive the test."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("trainer", "outcome", "reason"),
    [
        (swallows_the_interruption, RunState.INTERRUPTED, Reason.STOPPED),
        (fails, RunState.FAILED, Reason.CODE_ERROR),
    ],
)
def test_an_error_on_the_way_out_is_no_failure(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    trainer: object,
    outcome: RunState,
    reason: Reason,
) -> None:
    spec = TrainerSpec("t", train=f"{__name__}:{trainer.__name__}", check="")  # type: ignore[attr-defined]
    monkeypatch.setattr(run_process.pkgutil, "resolve_name", lambda _: trainer)
    run = command_run(["true"])
    sweep = make_sweep(results, [run])
    run_dir = sweep.run(run.run_id)
    attempt = run_dir.take(Claim.fresh("0001-0001"))
    assert attempt is not None
    relay = os.open(os.devnull, os.O_WRONLY)
    context = RunContext(sweep.name, run, run_dir, attempt, Lease(attempt.claim_path), relay)
    launch = run_process.Launch(sweep, run.run_id, "0001-0001", Slot(0, (0,)), relay, None)
    end = run_process._train(launch, context, spec)
    os.close(relay)
    assert (end.outcome, end.reason) == (outcome, reason)


@pytest.mark.parametrize(("kind", "why"), [("cancel", None), ("retry", "taken by another target")])
def test_a_run_taken_out_of_the_sweep_as_it_is_claimed_is_not_begun(
    results: Path, kind: str, why: str | None
) -> None:
    """Between a worker's last look at the ledger and the claim: the run may have been given away."""
    run = command_run(["true"])
    sweep = make_sweep(results, [run])
    launch = run_process.Launch(sweep, run.run_id, "0001-0001", Slot(0, (0,)), -1, None)
    enter(sweep, kind, {"runs": {run.run_id: 0}, "why": why})
    assert run_process._run(launch) == NOT_MINE_EXIT
    (attempt,) = sweep.run(run.run_id).attempts()
    end = attempt.end()
    assert end is not None
    assert end.message == "cancelled as it began"
    assert not run_process._was_cancelled(replace(launch, ledger_read=1)), "the worker had read it"


def test_a_run_cancelled_and_retried_since_the_last_look_is_begun(results: Path) -> None:
    run = command_run(["true"])
    sweep = make_sweep(results, [run])
    launch = run_process.Launch(sweep, run.run_id, "0001-0001", Slot(0, (0,)), -1, None)
    enter(sweep, "cancel", {"runs": {run.run_id: 0}})
    enter(sweep, "retry", {"runs": {run.run_id: 0}})
    assert not run_process._was_cancelled(launch)
    enter(sweep, "retry", {"runs": {run.run_id: 0}, "why": "another machine"})
    enter(sweep, "retry", {"runs": {run.run_id: 0}})
    assert run_process._was_cancelled(launch), "it waits for another job"

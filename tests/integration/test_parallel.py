"""Runs of several processes that are killed or stopped, in each mode, and what is left of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.trainers import get_trainer
from orchestrator.rundir import RunDir
from tests import helpers
from tests.helpers import kill, running, wait_for

BASE: dict[str, Any] = {
    "task": "bucket_brigade/hard",
    "task.opponents": 2,
    "mode": "parallel",
    "actors": 3,
    "steps": 10_000_000,
    "envs": 6,
    "rollout_steps": 8,
    "hidden": [8],
    "evaluation_interval": 0,
    "checkpoint_interval": 192,
    "actor_timeout": 20,
    "loggers": ["csv"],
}


@dataclass(frozen=True)
class Mode:
    """A trainer with its keys; the processes beside rank 0 in order, those to kill and the one to stop."""

    trainer: str
    keys: dict[str, Any]
    names: list[str]
    killed: list[str]
    stopped: str


MODES = {
    "synchronous": Mode("a2c", {"actors": 2}, ["actor 1"], ["actor 1"], "actor 1 of 2"),
    "asynchronous": Mode(
        "a2c", {"mode": "asynchronous"}, ["actor 0", "actor 1", "actor 2"], ["actor 1"], "actor 2 of 3"
    ),
    "learners": Mode(
        "impala",
        {"actors": 2, "learners": 2, "batch_envs": 6},
        ["learner 1", "actor 0", "actor 1"],
        ["actor 1", "learner 1"],
        "actor 0 of 2",
    ),
    "alone": Mode("ppo", {"mode": "sequential", "actors": 1, "batch_size": 48}, [], [], ""),
}
SEVERAL = [name for name in MODES if name != "alone"]


class Training:
    """A worker with one run of several processes."""

    def __init__(self, results: Path, mode: str, **more: Any) -> None:
        self.mode = MODES[mode]
        run = get_trainer(self.mode.trainer).identify({**BASE, **self.mode.keys, **more}, 0, threads=1)
        sweep = helpers.make_sweep(results, [run])
        self.run: RunDir = sweep.run(run.run_id)
        self.worker = helpers.start_worker(sweep, helpers.submit(sweep), {"ORCHESTRATE_GRACE": "30"})

    def learning(self, attempt: int) -> dict[str, int]:
        """The processes of this attempt by name, once it has come further than the one before."""
        wait_for(lambda: self._is_further(attempt), what=f"a checkpoint of attempt {attempt}")
        (leader,) = helpers.run_processes(self.worker.pid)
        return {"leader": leader, **dict(zip(self.mode.names, helpers.children(leader), strict=True))}

    @property
    def frames(self) -> int:
        """Those of the newest checkpoint."""
        return self.run.checkpoints(below=99)[0].frames

    def end(self, attempt: int) -> dict[str, Any]:
        return wait_for(lambda: self._end(attempt), what=f"the end of attempt {attempt}")

    def _is_further(self, attempt: int) -> bool:
        files = self.run.checkpoints(below=attempt + 1)
        return bool(files) and files[0].attempt == attempt

    def _end(self, attempt: int) -> dict[str, Any]:
        found = [one for one in self.run.attempts() if one.number == attempt]
        return helpers.end_record(found[0]) if found else {}


@pytest.fixture(params=SEVERAL)
def training(results: Path, request: pytest.FixtureRequest) -> Iterator[Training]:
    found = Training(results, request.param)
    yield found
    kill(found.worker.pid)
    found.worker.wait()


@pytest.mark.nightly(but=["synchronous"])
def test_processes_that_are_killed_or_hang_are_named_and_the_run_goes_on(training: Training) -> None:
    mode, frames = training.mode, 0
    stopped = mode.stopped.partition(" of ")[0]
    faults = [
        *((name, signal.SIGKILL, f"{name}: killed by SIGKILL") for name in mode.killed),
        (stopped, signal.SIGSTOP, f"{mode.stopped} did not answer within 20 s: it hangs, or is stopped"),
        ("leader", signal.SIGKILL, None),
    ]
    for attempt, (name, number, message) in enumerate(faults, start=1):
        processes = training.learning(attempt)
        assert training.frames > frames
        frames = training.frames
        assert not any("/dev/shm/" in Path(f"/proc/{pid}/maps").read_text() for pid in processes.values())
        kill(processes[name], number)
        ended = training.end(attempt)
        assert (ended["outcome"], ended["reason"]) == ("interrupted", "killed")
        assert message in (None, ended["message"])
        wait_for(lambda: not any(map(running, processes.values())), what="the end of the processes")  # noqa: B023

    processes = training.learning(len(faults) + 1)
    kill(training.worker.pid, signal.SIGTERM)
    training.worker.wait(helpers.PATIENCE_S)
    assert training.end(len(faults) + 1)["reason"] == "stopped"
    assert not any(map(running, processes.values()))


@pytest.mark.parametrize("training", ["learners"], indirect=True)
def test_no_process_outlives_the_worker(training: Training) -> None:
    processes = training.learning(1)
    kill(training.worker.pid)
    wait_for(lambda: not any(map(running, processes.values())), what="the end of the processes")


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "who"), [("alone", "its process"), ("synchronous", "actor 0")])
def test_a_run_whose_own_process_hangs_is_ended_and_goes_on(results: Path, mode: str, who: str) -> None:
    training = Training(results, mode, actor_timeout=2)
    try:
        processes = training.learning(1)
        kill(processes["leader"], signal.SIGSTOP)
        ended = training.end(1)
        assert (ended["outcome"], ended["reason"]) == ("interrupted", "killed")
        assert ended["message"] == f"{who} gave no sign of life for 17 s"
        wait_for(lambda: not any(map(running, processes.values())), what="the end of the processes")
        frames = training.frames
        training.learning(2)
        assert training.frames > frames
    finally:
        kill(training.worker.pid)
        training.worker.wait()

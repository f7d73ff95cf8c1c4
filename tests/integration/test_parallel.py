"""Runs of trainers in mode parallel whose processes are killed or stopped, and what is left of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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
    "actor_timeout": 5,
    "loggers": ["csv"],
}


class Training:
    """A worker with one run of three processes."""

    def __init__(self, results: Path, **overrides: Any) -> None:
        run = get_trainer("a2c").identify({**BASE, **overrides}, 0, threads=1)
        sweep = helpers.make_sweep(results, [run])
        self.run: RunDir = sweep.run(run.run_id)
        self.worker = helpers.start_worker(sweep, helpers.submit(sweep), {"ORCHESTRATE_GRACE": "30"})

    def learning(self, attempt: int) -> list[int]:
        """The processes of this attempt, rank 0 first, once it has come further than the one before."""
        wait_for(lambda: self._is_further(attempt), what=f"a checkpoint of attempt {attempt}")
        (leader,) = helpers.run_processes(self.worker.pid)
        return [leader, *helpers.children(leader)]

    def end(self, attempt: int) -> dict[str, Any]:
        return wait_for(lambda: self._end(attempt), what=f"the end of attempt {attempt}")

    def _is_further(self, attempt: int) -> bool:
        files = self.run.checkpoints(below=attempt + 1)
        return bool(files) and files[0].attempt == attempt

    def _end(self, attempt: int) -> dict[str, Any] | None:
        found = [one for one in self.run.attempts() if one.number == attempt]
        return found[0].end() if found else None


@pytest.fixture
def training(results: Path) -> Iterator[Training]:
    found = Training(results)
    yield found
    kill(found.worker.pid)
    found.worker.wait()


def test_actors_that_are_killed_or_hang_are_named_and_the_run_goes_on(training: Training) -> None:
    _, first, second = training.learning(1)
    kill(first)
    ended = training.end(1)
    assert (ended["outcome"], ended["reason"]) == ("interrupted", "killed")
    assert ended["message"] == "actor 1: killed by SIGKILL"
    assert not running(second)

    _, _, second = training.learning(2)
    before = training.run.checkpoints(below=3)[0].frames
    kill(second, signal.SIGSTOP)
    ended = training.end(2)
    assert ended["message"] == "actor 2 of 3 did not answer within 5 s: it hangs, or is stopped"
    assert not running(second)

    processes = training.learning(3)
    assert training.run.checkpoints(below=4)[0].frames > before
    kill(training.worker.pid, signal.SIGTERM)
    training.worker.wait(helpers.PATIENCE_S)
    assert training.end(3)["reason"] == "stopped"
    assert not any(map(running, processes))


@pytest.mark.parametrize("victim", ["worker", "leader"])
def test_no_actor_outlives_the_worker_or_rank_0(training: Training, victim: str) -> None:
    leader, *actors = training.learning(1)
    kill(training.worker.pid if victim == "worker" else leader)
    wait_for(lambda: not any(map(running, [leader, *actors])), what="the end of the actors")

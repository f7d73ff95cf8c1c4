"""When a run hangs and when it is alive: by what it records and by the processor time of its processes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import Process
from jobs.worker.runs import silence
from jobs.worker.runs.silence import Silence
from orchestrator.config.trainers.actor_critic import IMPALA, PPO
from orchestrator.config.trainers.command import COMMAND
from tests.helpers import command_run

LIMIT = 600.0
LEADER, CHILD = Process(7, 1), Process(8, 2)


class Run:
    """A run with a clock of its own: what each process has computed, and whether it waits for a disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.waits = 1000.0, False
        self.times = {LEADER.pid: 50.0, CHILD.pid: 20.0}
        self.there = {LEADER}
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(silence, "time", clock)
        monkeypatch.setattr("jobs.training.processes.life.time", clock)
        monkeypatch.setattr(silence, "processor_time", lambda pid: self.times[pid])
        monkeypatch.setattr(silence, "waits_for_storage", lambda pid: self.waits)
        self.life = Life()
        self.life.expect(LIMIT)
        self.silence = Silence(LEADER.pid, self.life)

    def silent_after(self, seconds: float, act: Callable[[], None] = lambda: None) -> float | None:
        """Let time pass, with an act each second; return when the run was to be ended."""
        for second in range(int(seconds)):
            if self.silence.too_long(lambda: self.there):
                return float(second)
            act()
            self.now += 1
        return None

    def compute(self, process: Process, share: float) -> Callable[[], None]:
        def act() -> None:
            self.times[process.pid] += share

        return act


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_a_run_that_neither_records_nor_computes_is_ended(run: Run) -> None:
    ended = run.silent_after(10 * LIMIT)
    assert ended is not None
    assert LIMIT < ended < 1.1 * LIMIT


def test_one_that_polls_is_ended_too(run: Run) -> None:
    assert run.silent_after(10 * LIMIT, run.compute(LEADER, 0.03)) is not None


@pytest.mark.parametrize("process", [LEADER, CHILD])
def test_one_that_computes_is_never_ended(run: Run, process: Process) -> None:
    run.there = {LEADER, CHILD}
    assert run.silent_after(10 * LIMIT, run.compute(process, 0.1)) is None


def test_a_burst_now_and_then_is_enough(run: Run) -> None:
    def burst() -> None:
        if run.now % 500 == 0:
            run.times[LEADER.pid] += 60

    assert run.silent_after(10 * LIMIT, burst) is None


def test_one_that_records_is_never_ended(run: Run) -> None:
    def record() -> None:
        if run.now % 500 == 0:
            run.life.mark()

    assert run.silent_after(10 * LIMIT, record) is None


def test_one_that_waits_for_a_disk_is_not_ended(run: Run) -> None:
    run.waits = True
    assert run.silent_after(10 * LIMIT) is None


def test_a_job_that_was_suspended_has_its_time_anew(run: Run) -> None:
    assert run.silent_after(100) is None
    run.now += 10 * LIMIT
    assert run.silent_after(LIMIT) is None
    assert run.silent_after(LIMIT) is not None


def test_without_a_limit_nothing_is_ended(run: Run) -> None:
    run.life.expect(0.0)
    assert run.silent_after(10 * LIMIT) is None


def test_the_limit_is_beyond_the_time_for_other_processes() -> None:
    def found(trainer: object, **keys: object) -> tuple[str, float]:
        said = trainer.silence(trainer.identify({"task": "procgen/coinrun", **keys}, 0, 1))  # type: ignore[attr-defined]
        return said.who, said.seconds

    assert ActorCriticConfig.actor_timeout == 300
    assert found(PPO) == ("its process", 600)
    assert found(PPO, mode="parallel", actors=2, actor_timeout=3) == ("actor 0", 18)
    assert found(IMPALA, mode="parallel", actors=2) == ("learner 0", 600)
    assert COMMAND.silence(command_run([])) is None

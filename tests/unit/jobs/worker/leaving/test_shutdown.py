"""Who asked a worker to go, and what that means for its job."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from jobs.training.records.provenance import NODE_VARIABLE
from jobs.worker import scheduler_job
from jobs.worker.leaving.shutdown import Shutdown
from jobs.worker.scheduler_job import SchedulerJob, SlurmJob
from orchestrator.rundir.attempts.holder import JOB_VARIABLE

IN_SLURM = SlurmJob("123_4")
USR1, TERM, INT = signal.SIGUSR1, signal.SIGTERM, signal.SIGINT
BY_NOBODY, REQUEUED, OVER = "Reason=None Restarts=0", "Reason=BeginTime Restarts=1", "Reason=TimeLimit"


@pytest.mark.parametrize(
    ("signals", "scheduler", "warned", "preempted", "stopped"),
    [
        ([USR1], BY_NOBODY, True, False, False),
        ([TERM], BY_NOBODY, False, False, True),
        ([TERM], REQUEUED, False, True, False),
        ([USR1, TERM], BY_NOBODY, False, False, True),
        ([USR1, INT], "", False, False, True),
        ([USR1, TERM], REQUEUED, True, False, False),
        ([USR1, TERM], OVER, True, False, False),
        ([TERM, USR1], BY_NOBODY, False, False, True),
    ],
)
@pytest.mark.parametrize("relayed", [False, True])
def test_who_asked(
    monkeypatch: pytest.MonkeyPatch,
    signals: list[int],
    scheduler: str,
    warned: bool,
    preempted: bool,
    stopped: bool,
    relayed: bool,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(scheduler_job, "_ask", lambda argv: asked.append(argv) or scheduler)
    shutdown = Shutdown(IN_SLURM)
    for number in signals:
        shutdown.on_signal(number, relayed=relayed)
    assert (shutdown.warned, shutdown.preempted, shutdown.stopped) == (warned, preempted, stopped)
    assert len(asked) <= 1


def test_no_letter_is_read_twice_or_lost(tmp_path: Path) -> None:
    box = tmp_path / "box"
    shutdown = Shutdown(replace(IN_SLURM, mailbox=box))
    assert shutdown.letters() == []
    box.write_text("USR1\nnonsense\nTE")
    assert shutdown.letters() == [USR1]
    assert shutdown.letters() == []
    box.write_text("USR1\nnonsense\nTERM\n")
    assert shutdown.letters() == [TERM]


def test_a_warning_long_before_the_end_is_not_of_the_end() -> None:
    soon, late = (replace(IN_SLURM, ends=time.time() + left, warning=60) for left in (140, 200))
    assert IN_SLURM.nears_end()
    assert soon.nears_end()
    assert not late.nears_end()


def test_a_job_that_lost_nodes_goes_back_to_the_queue() -> None:
    for job, comes_back in ((IN_SLURM, True), (SchedulerJob(), False)):
        shutdown = Shutdown(job)
        shutdown.lost_nodes("no agent answers on 2 of the job's nodes (there: node2)")
        assert (shutdown.warned, shutdown.stopped, shutdown.preempted) == (comes_back, False, False)


class OwnJob(SchedulerJob):
    kind = "own"

    @classmethod
    def from_environment(cls) -> Self:
        return cls("7", node="node-3")


def test_a_plug_in_brings_the_class_of_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (JOB_VARIABLE, NODE_VARIABLE):
        monkeypatch.setenv(name, "")  # restored after the test
    assert SchedulerJob.current() == SchedulerJob()
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    assert isinstance(SchedulerJob.current(), SlurmJob)
    monkeypatch.setenv("ORCHESTRATE_SCHEDULER", f"{__name__}:OwnJob")
    assert SchedulerJob.current() == OwnJob("7", node="node-3")
    assert (os.environ[JOB_VARIABLE], os.environ[NODE_VARIABLE]) == ("7:0", "node-3")

"""When a run that dies again and again is given up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.training.context import InterruptedRun
from jobs.worker.failures import ProgramFailed, deaths_in_vain, end_of, in_vain, pause_before_next
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Claim, End, RunDir
from orchestrator.rundir.attempts.claims import create_claim
from orchestrator.rundir.attempts.holder import JOB_VARIABLE

KILLED, STOPPED, ALONE, ADVANCED = "killed", "stopped", "", "advanced"
LATE, PREEMPTED, LOST = "time limit", "preempted", "node failure"
# A full disk that the program speaks of, and one of the results; a program that left by itself.
FULL, FULL_HERE, LEFT = "disk full", "disk full here", "left by itself"
SAME = "killed, with the checkpoint saved that it began with"
RECORDS = {
    FULL_HERE: End(RunState.INTERRUPTED, Reason.DISK_FULL, counts=False),
    LEFT: End(RunState.INTERRUPTED, Reason.STOPPED, counts=True),
    SAME: End(RunState.INTERRUPTED, Reason.KILLED, checkpointed=100),
}


def story(folder: Path, ends: list[str]) -> RunDir:
    """A run whose attempts ended so: on record, with their worker, or killed after a checkpoint."""
    run = RunDir(folder / ("0" * 16))
    for number, end in enumerate(ends, start=1):
        attempt = run.attempt(number)
        attempt.path.mkdir(parents=True)
        assert create_claim(attempt.claim_path, Claim.fresh("worker"))
        if end not in (ALONE, ADVANCED):
            attempt.write_end(RECORDS.get(end) or End(RunState.INTERRUPTED, Reason(end)))
        if end == ADVANCED:
            attempt.checkpoints.mkdir()
            attempt.checkpoint_name(100, "a" * 16).touch()
    return run


@pytest.mark.parametrize(
    ("ends", "deaths"),
    [
        ([], 0),
        ([KILLED] * 2, 0),
        ([KILLED] * 3, 3),
        ([KILLED, STOPPED, KILLED, KILLED], 0),
        ([KILLED, ADVANCED, KILLED, KILLED], 0),
        ([ALONE] * 9, 0),
        ([ALONE] * 10, 10),
        ([KILLED, ALONE, KILLED, ALONE], 0),
        ([KILLED, ALONE, KILLED, ALONE, KILLED], 5),
        ([ALONE] * 9 + [STOPPED], 0),
        ([LATE] * 2, 0),
        ([LATE] * 3, 3),
        ([KILLED, LATE, LATE], 3),
        ([LATE, LATE, ADVANCED, LATE], 0),
        ([LATE, PREEMPTED, LATE, LATE], 0),
        ([LOST] * 12, 0),
        ([FULL] * 3, 3),
        ([FULL, KILLED, LEFT], 3),
        ([FULL_HERE] * 12, 0),
        ([ADVANCED] + [SAME] * 3, 3),
        ([SAME] * 3, 0),  # the first one is new, and two do not suffice
        ([SAME] * 4, 3),
    ],
)
def test_deaths_with_the_worker_weigh_less_than_deaths_under_one(
    tmp_path: Path, ends: list[str], deaths: int
) -> None:
    assert deaths_in_vain(story(tmp_path, ends).attempts(), since=0) == deaths


def test_a_death_seen_but_not_recorded_counts_as_recorded(tmp_path: Path) -> None:
    attempts = story(tmp_path, [KILLED, KILLED, ALONE]).attempts()
    assert deaths_in_vain(attempts, since=0) == 0
    assert deaths_in_vain(attempts, since=0, witnessed=3) == 3


def test_a_warning_is_of_the_time_limit_only_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB_VARIABLE, "123:0")
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    monkeypatch.setenv("ORCHESTRATE_WARNING", "60")
    for left, reason in ((100, Reason.TIME_LIMIT), (1000, Reason.PREEMPTED)):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + left))
        assert end_of(InterruptedRun("SIGUSR1")).reason is reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("RESOURCE_EXHAUSTED: Failed to allocate request for 34.00GiB", Reason.OUT_OF_MEMORY),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes", Reason.OUT_OF_MEMORY),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[64,4096]", Reason.OUT_OF_MEMORY),
        ("std::bad_alloc: std::bad_alloc", Reason.OUT_OF_MEMORY),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED", Reason.OUT_OF_MEMORY),
        ("CUDA_ERROR_OUT_OF_MEMORY", Reason.OUT_OF_MEMORY),
        ("srun: error: node01: task 0: Out Of Memory", Reason.OUT_OF_MEMORY),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", Reason.OUT_OF_MEMORY),
        ("RESOURCE_EXHAUSTED: Received message larger than max", Reason.CODE_ERROR),
    ],
)
def test_programs_run_out_of_memory_in_many_words(said: str, reason: Reason) -> None:
    assert end_of(ProgramFailed(said)).reason is reason


def test_who_is_short_of_time_is_told_what_to_do() -> None:
    end = in_vain(3, Reason.TIME_LIMIT, "whatever")
    assert (end.outcome, end.reason) == (RunState.FAILED, Reason.TIME_LIMIT)
    assert "give jobs more time" in end.message


def test_what_was_before_a_retry_counts_no_more(tmp_path: Path) -> None:
    attempts = story(tmp_path, [KILLED] * 4).attempts()
    assert (deaths_in_vain(attempts, since=1), deaths_in_vain(attempts, since=2)) == (3, 0)


def test_pauses_between_attempts_in_vain_grow_to_a_minute(tmp_path: Path) -> None:
    run = story(tmp_path, [ADVANCED])
    pauses = [pause_before_next(run.attempts(), since=0)]
    for number in range(2, 7):
        attempt = run.attempt(number)
        attempt.path.mkdir()
        assert create_claim(attempt.claim_path, Claim.fresh("worker"))
        attempt.write_end(End(RunState.INTERRUPTED, Reason(FULL)))
        pauses.append(pause_before_next(run.attempts(), since=0))
    assert pauses == pytest.approx([0, 1, 4, 16, 60, 60], abs=0.9)
    assert pause_before_next(run.attempts(), since=6) == 0

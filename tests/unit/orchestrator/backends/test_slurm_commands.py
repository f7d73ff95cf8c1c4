from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.backends.slurm.commands import refusal, run
from orchestrator.core.errors import BackendUnavailableError, QueueFullError
from orchestrator.core.types import CommandAnswer

# What Slurm 22.05 says, and a word of what a user is told to do.
REFUSALS = {
    "Invalid account or account/partition combination specified": "account:",
    "invalid partition specified: nope": "partition:",
    "Invalid qos specification": "qos:",
    "Invalid feature specification": "constraint:",
    "Requested time limit is invalid (missing or exceeds some limit)": "time:",
    "Requested node configuration is not available": "any node",
    "Memory specification can not be satisfied": "mem:",
    "Unable to contact slurm controller (connect failure)": "scontrol ping",
    "Requested reservation is invalid": "reservation:",
    "something that nobody heard of": "doctor",
}
TOO_MANY = """\
sbatch: error: AssocMaxSubmitJobLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, \
user's size and/or time limits)
"""


@pytest.mark.parametrize(("said", "told"), REFUSALS.items())
def test_a_refusal_says_what_slurm_said_and_what_to_do(said: str, told: str) -> None:
    error = refusal("sbatch refused 0001-0001", CommandAnswer(1, "", f"sbatch: error: {said}\n"))
    assert str(error) == f"sbatch refused 0001-0001: {said}"
    assert error.hint is not None
    assert told in error.hint
    assert not isinstance(error, QueueFullError)


def test_a_full_queue_is_no_fault_of_the_profile() -> None:
    error = refusal("sbatch", CommandAnswer(1, "", TOO_MANY))
    assert isinstance(error, QueueFullError)
    assert error.hint is not None
    assert "max_jobs:" in error.hint
    assert "AssocMaxSubmitJobLimit; Batch job submission failed" in str(error)


def test_the_same_line_twice_is_told_once_and_silence_by_the_code() -> None:
    assert CommandAnswer(1, "", "squeue: error: x\nsqueue: error: x\n\n").complaint == "x"
    assert CommandAnswer(7, "out", " \n").complaint == "exit code 7"


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str = "squeue") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_command_that_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "echo 1_0; exec sleep 60")
    answer = run(["squeue"], 0.2)
    assert answer.code is None
    assert "no answer within" in answer.complaint


def test_what_a_job_is_told_and_what_shapes_answers_stays_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, "env; printf '\\377' >&2")
    for name in ("SLURM_JOB_ID", "SLURM_CONF", "SQUEUE_FORMAT", "SACCT_FORMAT", "ORCHESTRATE_MAILBOX"):
        monkeypatch.setenv(name, "x")
    answer = run(["squeue"])
    names = {line.partition("=")[0] for line in answer.output.split("\n")}
    assert "SLURM_CONF" in names
    assert not names & {"SLURM_JOB_ID", "SQUEUE_FORMAT", "SACCT_FORMAT", "ORCHESTRATE_MAILBOX"}
    assert answer.errors == "�"


def test_no_variable_beats_a_line_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "env", "sbatch")
    for name in (
        "ARRAY_INX",
        "OUTPUT",
        "EXPORT",
        "REQUEUE",
        "NO_REQUEUE",
        "TIMELIMIT",
        "WAIT",
        "ACCOUNT",
        "QOS",
    ):
        monkeypatch.setenv(f"SBATCH_{name}", "x")
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --array=0-3\n#SBATCH --account=ours\necho '--qos=y'\n")
    answer = run(["sbatch", "--parsable", str(script)])
    names = {line.partition("=")[0] for line in answer.output.split("\n")}
    assert {name for name in names if name.startswith("SBATCH_")} == {"SBATCH_QOS"}


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendUnavailableError, match="no login node"):
        run(["squeue"])

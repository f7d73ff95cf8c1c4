"""Submitting to a cluster: commands that die, hang or fail at any step, and the same command again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab, judge, judge_runs

# What `orchestrate sweep` writes and submits here, in this order, for two runs in one array.
WRITES = ["grid", "index", "descriptions", "ledger", "script", "submission", "ledger"]
SWEEP = ("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")


def stand_in(lab: Lab, program: str, text: str) -> dict[str, str]:
    """An environment in which ``text``, a shell script, answers in a program's place; it may call $real."""
    path = lab.folder / "bin" / program
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nreal={shutil.which(program)}\n{text}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


def impatient(lab: Lab, *arguments: str, env: dict[str, str]) -> tuple[int, str]:
    """A command that gives Slurm's commands 3 seconds instead of a minute: exit code and words."""
    text = """
from orchestrator.backends.slurm import commands
from orchestrator.ui.cli import main
commands.run.__defaults__ = (3.0,)
main()
"""
    process = lab.start_python("-c", text, *arguments, env=env)
    words = "".join(process.communicate(timeout=helpers.PATIENCE_S))
    assert "Traceback" not in words
    return process.returncode, words


def killed_after(lab: Lab, number: int) -> subprocess.Popen[str]:
    """`orchestrate sweep`, killed after so many of its writes and submissions."""
    return lab.start_python("-m", "tests.executioner", str(number), *SWEEP)


@pytest.mark.nightly
def test_killed_at_each_step_of_a_submission(slurm: Cluster, tmp_path: Path) -> None:
    """Nodes are busy, so that jobs of the first command still wait when the second comes."""
    busy = tmp_path / "busy.sh"
    busy.write_text("#!/bin/sh\nexec sleep 600\n")
    others = slurm.run("sbatch", "--parsable", "--array=0-1", "--cpus-per-task=2", busy, cwd=tmp_path).strip()
    labs = {number: Lab(tmp_path / str(number)) for number in range(1, len(WRITES) + 2)}
    for number, lab in labs.items():
        lab.count_grid(runs=2)
        process = killed_after(lab, number)
        output = process.communicate(timeout=helpers.PATIENCE_S)
        assert process.returncode == (-signal.SIGKILL if number <= len(WRITES) else 0), (number, output)
    for lab in labs.values():
        lab.sweep()
    assert len(slurm.queue()) == 2 + len(labs), "no job is in the queue twice"
    slurm.run("scancel", others)
    for number, lab in labs.items():
        judge_runs(lab, slurm)
        # What the cluster has is adopted; what it was never given is given up.
        lost = WRITES.index("ledger") < number < WRITES.index("submission") + 1
        assert lab.begun() == ["0002-0001.0" if lost else "0001-0001.0"]


def test_a_submission_that_arrives_late(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    """The command dies and its sbatch lives on, slowly: what it submits finds its work given away."""
    gate = lab.folder / "gate"
    slow = f'kill -9 $PPID; while [ ! -e {gate} ]; do sleep 0.1; done; "$real" "$@"; touch {gate}.passed'
    lab.count_grid(runs=2)
    process = lab.start(
        "sweep", "--grid", "tiny.yaml", "--on", "profile.yaml", env=stand_in(lab, "sbatch", slow)
    )
    assert process.wait(helpers.PATIENCE_S) == -signal.SIGKILL
    lab.sweep()
    gate.touch()
    helpers.wait_for(Path(f"{gate}.passed").exists, what="the late submission")
    assert judge(lab, undisturbed, slurm) == [1, 1]
    assert len(lab.hosts()) == 1


def test_two_command_lines_at_once(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=6, pace=0.02)
    both = [lab.start(*SWEEP) for _ in range(2)]
    for process in both:
        process.communicate(timeout=helpers.PATIENCE_S)
    assert [process.returncode for process in both] == [0, 0]
    assert len(lab.job_ids()) == 3
    assert judge(lab, undisturbed, slurm) == [1] * 6


@pytest.mark.nightly
def test_more_runs_than_an_array_takes(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    slurm.set_config(MaxArraySize=5)
    lab.profile(pack=1, cpus_per_task=1)
    lab.count_grid(runs=12)
    lab.sweep()
    arrays = {job_id.partition("_")[0] for job_id in lab.job_ids().values()}
    assert (len(lab.job_ids()), len(arrays)) == (12, 3)
    assert judge(lab, undisturbed, slurm) == [1] * 12


@pytest.mark.nightly
def test_an_sbatch_that_hangs(undisturbed: Lab, slurm: Cluster, tmp_path: Path) -> None:
    """Whether it had submitted before or not."""
    heard, lost = Lab(tmp_path / "heard"), Lab(tmp_path / "lost")
    for lab, before in ((heard, '"$real" "$@"'), (lost, "")):
        lab.count_grid(runs=2)
        env = stand_in(lab, "sbatch", f"{before}\nexec sleep 60")
        code, words = impatient(lab, *SWEEP, env=env)
        if lab is lost:
            assert code == 3
            assert "may have been submitted or not" in words
            lab.sweep()
        else:
            assert code == 0, words
        assert judge(lab, undisturbed, slurm) == [1, 1]
    assert list(heard.job_ids()) == ["0001-0001.0"]
    assert list(lost.job_ids()) == ["0002-0001.0"]


@pytest.mark.nightly
def test_accounting_that_hangs_fails_or_is_not_there(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    """A job is killed with all that is in it, and the controller has forgotten it when somebody asks."""
    slurm.set_config(MinJobAge=2)
    lab.count_grid(runs=2, pace=0.1, last=6)
    lab.sweep()
    lab.at_work(8)
    (job_id,) = lab.job_ids().values()
    slurm.run("scancel", "--signal=KILL", "--full", job_id)
    helpers.wait_for(lambda: not slurm.job(job_id), what="the controller's forgetting")
    lab.pace(0.01)
    for answer in ("exit 127", "echo 'Problem talking to the database' >&2; exit 1", "exec sleep 60"):
        env = stand_in(lab, "sacct", answer)
        assert "2 interrupted" in impatient(lab, "status", "tiny", env=env)[1]
    assert "2 runs to do" in impatient(lab, *SWEEP, env=env)[1]
    assert judge(lab, undisturbed, slurm) == [2, 2]


@pytest.mark.nightly
def test_a_controller_restarted_without_accounting(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=8, pace=0.1, last=6)
    lab.sweep()
    lab.at_work(4)
    slurm.slurmdbd_stop()
    assert set(lab.states()) <= {"running", "queued"}
    assert "nothing new to submit" in lab.sweep()
    slurm.slurmctld_stop()
    assert "failed" not in lab.states()
    assert "the controller does not answer" in lab.run(*SWEEP, code=3)
    slurm.slurmctld_start()
    lab.pace(0.02)
    assert judge(lab, undisturbed, slurm) == [1] * 8
    slurm.slurmdbd_start()


def test_a_line_of_the_set_up_that_fails_ends_the_job_and_is_told(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(2)
    lab.profile(setup=["conda activate marl", "export LATER=1"])
    told = lab.sweep("tiny", "--follow", code=1)
    assert "conda activate marl: exit code 127: conda: command not found" in told
    assert set(lab.states()) == {"pending"}
    assert "conda activate marl: exit code 127" in lab.run("status", "tiny")
    assert {token.partition("-")[0] for token in lab.job_ids()} == {"0001"}, "submitted once"
    lab.profile()
    lab.sweep()
    lab.wait_done()


@pytest.mark.nightly(but=[""])
@pytest.mark.parametrize("state", ["", "State=SpecialExit"])
def test_a_job_that_is_held_is_told_with_its_release(lab: Lab, slurm: Cluster, state: str) -> None:
    lab.profile(pack=1, cpus_per_task=1, mem="500M")
    lab.count_grid(2, last=3)
    lab.sweep()
    lab.at_work(6)
    held, _ = sorted(lab.job_ids().values())
    slurm.run("scontrol", "requeuehold", *filter(None, [state]), held)
    release = f"scontrol release {held}"
    helpers.wait_for(lambda: release in lab.run("status", "tiny"), what="the command in status")
    assert "1 running job and 1 queued job adopted" in lab.sweep()
    slurm.run(*release.split())
    lab.pace(0.0)
    lab.wait_done()
    helpers.wait_for(lambda: lab.left_queue("tiny", slurm), what="an empty queue")

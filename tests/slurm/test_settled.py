"""Jobs with nothing left to do leave the queue: nothing is given an allocation that it has no use for."""

from __future__ import annotations

import os
from pathlib import Path

from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import STEPS, Lab, judge_runs


def occupy(slurm: Cluster, folder: Path, *options: str) -> str:
    """A job of more importance that takes its place, and keeps it until the test ends. Its id."""
    script = folder / "occupy.sh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    argv = ["sbatch", "--parsable", "--partition=urgent", "--cpus-per-task=2", *options, str(script)]
    return slurm.run(*argv, cwd=folder).strip()


def preempted(lab: Lab, slurm: Cluster, folder: Path) -> str:
    """The id of a job of the lab that lost its node to another, and waits in the queue."""
    ids = lab.job_ids()
    helpers.wait_for(lambda: len(lab.hosts()) == len(ids), what="the start of all jobs")
    first = ids["0001-0001.0"]
    occupy(slurm, folder, f"--nodelist={slurm.job(first)['NodeList']}")
    waits = {"JobState": "PENDING", "Restarts": "1"}
    helpers.wait_for(lambda: waits.items() <= slurm.job(first).items(), what="preemption")
    return first


def without_scancel(lab: Lab) -> Path:
    """A folder in front of PATH that has no scancel to speak of."""
    path = lab.folder / "bin" / "scancel"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path.parent


def test_a_requeued_job_whose_runs_others_did_leaves_with_the_last_of_them(
    lab: Lab, slurm: Cluster, tmp_path: Path
) -> None:
    lab.count_grid(runs=4, last=STEPS - 10)
    lab.sweep()
    lab.at_work(8)
    first = preempted(lab, slurm, tmp_path)
    lab.pace(0.01)
    lab.wait_done()
    helpers.wait_for(
        lambda: lab.left_queue("tiny", slurm),
        what="the jobs to leave the queue",
    )
    assert slurm.job(first)["JobState"] == "CANCELLED"
    assert "nothing new to submit" in lab.sweep()
    judge_runs(lab, slurm)


def test_a_job_that_comes_back_to_nothing_is_withdrawn_by_the_next_command(
    lab: Lab, slurm: Cluster, tmp_path: Path
) -> None:
    """As when all others were killed as they left: here they cannot say scancel."""
    lab.profile(environment={"PATH": f"{without_scancel(lab)}:{os.environ['PATH']}"})
    lab.count_grid(runs=4, last=STEPS - 10)
    lab.sweep()
    lab.at_work(8)
    first = preempted(lab, slurm, tmp_path)
    slurm.run("scontrol", "hold", first)  # it is not to have the other's node once that is free
    lab.pace(0.01)
    lab.wait_done()
    helpers.wait_for(lambda: set(lab.queued(slurm)) == {first}, what="the end of the other job")
    assert "withdrew 1 job from the queue" in lab.sweep()
    assert lab.queued(slurm) == []
    assert "withdrew" not in lab.sweep()
    assert set(lab.states()) == {"done"}


def test_the_runs_of_a_requeued_job_are_cancelled_and_it_leaves(
    lab: Lab, slurm: Cluster, tmp_path: Path
) -> None:
    lab.profile(pack=1)
    lab.count_grid(runs=1, last=10)
    lab.sweep()
    lab.at_work(8)
    preempted(lab, slurm, tmp_path)
    lab.run("cancel", "tiny")
    assert lab.queued(slurm) == []


def test_later_jobs_of_a_chain_leave_when_the_first_has_done_all(lab: Lab, slurm: Cluster) -> None:
    lab.profile(requeue=False, chain=3)
    lab.count_grid(runs=4)
    lab.sweep()
    lab.wait_done()
    helpers.wait_for(lambda: lab.queued(slurm) == [], what="the end of its jobs")
    assert len(lab.begun()) == 2, "jobs of the chain began for nothing"

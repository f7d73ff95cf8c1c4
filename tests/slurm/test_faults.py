"""Jobs are preempted, killed, run out of time or lose their node: nothing is lost and nothing done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab, judge, judge_runs


def urgent(slurm: Cluster, folder: Path) -> None:
    """Jobs of somebody more important, on all of both nodes, for a second."""
    script = folder / "urgent.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    slurm.run("sbatch", "--partition=urgent", "--array=0-1", "--cpus-per-task=2", script, cwd=folder)


def trained_here(folder: Path, *algorithms: str) -> Lab:
    """What sweep `real` comes to on this machine."""
    lab = Lab(folder)
    lab.train_grid(algorithms=algorithms)
    lab.sweep_here("real")
    return lab


def accounted(slurm: Cluster, lab: Lab, name: str = "tiny") -> set[str]:
    """First words of the states that accounting keeps of a sweep's jobs, former starts among them."""
    array = next(iter(lab.job_ids(name).values())).partition("_")[0]
    return {state.split()[0] for (state,) in slurm.accounted(array, "state")}


def test_preempted_workers_go_on(lab: Lab, undisturbed: Lab, slurm: Cluster, tmp_path: Path) -> None:
    here, counting = trained_here(tmp_path / "here", "iql"), Lab(tmp_path / "counting")
    lab.train_grid(algorithms=["iql"])
    lab.sweep("real")
    counting.count_grid(runs=6, pace=1.0)
    counting.sweep()
    counting.at_work(3)
    helpers.wait_for(lambda: lab.rows() >= 2, what="training")
    urgent(slurm, tmp_path)
    helpers.wait_for(lambda: accounted(slurm, counting) >= {"PREEMPTED"}, what="preemption")
    assert "failed" not in counting.states() + lab.states("real")
    counting.pace(0.01)
    assert sum(judge(counting, undisturbed, slurm)) > 6
    assert sum(judge(lab, here, slurm, "real")) > 1, "no training was interrupted"


def test_a_node_that_fails_and_comes_back(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=8, last=5)
    lab.sweep()
    lab.at_work(20)  # of 24 until they are held, so that both nodes are at work
    slurm.slurmd_kill("cpu1")
    slurm.node_down("cpu1")
    assert "failed" not in lab.states()
    lab.pace(0.02, last=15)
    lab.at_work(10)
    lab.pace(0.02)
    slurm.slurmd_start("cpu1")
    assert sum(judge(lab, undisturbed, slurm)) > 8
    assert accounted(slurm, lab) >= {"NODE_FAIL", "COMPLETED"}


@pytest.mark.nightly
def test_processes_that_slurm_lost_make_no_second_result(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    """The job is begun again elsewhere while its former processes still work: they find out, and leave."""
    lab.count_grid(runs=2, pace=2.0)
    lab.sweep()
    lab.at_work(4)
    assert lab.hosts() == ["cpu1"]
    slurm.slurmd_kill("cpu1", "daemons")
    slurm.node_down("cpu1")
    assert slurm.nodes["cpu1"].processes()
    helpers.wait_for(lambda: lab.hosts() == ["cpu1", "cpu2"], what="the job's second start")
    helpers.wait_for(lambda: not slurm.nodes["cpu1"].processes(), what="the end of the former processes")
    assert lab.results_of() == 0
    lab.pace(0.01)
    assert judge(lab, undisturbed, slurm, beside=True) == [2, 2]


@pytest.mark.nightly
def test_a_run_whose_slurmd_died_is_running_as_long_as_it_writes(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=2, pace=1.0)
    lab.sweep()
    lab.at_work(4)
    (job_id,) = lab.job_ids().values()
    slurm.run("scontrol", "update", "NodeName=cpu2", "State=DRAIN", "Reason=test")
    slurm.slurmd_kill("cpu1", "daemons")
    slurm.node_down("cpu1")
    helpers.wait_for(lambda: slurm.job(job_id).get("JobState") == "PENDING", what="requeueing")
    said = lab.run("status", "tiny")
    assert "2 running" in said
    assert "its worker still writes, and its job is back in the queue: PENDING" in said
    slurm.slurmd_kill("cpu1")
    helpers.wait_for(lambda: set(lab.states()) == {"queued"}, what="the silence of a dead node to be seen")
    slurm.run("scontrol", "update", "NodeName=cpu2", "State=RESUME")
    lab.pace(0.01)
    judge_runs(lab, slurm)


@pytest.mark.nightly
def test_a_cancelled_element_leaves_its_runs_to_the_others(
    lab: Lab, undisturbed: Lab, slurm: Cluster
) -> None:
    lab.count_grid(runs=12, last=5)
    lab.sweep()
    lab.at_work(20)  # of 24 until they are held, so that both nodes are at work
    slurm.run("scancel", lab.job_ids()["0001-0001.0"])
    lab.pace(0.02)
    assert sum(judge(lab, undisturbed, slurm)) > 12
    assert accounted(slurm, lab) >= {"CANCELLED"}


def test_what_a_person_ends_neither_comes_back_nor_submits_more(lab: Lab, slurm: Cluster) -> None:
    """Not even where the job was warned of its end a moment before."""
    lab.profile(pack=1, max_jobs=1)
    lab.count_grid(runs=2, pace=3.0)
    assert "1 run wait" in lab.sweep()
    lab.at_work(1)
    (job_id,) = lab.job_ids().values()
    slurm.run("scancel", "--batch", "--signal=USR1", job_id)
    slurm.run("scancel", job_id)
    helpers.wait_for(lambda: lab.left_queue("tiny", slurm), what="the end of the job")
    (log,) = lab.dir().read_journals()
    assert log.exited, "it was killed before it could have done anything wrong"
    assert not log.returning
    assert accounted(slurm, lab) == {"CANCELLED"}
    assert len(lab.job_ids()) == 1
    assert slurm.queue() == []


def test_runs_longer_than_their_time_limit(undisturbed: Lab, slurm: Cluster, tmp_path: Path) -> None:
    """Slurm looks at limits, and warns of them, on every thirtieth second: both go on side by side.

    On a busy machine a job may have begun more often than it has to.
    """
    by_own_clock, by_slurm = Lab(tmp_path / "by_own_clock"), Lab(tmp_path / "by_slurm")
    # Leaves after 40 s of the 90 that it needs. Slurm may warn 30 s earlier, which is not at its start.
    by_own_clock.profile(time=1, signal=20, cpus_per_task=1, pack=2)
    by_own_clock.count_grid(runs=2, pace=3.0)
    by_slurm.profile(signal=5, cpus_per_task=1, pack=2)
    by_slurm.count_grid(runs=2, pace=3.0)  # 90 s of work in starts of a minute at most
    by_own_clock.sweep()
    by_slurm.sweep()
    (limited,) = by_slurm.job_ids().values()
    slurm.run("scontrol", "update", f"JobId={limited}", "TimeLimit=1")  # the worker knows 10
    for one, starts in ((by_own_clock, 3), (by_slurm, 2)):
        helpers.wait_for(lambda one=one, starts=starts: len(one.hosts()) >= starts, what=f"start {starts}")
        one.pace(0.01)
    assert min(judge(by_own_clock, undisturbed, slurm)) >= 3
    assert min(judge(by_slurm, undisturbed, slurm)) >= 2
    for one in (by_own_clock, by_slurm):
        assert len(one.job_ids()) == 1
        assert accounted(slurm, one) == {"REQUEUED", "COMPLETED"}


@pytest.mark.nightly
def test_training_that_is_warned_twice_goes_on(lab: Lab, slurm: Cluster, tmp_path: Path) -> None:
    """As before a time limit: by a signal to the job's script alone."""
    here = trained_here(tmp_path / "here", "mappo", "iql")
    lab.train_grid()
    lab.sweep("real")
    for start in range(2):
        helpers.wait_for(lambda n=start: len(lab.hosts("real")) == n + 1, what="the job's start")
        goal = lab.rows() + 4
        helpers.wait_for(lambda n=goal: lab.rows() >= n, what="training")
        slurm.run("scancel", "--batch", "--signal=USR1", *lab.job_ids("real").values())
    assert sum(judge(lab, here, slurm, "real")) > 3
    assert len(lab.job_ids("real")) == 1
    assert accounted(slurm, lab, "real") == {"REQUEUED", "COMPLETED"}


@pytest.mark.nightly
def test_a_job_that_comes_back_after_its_journal_was_folded_does_nothing(
    lab: Lab, undisturbed: Lab, slurm: Cluster
) -> None:
    lab.count_grid(runs=2, pace=0.1, last=6)
    lab.sweep()
    lab.at_work(4)
    (job_id,) = lab.job_ids().values()
    slurm.run("scontrol", "requeue", job_id)
    helpers.wait_for(lambda: slurm.job(job_id)["JobState"] == "PENDING", what="requeueing")
    assert "nothing new to submit" in lab.sweep(), "a job in the queue has its runs"
    logs = lab.dir().read_journals()
    assert [log.token for log in logs] == list(lab.job_ids())
    with lab.dir().lock():
        lab.dir().compact_journals(logs)
    lab.pace(0.02)
    helpers.wait_for(lambda: not slurm.queue(), what="the job's return")
    assert "was taken by another worker" in lab.dir().worker_output("0001-0001.0").read_text()
    assert lab.results_of() == 0
    lab.sweep()
    assert judge(lab, undisturbed, slurm) == [2, 2]

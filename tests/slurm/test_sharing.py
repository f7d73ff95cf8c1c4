"""One sweep over this machine and a real cluster: queues that do not move, commands that die, comparisons."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from pathlib import Path

import polars as pl
import pytest

from orchestrator.rundir.records.journal import CLAIMED
from tests import helpers
from tests.audit import Audit
from tests.slurm.cluster import Cluster
from tests.slurm.lab import PROFILE, Lab, judge_runs

BOTH = ("--on", "local,profile.yaml")


def targets(lab: Lab, name: str = "tiny") -> list[str]:
    """Where each run was done, in the order of the grid."""
    (sweep,) = json.loads(lab.run("status", name, "--json"))
    return [run["target"] for run in sweep["runs"]]


def claimed(lab: Lab) -> list[str]:
    """The token of every attempt."""
    return [log.token for log in lab.dir().read_journals() for event in log.events if event.kind == CLAIMED]


def claimed_by_jobs(lab: Lab) -> set[bool]:
    """Whether workers that claimed runs are Slurm's jobs."""
    return {
        log.holder.job_id is not None
        for log in lab.dir().read_journals()
        if log.holder is not None and any(event.kind == CLAIMED for event in log.events)
    }


def test_both_work_on_it(lab: Lab, slurm: Cluster) -> None:
    """Two runs fit on each node, so many on this machine as are asked for."""
    lab.count_grid(runs=12, pace=0.03)
    rehearsed = lab.run("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "2", "--dry-run")
    assert "on local: 1 job, 2 runs, 2 at once" in rehearsed
    assert "on profile: 5 jobs, 10 runs, 2 at once" in rehearsed
    assert not lab.results.exists()
    said = lab.run("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "2")
    assert "12 runs to do on profile (10), local (2)" in said
    assert sorted(judge_runs(lab, slurm)) == [1] * 12
    assert set(targets(lab)) == {"local", "profile"}
    assert set(lab.hosts()) >= {"cpu1", "cpu2"}
    lab.run("collect", "tiny")
    table = pl.read_parquet(lab.dir().table_parquet)
    assert table["target"].to_list() == targets(lab)


def test_what_waits_in_a_queue_that_does_not_move_is_dealt_again(lab: Lab, slurm: Cluster) -> None:
    """Each time that this machine has a free place, the same command gives it a run that waits."""
    lab.count_grid(runs=3, pace=0.01)
    lab.profile(options={"hold": True}, pack=1)
    assert "3 runs to do on profile (2), local (1)" in lab.run(
        "sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1", "--detach"
    )
    held = slurm.queue()
    for done in (1, 2):
        helpers.wait_for(lambda done=done: lab.states().count("done") == done, what=f"{done} runs done")
        said = lab.run("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1", "--detach")
        assert "on local (1)" in said
    helpers.wait_for(lambda: lab.states() == ["done"] * 3, what="the end of all")
    assert sorted(judge_runs(lab, slurm)) == [1] * 3
    assert targets(lab) == ["local"] * 3
    assert not set(held) & set(slurm.queue())


def test_a_cluster_that_refuses_is_told_and_the_others_go_on(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=3)
    lab.profile(partition="nowhere")
    said = lab.run("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1")
    assert "profile: sbatch refused" in said
    assert judge_runs(lab, slurm) == [1] * 3
    assert targets(lab) == ["local"] * 3


@pytest.mark.nightly
def test_a_command_that_is_killed_again_and_again_loses_and_doubles_nothing(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=10, pace=0.1, last=5)
    chance = random.Random(5)
    for _ in range(5):
        following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1")
        # From before anything is on record to where all are at work.
        with contextlib.suppress(subprocess.TimeoutExpired):
            following.wait(chance.uniform(0.2, 2.5))
        following.kill()
        following.communicate()
    following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1")
    helpers.wait_for((lab.folder / "results" / "tiny" / "grids").is_dir, what="the sweep's folder")
    helpers.wait_for(lambda: claimed_by_jobs(lab) == {True, False}, what="runs at work on both")
    lab.pace(0.01)
    _, errors = following.communicate(timeout=helpers.PATIENCE_S)
    assert following.returncode == 0, errors
    judge_runs(lab, slurm)
    # A claim that meets a new dealing of its run counts as an attempt, and starts no program.
    executions = [len(Audit(lab.folder / "audit").of(run.run_id)) for run in lab.descriptions()]
    assert executions == [1] * 10
    assert set(targets(lab)) == {"local", "profile"}
    assert len(claimed(lab)) == 10


def test_a_worker_here_that_dies_leaves_its_run_to_the_targets(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=2, pace=0.1, last=5)
    following = lab.start("sweep", "--grid", "tiny.yaml", *BOTH, "--slots", "1")
    lab.at_work(1)
    helpers.wait_for(lambda: len(claimed(lab)) == 2, what="two workers")
    (worker,) = [
        log.holder.pid
        for log in lab.dir().read_journals()
        if log.holder is not None and log.holder.job_id is None
    ]
    for process in [worker, *helpers.children(worker), *helpers.run_processes(worker)]:
        helpers.kill(process)
    lab.pace(0.01)
    _, errors = following.communicate(timeout=helpers.PATIENCE_S)
    assert following.returncode == 0, errors
    assert sorted(judge_runs(lab, slurm)) == [1, 2]


@pytest.mark.nightly
def test_every_point_on_each_target(lab: Lab, slurm: Cluster) -> None:
    """By name, as a grid has them, with `compare: true`; the second time there is nothing to do."""
    profiles = Path.home() / ".config" / "orchestrate" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "queue.yaml").write_text(json.dumps({**PROFILE, "price_per_hour": 0.5}))
    lab.count_grid(runs=3)
    grid = json.loads((lab.folder / "tiny.yaml").read_text())
    (lab.folder / "tiny.yaml").write_text(
        json.dumps({**grid, "targets": ["local", "queue"], "compare": True})
    )
    lab.run("sweep", "--grid", "tiny.yaml")
    assert judge_runs(lab, slurm) == [1] * 6
    assert targets(lab) == ["local", "queue"] * 3
    assert [run.target for run in lab.descriptions()].count("queue") == 3
    lab.run("collect", "tiny")
    lab.run("report", "tiny")
    page = (lab.results / "tiny" / "report" / "index.html").read_text()
    assert "per million frames" in page
    assert "nothing new to submit" in lab.run("sweep", "--grid", "tiny.yaml")

"""What jobs do for each other: feed the queue, go first, try again with more memory or on another machine."""

from __future__ import annotations

import json
import sys

import pytest

from orchestrator.rundir.records.ledger_entries import jobs_of, submissions
from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab, judge


def write_programs(lab: Lab, name: str, program: str, runs: int) -> None:
    """Runs of a shell program, with a seed each."""
    program = f"""echo '{{"frames": 1}}' >> "$ORCHESTRATE_METRICS"; {program}"""
    lab.write_grid(name, "command", {"command": ["bash", "-c", program]}, {"seed": list(range(runs))})


@pytest.mark.nightly
def test_ending_jobs_submit_what_the_queue_had_no_room_for(
    lab: Lab, undisturbed: Lab, slurm: Cluster
) -> None:
    lab.profile(pack=1, cpus_per_task=1, mem="500M", max_jobs=2)
    lab.count_grid(runs=5, pace=0.01)
    told = lab.sweep()
    assert "2 jobs" in told
    assert "3 runs wait" in told
    helpers.wait_for(lambda: len(lab.job_ids()) == 5, what="the last submission")
    assert set(judge(lab, undisturbed, slurm)) == {1}
    jobs = [job for _, job in jobs_of(lab.dir().read_ledger())]
    assert {len(job.run_ids) for job in jobs} == {1}, "one run to a job"
    assert sorted(run for job in jobs for run in job.run_ids) == lab.dir().run_ids(), "submitted once"


@pytest.mark.nightly
def test_the_sites_own_limit_is_found_out_and_fed_through(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    slurm.set_limits(MaxSubmitJobs=3)
    lab.profile(pack=1, cpus_per_task=1, mem="500M", account="lab")
    lab.count_grid(runs=7, pace=0.01)
    lab.sweep()
    helpers.wait_for(lambda: len(lab.job_ids()) == 7, what="the last submission")
    assert set(judge(lab, undisturbed, slurm)) == {1}


def test_canaries_hold_back_what_would_only_fail(lab: Lab, slurm: Cluster) -> None:
    count = [sys.executable, str(helpers.COMMANDS / "count.py"), "audit", "20", "pace"]
    lab.write_grid("birds", "command", {}, {"command": [count, ["false"]], "seed": [0, 1, 2, 3]})
    lab.pace(0.05)
    told = lab.sweep("birds", "--canary", "--follow", code=1)
    assert "6 runs waiting for the first run of their configuration" in told
    assert "3 runs held back" in told
    states = sorted(lab.states("birds"))
    assert states == ["done"] * 4 + ["failed"] + ["pending"] * 3
    (first, *_) = submissions(lab.dir("birds").read_ledger())
    assert sum(len(job.run_ids) for job in first.jobs) == 2, "one of each configuration"


@pytest.mark.nightly
def test_out_of_memory_is_tried_once_more_with_more(lab: Lab, slurm: Cluster) -> None:
    """The cluster polls, and kills a job that holds more than it asked for."""
    program = (
        "import os, time; held = bytearray(600 << 20)\n"
        'while int(os.environ["SLURM_MEM_PER_NODE"]) < 700: time.sleep(0.1)'
    )
    hungry = f"exec {sys.executable} -c '{program}'"
    write_programs(lab, "hungry", hungry, runs=1)
    lab.profile(cpus_per_task=1, mem="300M", max_mem="1500M")
    lab.sweep("hungry", "--follow", code=1)
    assert lab.states("hungry") == ["failed"], "600M is twice 300M, and Python needs some more"
    entries = [entry for entry in lab.dir("hungry").read_ledger() if entry.kind == "memory"]
    assert len(entries) == 1
    (status,) = json.loads(lab.run("status", "hungry", "--json"))[0]["runs"]
    assert status["reason"] == "out of memory"
    lab.profile(cpus_per_task=1, mem="500M", max_mem="1500M")
    lab.run("retry", "hungry", "--follow")
    assert lab.states("hungry") == ["done"]


@pytest.mark.nightly
def test_runs_that_a_machine_failed_are_done_by_others(lab: Lab, slurm: Cluster) -> None:
    """It is quicker than any other, and fails all that it gets hold of."""
    program = (
        "test $(hostname) != cpu2 || exit 7; mkdir -p hosts; sleep 1; hostname > hosts/$ORCHESTRATE_SEED"
    )
    write_programs(lab, "unlucky", program, runs=12)
    lab.sweep("unlucky")
    lab.wait_done("unlucky", timeout=helpers.PATIENCE_S)
    assert set(lab.states("unlucky")) == {"done"}
    scripts = [path.read_text() for path in (lab.dir("unlucky").path / "scripts").iterdir()]
    assert any("--exclude=cpu2" in script for script in scripts)


def test_a_chain_goes_on_where_requeueing_is_forbidden(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    lab.profile(requeue=False, chain=3)
    lab.count_grid(runs=2, last=5)
    lab.sweep()
    lab.at_work(10)  # of 12 until they are held, so that both are at work
    begun, jobs = lab.begun(), lab.job_ids()
    slurm.run("scancel", "--batch", "--signal=USR1", *(jobs[token] for token in begun))
    helpers.wait_for(lambda: len(lab.hosts()) > len(begun), what="the second job of the chain")
    lab.pace(0.01)
    assert sum(judge(lab, undisturbed, slurm)) > 2

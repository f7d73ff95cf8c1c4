"""A site's limits, and commands of Slurm's that fail now and then: what is submitted, and what is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO

import pytest

from orchestrator.core.types import array_of
from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab, judge_runs
from tests.slurm.test_submission import stand_in


def counted(lab: Lab) -> Mapping[str, str]:
    """An environment whose sbatch notes how it ended."""
    log = lab.folder / "sbatch.log"
    return stand_in(lab, "sbatch", f'"$real" "$@"; code=$?; echo $code >> {log}; exit $code')


@pytest.mark.nightly(but=["2"])
@pytest.mark.parametrize("limit", [2, 5])
def test_jobs_that_end_submit_what_the_queue_has_room_for(lab: Lab, slurm: Cluster, limit: int) -> None:
    """Each is in the queue itself until it has left; the last two may end in the same moment."""
    slurm.set_limits(MaxSubmitJobs=limit)
    lab.profile(pack=1, cpus_per_task=1, mem="500M")
    lab.count_grid(runs=2 * limit)
    env = counted(lab)
    assert f"{limit} runs waiting for room in the queue" in lab.sweep(env=env)
    helpers.wait_for(lambda: lab.results_of() == 2 * limit, what="what waits to be submitted and done")
    assert judge_runs(lab, slurm) == [1] * (2 * limit)
    codes = (lab.folder / "sbatch.log").read_text().split()
    assert set(codes) == {"0"}, "more was submitted than there was room for"
    assert len(codes) <= 1 + limit


@pytest.mark.nightly
def test_where_one_job_is_the_limit_a_person_stays_or_comes_again(lab: Lab, slurm: Cluster) -> None:
    """A job counts itself, and so can submit none: the limit is that of the QOS that jobs get."""
    qos = ("sacctmgr", "--immediate", "modify", "qos", "normal", "set")
    slurm.run(*qos, "MaxSubmitJobsPerUser=1")
    try:
        lab.profile(pack=1, cpus_per_task=1, mem="500M")
        lab.count_grid(runs=3)
        env = counted(lab)
        said = lab.sweep("tiny", "--follow", env=env)
    finally:
        slurm.run(*qos, "MaxSubmitJobsPerUser=-1")
    assert "2 runs waiting for room in the queue: this command again submits them, or --follow" in said
    assert "your limit there is one job" in said
    assert judge_runs(lab, slurm) == [1] * 3
    assert (lab.folder / "sbatch.log").read_text().split() == ["0"] * 3
    (output,) = {lab.dir().worker_output(token).read_text().strip() for token in list(lab.job_ids())[:2]}
    assert "the queue has no room: your limit there is one job" in output


@pytest.mark.nightly(but=["10"])
@pytest.mark.parametrize("size", [10, 2000])
def test_a_dry_run_shows_the_arrays_that_are_submitted(lab: Lab, slurm: Cluster, size: int) -> None:
    slurm.set_config(MaxArraySize=size)
    lab.profile(pack=1, cpus_per_task=1, partition="cpu")
    lab.count_grid(runs=1200 if size > 1001 else 25)
    shown = {
        job["token"]: job["script"] for job in json.loads(lab.sweep("tiny", "--dry-run", "--json"))["jobs"]
    }
    lab.sweep()
    try:
        scripts = {array_of(token): lab.dir().script(array_of(token)).read_text() for token in lab.job_ids()}
    finally:
        slurm.run("scancel", "--user=root")
    assert shown == {token: scripts[array_of(token)] for token in lab.job_ids()}
    assert len(scripts) == (1 if size > 1001 else 3)


def test_a_dry_run_that_could_not_ask_says_so(lab: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=2)
    env = stand_in(lab, "scontrol", "echo 'slurm_load_ctl_conf error: Connection refused' >&2; exit 1")
    said = lab.sweep("tiny", "--dry-run", env=env)
    assert "warning: the cluster was not asked for its limits" in said
    assert "asked 3 times" in said
    assert "#SBATCH --array=0\n" in said
    assert "not asked" not in lab.sweep("tiny", "--dry-run")


def test_an_sbatch_that_says_no_and_has_submitted(lab: Lab, slurm: Cluster) -> None:
    env = stand_in(lab, "sbatch", '"$real" "$@" >/dev/null; echo "sbatch: error: no quota left" >&2; exit 1')
    lab.count_grid(runs=2)
    assert "refused" not in lab.sweep(env=env)
    assert list(lab.job_ids()) == ["0001-0001.0"]
    assert judge_runs(lab, slurm) == [1, 1]


@pytest.mark.nightly
def test_a_squeue_that_fails_once_is_not_noticed(lab: Lab, slurm: Cluster) -> None:
    failed = lab.folder / "failed"
    complaint = "slurm_load_jobs error: Socket timed out on send/recv operation"
    once = f'if mkdir {failed} 2>/dev/null; then echo "{complaint}" >&2; exit 1; fi; exec "$real" "$@"'
    env = stand_in(lab, "squeue", once)
    lab.count_grid(runs=2, last=10)
    lab.sweep(env=env)
    assert failed.is_dir()
    lab.at_work(4)
    failed.rmdir()
    assert lab.states(env=env) == ["running", "running"]
    failed.rmdir()
    assert "1 running job adopted" in lab.sweep(env=env)
    lab.pace(0.01)
    judge_runs(lab, slurm)


def read_until(text: str, stream: IO[str]) -> str:
    """What a process prints up to the line with ``text``; it is held until then."""
    shown = ""
    while text not in shown:
        line = stream.readline()
        assert line, shown
        shown += line
    return shown


def test_a_controller_that_is_silent_is_waited_for_aloud(lab: Lab, slurm: Cluster) -> None:
    """What is on disk is shown meanwhile."""
    lab.count_grid(runs=2, last=15)
    lab.sweep()
    lab.at_work(30)
    gate = lab.folder / "gate"
    env = stand_in(lab, "squeue", f'while [ ! -e {gate} ]; do sleep 0.05; done; exec "$real" "$@"')
    status = lab.start("status", "tiny", env=env)
    assert status.stdout is not None
    assert status.stderr is not None
    assert "tiny: on disk, until all have answered:" in read_until("% of 3,000", status.stdout)
    read_until("waiting for squeue", status.stderr)
    gate.touch()
    rest, _ = status.communicate(timeout=helpers.PATIENCE_S)
    assert "2 running" in rest
    lab.pace(0.01)
    judge_runs(lab, slurm)


def test_waste_is_said_before_it_is_queued(lab: Lab, slurm: Cluster) -> None:
    lab.profile(partition="gpu", gpus="l4:1", time=60, options={"exclusive": True}, cpus_per_task=1)
    lab.count_grid(runs=2)
    slurm.run("scontrol", "update", "PartitionName=gpu", "MaxTime=30")
    try:
        checked = lab.run("check", "tiny.yaml", "--on", "profile.yaml")
        shown, swept = lab.sweep("tiny", "--dry-run"), lab.sweep()
        told = lab.run("doctor", "--on", "profile.yaml", code=3)
    finally:
        slurm.run("scontrol", "update", "PartitionName=gpu", "MaxTime=UNLIMITED")
        slurm.run("scancel", "--user=root")
    for said in (checked, shown, swept):
        assert "2 runs use no GPU, and each of their jobs asks for a GPU (profile)" in said
        assert "a node of 2 cores to itself (`exclusive`), and its runs use 1 core of it" in said
        assert "would wait for ever: gpu ends jobs after 00:30:00" in said
    assert "all good" not in checked
    assert "a job has 2 cores to itself (`exclusive`), and works on 1" in told
    assert "gpu ends jobs after 00:30:00" in told


@pytest.mark.nightly
def test_a_profile_that_is_not_filled_in_submits_nothing(lab: Lab, slurm: Cluster) -> None:
    lab.profile(require=["account", "setup or modules"])
    lab.count_grid(runs=2)
    for said in (lab.run("check", "tiny.yaml", "--on", "profile.yaml"), lab.sweep("tiny", "--dry-run")):
        assert "profile: account is empty, and jobs there need it" in said
        assert "profile: setup or modules is empty" in said
    assert "profile: account is empty" in lab.sweep(code=2)
    assert "Filled in" in lab.run("doctor", "--on", "profile.yaml", code=3)
    assert slurm.queue() == []
    lab.profile(require=["account", "setup or modules"], account="lab", setup=["true"])
    lab.sweep()
    judge_runs(lab, slurm)


def test_nodes_are_not_asked_for_beside_the_grid(lab: Lab, slurm: Cluster) -> None:
    """Slurm would shrink such a job to one node, with a warning that nothing shows."""
    lab.count_grid(runs=1)
    for options in (["--nodes=2"], ["-N", "2"], ["--nodes=1-2"]):
        said = lab.sweep("tiny", "--", *options, code=2)
        assert "nodes is what runs decide: a job has the nodes that a run needs" in said
        assert "set resources: {nodes: 2} in the grid" in said
    lab.profile(options={"nodes": 2})
    assert "set resources: {nodes: 2} in the grid" in lab.sweep(code=2)
    assert slurm.queue() == []

"""Runs on two nodes of a cluster: ranks, daemons and nodes die, and the run is what it would have been."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.worker.nodes.agent_connections import _START_PATIENCE_S
from tests import helpers
from tests.helpers import end_record, kill
from tests.resuming import bits
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab

STEPS = 30
PROGRAM = helpers.COMMANDS / "ranks.py"


@pytest.fixture
def nodes(lab: Lab) -> Lab:
    """A sweep of one run on two nodes, which waits before its tenth step."""
    argv = [sys.executable, str(PROGRAM), str(lab.folder), str(STEPS), "pace"]
    grid = {"name": "wide", "trainer": "command", "base": {"command": argv}, "resources": {"nodes": 2}}
    (lab.folder / "wide.yaml").write_text(json.dumps(grid))
    lab.pace(0.0, 9)
    return lab


def frames(lab: Lab) -> list[int]:
    (run_id,) = lab.dir("wide").run_ids()
    return [row.frames for row in lab.dir("wide").run(run_id).history()]


def at_step(lab: Lab, step: int) -> None:
    helpers.wait_for(lambda: frames(lab)[-1:] == [step], what=f"step {step}")


def ranks(slurm: Cluster, node: str, argument: str = str(PROGRAM)) -> list[int]:
    """The programs at work on a node that have this argument."""
    found = []
    for pid in slurm.nodes[node].processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            found.append(pid)
    return found


def ends(lab: Lab) -> list[dict[str, Any]]:
    (run_id,) = lab.dir("wide").run_ids()
    return [end_record(attempt) for attempt in lab.dir("wide").run(run_id).attempts()]


def judge_wide(lab: Lab, slurm: Cluster) -> None:
    """The run came to what an undisturbed one does, once; only Slurm itself is left on the nodes."""
    lab.wait_done("wide")
    helpers.wait_for(lambda: lab.left_queue("wide", slurm), what="the end of the job")
    assert frames(lab) == list(range(1, STEPS + 1))
    (run_id,) = lab.dir("wide").run_ids()
    result = lab.dir("wide").run(run_id).result()
    assert result is not None
    assert result.final_return == sum(2 * step for step in range(1, STEPS + 1))
    empty(slurm)


def empty(slurm: Cluster) -> None:
    for node in slurm.nodes.values():
        helpers.wait_for(lambda n=node: set(n.processes().values()) <= {"slurmd"}, what="an empty node")  # type: ignore[misc]


@pytest.mark.nightly
def test_a_run_outlives_its_ranks_and_its_nodes(nodes: Lab, slurm: Cluster) -> None:
    nodes.sweep("wide")
    at_step(nodes, 9)
    (job_id,) = nodes.job_ids("wide").values()
    assert slurm.job(job_id)["NumNodes"] == "2"
    (rank,) = ranks(slurm, "cpu2")
    kill(rank)
    helpers.wait_for(lambda: len(ends(nodes)) == 2, what="the second attempt")
    first = ends(nodes)[0]
    assert first is not None
    assert (first["outcome"], first["reason"]) == ("interrupted", "killed")
    assert first["message"] == "rank 1 on cpu2 was killed by SIGKILL"
    nodes.pace(0.0, 15)
    at_step(nodes, 15)
    slurm.slurmd_kill("cpu2")
    slurm.node_down("cpu2")
    slurm.slurmd_start("cpu2")
    helpers.wait_for(lambda: len(ends(nodes)) == 3, what="the third attempt, in the requeued job")
    nodes.pace(0.0, 21)
    at_step(nodes, 21)
    script = nodes.folder / "urgent.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    slurm.run("sbatch", "--partition=urgent", "--array=0-1", "--cpus-per-task=2", script, cwd=nodes.folder)
    helpers.wait_for(lambda: len(ends(nodes)) == 4, what="the fourth attempt, after the preemption")
    nodes.pace(0.0)
    judge_wide(nodes, slurm)
    preempted = ends(nodes)[2]
    assert preempted is not None
    assert preempted["outcome"] == "interrupted"


def test_a_node_with_a_broken_environment_is_named_and_not_waited_for(nodes: Lab, slurm: Cluster) -> None:
    python = nodes.folder / "python.sh"
    python.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" != cpu2 ] || exit 127\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    nodes.profile(python=[str(python)])
    began = time.monotonic()
    nodes.sweep("wide", "--follow", code=1)
    assert time.monotonic() - began < _START_PATIENCE_S
    (sweep,) = json.loads(nodes.run("status", "wide", "--json"))
    (status,) = sweep["runs"]
    assert (status["state"], status["reason"]) == ("pending", "set-up failed")
    assert "cpu2: exit code 127" in status["message"]
    assert len(nodes.job_ids("wide")) == 1, "it was submitted once"
    empty(slurm)


@pytest.mark.nightly(but=["scancel"])
@pytest.mark.parametrize("what", ["scancel", "worker"])
def test_nothing_is_left_on_any_node(nodes: Lab, slurm: Cluster, what: str) -> None:
    nodes.sweep("wide")
    at_step(nodes, 9)
    (job_id,) = nodes.job_ids("wide").values()
    assert ranks(slurm, "cpu1")
    assert ranks(slurm, "cpu2")
    if what == "scancel":
        slurm.run("scancel", job_id)
    else:
        (log,) = nodes.dir("wide").read_journals()
        assert log.holder is not None
        forks = [pid for pid in slurm.nodes["cpu1"].processes() if is_worker(pid)]
        (worker,) = (pid for pid in forks if parent_of(pid) not in forks)
        kill(worker, signal.SIGKILL)
    helpers.wait_for(lambda: nodes.left_queue("wide", slurm), what="the end of the job")
    empty(slurm)
    nodes.pace(0.0)
    nodes.sweep("wide")
    judge_wide(nodes, slurm)


def is_worker(pid: int) -> bool:
    try:
        return b"jobs.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.nightly
def test_a_trainer_on_two_nodes_goes_on_bit_for_bit_as_on_one(lab: Lab, slurm: Cluster) -> None:
    base = {"task": "bucket_brigade/hard", "mode": "parallel", "actors": 4, "envs": 8, "rollout_steps": 8}
    base |= {"hidden": [8], "evaluation_interval": 0, "checkpoint_interval": 256, "loggers": ["csv"]}
    grid = {"name": "wide", "trainer": "a2c", "base": base, "resources": {"nodes": 2}}
    (lab.folder / "wide.yaml").write_text(json.dumps(grid))
    lab.sweep("wide")
    (run_id,) = lab.dir("wide").run_ids()
    run = lab.dir("wide").run(run_id)

    def wait_for_checkpoint(attempt: int) -> int:
        def newest() -> int | None:
            found = run.checkpoints(below=attempt + 1)
            return found[0].frames if found and found[0].attempt == attempt else None

        return helpers.wait_for(newest, what=f"a checkpoint of attempt {attempt}")  # type: ignore[return-value]

    wait_for_checkpoint(1)
    (job_id,) = lab.job_ids("wide").values()
    assert slurm.job(job_id)["NumNodes"] == "2"
    kill(ranks(slurm, "cpu2", "jobs.trainers.actor_critic.processes.launch")[0])
    helpers.wait_for(lambda: len(ends(lab)) == 2, what="the second attempt")
    first = ends(lab)[0]
    assert first is not None
    assert (first["outcome"], first["reason"]) == ("interrupted", "killed")
    frames = wait_for_checkpoint(2)
    slurm.run("scancel", job_id)
    helpers.wait_for(lambda: lab.left_queue("wide", slurm), what="the end of the job")
    empty(slurm)

    alone = helpers.make_sweep(lab.folder / "alone", [run.description()])
    worker = helpers.start_worker(alone, helpers.submit(alone))
    one = alone.run(run_id)
    helpers.wait_for(lambda: one.history()[-1:] and one.history()[-1].frames >= frames, what="as many frames")
    kill(worker.pid)
    worker.wait()
    metrics = [[bits(row.metrics) for row in found.history() if row.frames <= frames] for found in (run, one)]
    assert len(metrics[0]) == frames // 64
    assert metrics[0] == metrics[1]


@pytest.mark.nightly
def test_a_killed_actor_of_the_second_node_is_named_and_the_run_goes_on(lab: Lab, slurm: Cluster) -> None:
    base = {"task": "bucket_brigade/hard", "mode": "parallel", "actors": 2, "learners": 2, "envs": 8}
    base |= {"batch_envs": 8, "rollout_steps": 8, "hidden": [8], "evaluation_interval": 0}
    base |= {"checkpoint_interval": 256, "loggers": ["csv"]}
    grid = {"name": "wide", "trainer": "impala", "base": base, "resources": {"nodes": 2}}
    (lab.folder / "wide.yaml").write_text(json.dumps(grid))
    lab.sweep("wide")
    (run_id,) = lab.dir("wide").run_ids()
    run = lab.dir("wide").run(run_id)

    def checkpoint_of(attempt: int) -> int:
        found = run.checkpoints(below=attempt + 1)
        return found[0].frames if found and found[0].attempt == attempt else 0

    helpers.wait_for(lambda: checkpoint_of(1), what="a checkpoint of the first attempt")
    program, actor = ranks(slurm, "cpu2", "jobs.trainers.actor_critic.processes.launch")
    assert parent_of(actor) == program
    frames = checkpoint_of(1)
    kill(actor)
    helpers.wait_for(lambda: checkpoint_of(2) > frames, what="a further checkpoint of the second attempt")
    first = ends(lab)[0]
    assert first is not None
    assert (first["outcome"], first["reason"]) == ("interrupted", "killed")
    assert "actor 1" in first["message"]
    (job_id,) = lab.job_ids("wide").values()
    slurm.run("scancel", job_id)
    helpers.wait_for(lambda: lab.left_queue("wide", slurm), what="the end of the job")
    empty(slurm)


def test_one_machine_is_not_several(nodes: Lab) -> None:
    said = nodes.run("sweep", "--grid", "wide.yaml", "--on", "local", code=2)
    assert "needs 2 nodes, this machine is one: choose a cluster (--on)" in said

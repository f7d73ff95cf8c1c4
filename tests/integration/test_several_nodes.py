"""A run on several nodes, its worker and agents as a job's script starts them, all on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Resources, Run
from orchestrator.rundir import RunDir, SweepDir
from tests import helpers
from tests.helpers import ROOT, end_record, finish, kill, make_sweep, running, wait_for
from tests.resuming import bits

STEPS = 12


@dataclass
class Job:
    """A job of one run on several nodes: each agent is a process as another node has it."""

    folder: Path
    sweep: SweepDir
    worker: subprocess.Popen[bytes]
    agents: list[subprocess.Popen[bytes]]

    @property
    def run(self) -> RunDir:
        return self.sweep.run(self.sweep.run_ids()[0])

    def pace(self, seconds: float, last: int = STEPS) -> None:
        (self.folder / "pace.new").write_text(f"{seconds} {last}")
        (self.folder / "pace.new").replace(self.folder / "pace")

    def pid(self, rank: int) -> int:
        """The process of a rank that is at work."""
        mark = self.folder / f"rank{rank}"
        return int(wait_for(lambda: mark.exists() and mark.read_text(), what=f"rank {rank}"))

    def at_step(self, step: int) -> None:
        wait_for(lambda: any(row.frames >= step for row in self.run.history()), what=f"step {step}")

    def end(self, code: int = 0) -> list[dict[str, Any]]:
        """How each attempt ended, once worker and agents have left; nothing of the ranks is left."""
        assert finish(self.worker) == code, self.sweep.worker_output("0001-0001").read_text()
        for agent in self.agents:
            assert finish(agent) in (0, -signal.SIGKILL)
        left = [pid for pid in sleepers() if str(self.folder) in environment(pid)]
        assert left == []
        return [end_record(attempt) for attempt in self.run.attempts()]


def sleepers() -> list[int]:
    """Processes that ranks start beside themselves."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and (path / "cmdline").read_bytes() == b"sleep\x0086000\0":
                found.append(int(path.name))
        except OSError:
            pass
    return [pid for pid in found if running(pid)]


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def begin(
        nodes: int = 2, last: int = STEPS, program: Sequence[Path | str] = (), run: Run | None = None
    ) -> Job:
        argv = program or [helpers.COMMANDS / "ranks.py", tmp_path, str(STEPS), tmp_path / "pace"]
        sweep = make_sweep(tmp_path / "results", [run or helpers.command_run(argv)])
        submitted = helpers.submit(sweep, resources=Resources(nodes=nodes))
        address = tmp_path / "address"
        worker = helpers.start_worker(sweep, submitted, {"ORCHESTRATE_AGENTS": str(address)})
        job = Job(tmp_path, sweep, worker, [])
        jobs.append(job)
        job.pace(0.0, last)
        wait_for(address.exists)
        assert address.stat().st_mode & 0o777 == 0o600
        environment = {**os.environ, "ORCHESTRATE_WORKER": address.read_text()}
        for _ in range(nodes - 1):
            argv = [sys.executable, "-P", "-m", "jobs.worker.nodes.agent"]
            job.agents.append(subprocess.Popen(argv, cwd=ROOT, env=environment, start_new_session=True))
        return job

    yield begin
    for job in jobs:
        for process in (job.worker, *job.agents):
            process.kill()
            process.wait()


def test_each_rank_does_its_part_once(start: Callable[..., Job]) -> None:
    """What is rank 0's alone is taken over; the others' words are in its log."""
    job = start(nodes=3)
    job.pace(0.05)  # so that their memory is measured
    job.end()
    (attempt,) = job.run.attempts()
    rows = job.run.history()
    assert [row.frames for row in rows] == list(range(1, STEPS + 1))
    assert rows[-1].metrics == {"return": sum(step * (1 + 1 + 2) for step in range(1, STEPS + 1))}
    log = attempt.log.read_text()
    assert "rank 0 of 3 begins after step 0" in log
    assert "[rank 1] rank 1 of 3 begins after step 0\n" in log
    assert "[rank 2] rank 2 of 3 begins after step 0\n" in log
    result = job.run.result()
    assert result is not None
    assert result.fields["cores"] == 3
    assert len(result.fields["node_peak_memory_mb"]) == 3
    assert min(result.fields["node_peak_memory_mb"]) > 4  # a Python
    assert result.fields["peak_memory_mb"] == pytest.approx(
        sum(result.fields["node_peak_memory_mb"]), abs=0.1
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_attempt_and_the_run_goes_on(start: Callable[..., Job], rank: int) -> None:
    job = start(last=8)
    job.at_step(7)
    kill(job.pid(rank))
    job.pace(0.0)
    first, _ = job.end()
    assert first is not None
    assert (first["outcome"], first["reason"]) == ("interrupted", "killed")
    assert first["message"].startswith(
        f"rank 1 on {socket.gethostname()} was killed by SIGKILL" if rank else "killed by SIGKILL"
    )
    assert [row.frames for row in job.run.history()] == list(range(1, STEPS + 1))
    assert "rank 1 of 2 begins after step 6" in job.run.attempts()[1].log.read_text()


def test_a_lost_agent_ends_the_attempt_and_the_job(start: Callable[..., Job]) -> None:
    job = start(last=8)
    job.at_step(7)
    (agent,) = job.agents
    agent.kill()
    wait_for(lambda: job.run.attempts()[0].end())
    job.worker.terminate()  # else it waits for the agent for a while
    (first,) = job.end(code=130)
    assert first is not None
    assert first["message"] == (f"rank 1 on {socket.gethostname()} was lost: no connection to its node")


def test_a_dead_worker_leaves_nothing_on_other_nodes(start: Callable[..., Job]) -> None:
    job = start(last=8)
    job.at_step(7)
    job.pid(1)
    assert sleepers()
    job.worker.kill()
    job.end(code=-signal.SIGKILL)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_stop_signal_reaches_all_ranks(start: Callable[..., Job], tmp_path: Path, wrapped: bool) -> None:
    argv = [sys.executable, str(helpers.COMMANDS / "ranks.py"), str(tmp_path), str(STEPS), f"{tmp_path}/pace"]
    command = ["sh", "-c", f"{shlex.join(argv)}; exit $?"] if wrapped else argv
    job = start(last=8, run=get_trainer("command").identify({"command": command}, 0, threads=1))
    job.at_step(7)
    job.worker.send_signal(signal.SIGTERM)
    (first,) = job.end(code=130)
    assert first is not None
    assert (first["outcome"], first["reason"], first["checkpointed"]) == ("interrupted", "stopped", 9)


def test_a_rank_that_fails_fails_the_run(start: Callable[..., Job]) -> None:
    job = start(last=8)
    job.at_step(7)
    (job.folder / "fail").write_text("3")
    job.pace(0.0)
    (first,) = job.end(code=1)
    assert first is not None
    assert (first["outcome"], first["reason"]) == ("failed", "code error")
    assert "something is wrong" in first["message"]


def test_the_example_on_two_nodes_is_the_example_on_one(start: Callable[..., Job], tmp_path: Path) -> None:
    program = [ROOT / "examples" / "nodes" / "train.py", "12"]
    job = start(program=program)
    alone = {
        "ORCHESTRATE_METRICS": str(tmp_path / "metrics"),
        "ORCHESTRATE_CHECKPOINT_DIR": str(tmp_path),
        "ORCHESTRATE_SEED": "0",
    }
    subprocess.run([sys.executable, *program], env={**os.environ, **alone}, check=True)
    job.end()
    lines = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    rows = job.run.history()
    assert [row.frames for row in rows] == [line["frames"] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        assert row.metrics["return"] == pytest.approx(line["metrics"]["return"], rel=1e-4, abs=1e-6)
    assert job.run.checkpoints()[0].frames == 12 * 64


@pytest.mark.nightly
def test_actors_and_learners_of_impala_on_two_nodes(start: Callable[..., Job]) -> None:
    """Each node's actors play for its own learners; a fault on another node is named."""
    keys = {
        "task": "bucket_brigade/hard",
        "task.opponents": 2,
        "mode": "parallel",
        "actors": 4,
        "learners": 2,
    }
    keys |= {"envs": 8, "batch_envs": 4, "rollout_steps": 8, "hidden": [8], "steps": 10_000_000}
    keys |= {"evaluation_interval": 0, "checkpoint_interval": 256, "actor_timeout": 20, "loggers": ["csv"]}
    job = start(run=get_trainer("impala").identify(keys, 0, threads=1))

    def on_other_node(attempt: int) -> dict[str, int]:
        """The processes there, once the attempt has come to a checkpoint."""

        def newest() -> bool:
            found = job.run.checkpoints(below=attempt + 1)
            return bool(found) and found[0].attempt == attempt

        wait_for(newest, what=f"a checkpoint of attempt {attempt}")
        (learner,) = helpers.run_processes(job.agents[0].pid)
        return {
            "learner 1": learner,
            **dict(zip(["actor 2", "actor 3"], helpers.children(learner), strict=True)),
        }

    def end(attempt: int) -> dict[str, Any]:
        found = [one for one in job.run.attempts() if one.number == attempt]
        return wait_for(lambda: end_record(found[0]), what=f"the end of attempt {attempt}")

    host = socket.gethostname()
    faults = [
        ("actor 3", signal.SIGKILL, "actor 3: killed by SIGKILL"),
        ("actor 2", signal.SIGSTOP, "actor 2 of 4 did not answer within 20 s: it hangs, or is stopped"),
        ("learner 1", signal.SIGKILL, f"rank 1 on {host} was killed by SIGKILL"),
    ]
    for attempt, (name, number, message) in enumerate(faults, start=1):
        processes = on_other_node(attempt)
        kill(processes[name], number)
        ended = end(attempt)
        assert (ended["outcome"], ended["reason"], ended["message"]) == ("interrupted", "killed", message)
        wait_for(lambda: not any(map(running, processes.values())), what="the end of the processes")  # noqa: B023
    on_other_node(4)
    rows = job.run.history()
    assert [row.frames for row in rows] == [64 * (one + 1) for one in range(len(rows))]
    assert all(0 <= row.metrics["train/policy_lag"] <= 1 for row in rows)
    kill(job.worker.pid, signal.SIGTERM)
    last = job.end(code=130)[-1]
    assert last is not None
    assert last["reason"] == "stopped"


@pytest.mark.nightly
def test_torchrun_by_hand_trains_on_all_its_nodes_and_refuses_several_processes_on_one(
    tmp_path: Path,
) -> None:
    run = ["a2c", "task=bucket_brigade/hard", "mode=parallel", "actors=2", "envs=4", "rollout_steps=8"]
    run += ["steps=256", "hidden=[8]", "evaluation_interval=0", "loggers=[csv]"]

    def torchrun(node: int, processes: int, nodes: int, port: int) -> subprocess.Popen[str]:
        argv = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            str(nodes),
            "--node-rank",
            str(node),
        ]
        argv += ["--nproc-per-node", str(processes), "--master-addr", "127.0.0.1", "--master-port", str(port)]
        argv += ["-m", "jobs.train", "--results", str(tmp_path / f"{nodes}"), *run]
        path = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, cwd=tmp_path, env=path, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    port = helpers.free_port()
    started = [torchrun(node, 1, 2, port) for node in (1, 0)]
    said = [process.communicate(timeout=helpers.PATIENCE_S)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    alone = [sys.executable, "-m", "jobs.train", "--results", str(tmp_path / "1"), *run]
    subprocess.run(alone, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    both, one = (SweepDir(tmp_path / nodes, "by-hand") for nodes in ("2", "1"))
    (run_id,) = one.run_ids()
    assert [bits(row.metrics) for row in both.run(run_id).history()] == [
        bits(row.metrics) for row in one.run(run_id).history()
    ]
    assert len(one.run(run_id).history()) == 8
    assert not list((tmp_path / "2").glob(".agents*"))

    refused = torchrun(0, 2, 1, helpers.free_port())
    said = [refused.communicate(timeout=helpers.PATIENCE_S)[0]]
    assert refused.returncode != 0
    assert "found 2 processes on 1 nodes, expected one on each" in said[0]

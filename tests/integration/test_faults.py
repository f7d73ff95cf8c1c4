"""Kill anything at any moment: nothing is lost, nothing is done twice, nobody works on a run beside another.

The program under test leaves a line in an audit file, outside the results tree, for every step it executes.
What really happened is judged by that file and by the claims, not by the results alone (tests/audit.py).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.types import Reason, Run, RunState
from orchestrator.rundir import SweepDir, attempt_ended
from tests import helpers
from tests.audit import Audit, check_finished, point_of
from tests.helpers import enter

STEPS, SECONDS = 20, 0.005
RUNS = 6

# Rounds (kills) per test.
WORKER_ROUNDS, SUPERVISOR_ROUNDS, PROGRAM_ROUNDS, MIXED_ROUNDS, COMMAND_ROUNDS = 25, 15, 15, 20, 8


def retry_given_up(sweep: SweepDir) -> None:
    """What a person does about runs that were killed three times before their first checkpoint."""
    for run_id in sweep.run_ids():
        attempts = sweep.run(run_id).attempts()
        end = attempts[-1].end() if attempts else None
        if end is not None and end.outcome is RunState.FAILED:
            assert end.reason is Reason.CRASH_LOOP, end
            enter(sweep, "retry", {"time": time.time(), "runs": {run_id: attempts[-1].number}})


def unfinished(sweep: SweepDir) -> bool:
    return any(not sweep.run(run_id).result_path.exists() for run_id in sweep.run_ids())


class Disturbance:
    """Works through sweeps while something is killed again and again, ``rounds`` times in all."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.rounds, self.sweeps = 0, 0
        self.worker: subprocess.Popen[bytes] | None = None

    def run(self, rounds: int, disturb: Callable[[], bool], check: Callable[[SweepDir], None]) -> None:
        while self.rounds < rounds:
            self.sweeps += 1
            audit = self.folder / f"audit-{self.sweeps}"
            runs = helpers.count_runs(audit, RUNS, STEPS, SECONDS)
            sweep = helpers.make_sweep(self.folder / f"results-{self.sweeps}", runs)
            deadline = time.monotonic() + 300
            while unfinished(sweep):
                assert time.monotonic() < deadline, "the sweep does not end"
                self.ensure_worker(sweep)
                self.wait_a_while(audit)
                self.rounds += disturb()  # only what hit something counts
                check(sweep)
            if self.worker is not None:
                helpers.finish(self.worker)
                self.worker = None
            check_finished(sweep, runs, audit)

    def wait_a_while(self, audit: Path) -> None:
        """Until some moment: of the clock, or after some steps more however slow the machine is."""
        if self.chance.random() < 0.3:
            time.sleep(self.chance.uniform(0.02, 0.3))
            return
        assert self.worker is not None
        lines = len(Audit(audit).lines) + self.chance.randint(1, 60)
        while len(Audit(audit).lines) < lines and self.worker.poll() is None:
            time.sleep(self.chance.uniform(0.001, 0.02))

    def ensure_worker(self, sweep: SweepDir) -> subprocess.Popen[bytes]:
        if self.worker is None or self.worker.poll() is not None:
            retry_given_up(sweep)
            job = helpers.submit(sweep, slots=2)
            self.sweep, self.token = sweep, job.token
            self.worker = helpers.start_worker(sweep, job)
        return self.worker

    def kill_worker(self) -> bool:
        assert self.worker is not None
        at_work = self.token in {log.token for log in self.sweep.read_journals()}
        if self.worker.poll() is not None:
            return False
        self.worker.kill()
        self.worker.wait()
        return at_work

    def kill_keeper(self) -> bool:
        assert self.worker is not None
        return self.kill_one(helpers.children(self.worker.pid))

    def kill_supervisor(self) -> bool:
        assert self.worker is not None
        return self.kill_one(helpers.run_processes(self.worker.pid))

    def kill_program(self) -> bool:
        assert self.worker is not None
        runs = helpers.run_processes(self.worker.pid)
        return self.kill_one([program for run in runs for program in helpers.children(run)])

    def kill_one(self, pids: list[int]) -> bool:
        alive = [pid for pid in pids if helpers.running(pid)]
        return bool(alive) and helpers.kill(self.chance.choice(alive))

    def kill_something(self) -> bool:
        kills = (self.kill_worker, self.kill_keeper, self.kill_supervisor, self.kill_program)
        return self.chance.choice(kills)()


def nothing(_: SweepDir) -> None:
    pass


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("victim", "rounds"),
    [
        (Disturbance.kill_supervisor, SUPERVISOR_ROUNDS),
        (Disturbance.kill_program, PROGRAM_ROUNDS),
        (Disturbance.kill_something, MIXED_ROUNDS),
    ],
)
def test_killed_at_random(tmp_path: Path, victim: Callable[[Disturbance], bool], rounds: int) -> None:
    disturbance = Disturbance(tmp_path, seed=rounds)
    disturbance.run(rounds, lambda: victim(disturbance), nothing)
    assert disturbance.rounds >= rounds


@pytest.mark.nightly(but=["5"])
@pytest.mark.parametrize("rounds", [5, WORKER_ROUNDS])
def test_killed_workers_lose_no_checkpoint(tmp_path: Path, rounds: int) -> None:
    """After each kill the durable checkpoints are noted; the next execution must go on from the newest."""
    disturbance = Disturbance(tmp_path, seed=1)
    durable: dict[tuple[str, str, int], int] = {}

    def note(sweep: SweepDir) -> None:
        for run_id in sweep.run_ids():
            run = sweep.run(run_id)
            attempts = run.attempts()
            if attempts and not run.result_path.exists():
                helpers.wait_for(lambda newest=attempts[-1]: attempt_ended(newest))
                newest = max((file.frames for file in run.checkpoints()), default=0)
                durable[str(sweep.path), run_id, attempts[-1].number + 1] = newest // 100

    disturbance.run(rounds, disturbance.kill_worker, note)
    for (sweep_path, run_id, number), step in durable.items():
        metrics = Path(sweep_path) / "runs" / run_id / "attempts" / str(number) / "metrics.jsonl"
        if metrics.exists() and metrics.stat().st_size:
            assert point_of(metrics) == step


def test_two_workers_share_a_sweep(results: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    runs = helpers.count_runs(audit, 12, STEPS, SECONDS)
    sweep = helpers.make_sweep(results, runs)
    jobs = [helpers.submit(sweep, slots=2) for _ in range(2)]
    workers = [helpers.start_worker(sweep, job) for job in jobs]
    assert [helpers.finish(worker) for worker in workers] == [0, 0]
    check_finished(sweep, runs, audit)
    assert all(len(sweep.run(run.run_id).attempts()) == 1 for run in runs)


@pytest.mark.parametrize("victim", ["worker", "supervisor"])
def test_nothing_outlives_what_started_it(results: Path, tmp_path: Path, victim: str) -> None:
    audit = tmp_path / "audit"
    sweep = helpers.make_sweep(results, helpers.count_runs(audit, 1, steps=100_000))
    worker = helpers.start_worker(sweep, helpers.submit(sweep))
    helpers.wait_for(lambda: audit.exists() and "step" in audit.read_text())
    (supervisor,) = helpers.run_processes(worker.pid)
    (program,) = helpers.children(supervisor)
    os.kill(worker.pid, signal.SIGSTOP)  # it neither reaps nor cleans up
    os.kill(worker.pid if victim == "worker" else supervisor, signal.SIGKILL)
    helpers.wait_for(lambda: not Path(f"/proc/{program}").exists(), what="the program's end")
    worker.kill()
    worker.wait()


def test_killed_programs_leave_no_process_of_theirs(results: Path, tmp_path: Path) -> None:
    """A program's own child, which no kernel rule ends, is gone before the next attempt begins."""
    text = f"sleep 300 & echo $! >> {tmp_path}/pids; wait"
    run = Run("0" * 16, "command", {"command": ["/bin/sh", "-c", text]})
    sweep = helpers.make_sweep(results, [run])
    pids = tmp_path / "pids"
    worker = helpers.start_worker(sweep, helpers.submit(sweep))
    helpers.wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"))
    worker.kill()
    worker.wait()
    second = helpers.start_worker(sweep, helpers.submit(sweep))
    helpers.wait_for(lambda: pids.read_text().count("\n") == 2)
    first = int(pids.read_text().split()[0])
    assert not helpers.running(first)
    second.terminate()
    helpers.finish(second)


def test_stopped_past_its_lease_a_run_fences_itself(results: Path, tmp_path: Path) -> None:
    """A worker in another pid namespace can prove nothing about the stopped one: only the lease decides."""
    elsewhere = helpers.unshared("--pid", "--fork", "--mount-proc")
    audit = tmp_path / "audit"
    runs = helpers.count_runs(audit, 1, steps=STEPS, seconds=0.3)
    sweep = helpers.make_sweep(results, runs)
    run = sweep.run(runs[0].run_id)
    lease = {"ORCHESTRATE_LEASE": "6"}
    first = helpers.start_worker(sweep, helpers.submit(sweep), env=lease)
    helpers.wait_for(lambda: run.checkpoints())
    (supervisor,) = helpers.run_processes(first.pid)
    (program,) = helpers.children(supervisor)
    for pid in (first.pid, supervisor, program):
        os.kill(pid, signal.SIGSTOP)
    while len(run.attempts()) == 1:
        helpers.finish(helpers.start_worker(sweep, helpers.submit(sweep), env=lease, prefix=elsewhere))
    renewed = run.attempt(1).claim_path.stat().st_mtime
    second = run.attempt(2).claim()
    assert second is not None
    assert second.created - renewed > 2 * 6 - 0.1, "the file system's clock has coarse ticks"
    assert run.result_path.exists()
    before = contents(run.path)
    os.kill(supervisor, signal.SIGCONT)
    helpers.wait_for(lambda: not helpers.running(supervisor))
    helpers.wait_for(lambda: not Path(f"/proc/{program}").exists(), what="the program's end with its run's")
    os.kill(first.pid, signal.SIGCONT)
    assert helpers.finish(first) == 0
    assert contents(run.path) == before
    check_finished(sweep, runs, audit)
    told = [data["message"] for kind, _, data in helpers.events(sweep) if kind == "ended"]
    assert "lost its claim to another worker and left" in told


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with when it was changed and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.nightly
def test_killed_command_lines_start_nothing_twice(tmp_path: Path) -> None:
    """Command lines, two side by side, are killed again and again; their workers are adopted by the next."""
    audit, results, grid = tmp_path / "audit", tmp_path / "results", tmp_path / "grid.yaml"
    argv = [sys.executable, str(helpers.COMMANDS / "count.py"), str(audit), str(STEPS), "0.02"]
    grid.write_text(
        f"name: tiny\ntrainer: command\nbase: {{command: {json.dumps(argv)}}}\nmatrix: {{seed: range(40)}}\n"
    )
    command = [
        sys.executable,
        "-m",
        "orchestrator.ui.cli",
        "sweep",
        "--grid",
        str(grid),
        "--results",
        str(results),
    ]
    chance = random.Random(5)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=helpers.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    rounds, deadline = 0, time.monotonic() + 180
    while rounds < COMMAND_ROUNDS:
        assert time.monotonic() < deadline, "command lines leave before they are killed"
        both = [start(), start()]
        time.sleep(chance.uniform(0.1, 1.5))
        for process in both:
            rounds += process.poll() is None
            process.kill()
            process.wait()
    both = [start(), start()]
    assert [helpers.finish(process, 120) for process in both] == [0, 0]
    sweep = SweepDir.existing(results, "tiny")
    runs = [sweep.run(run_id).description() for run_id in sweep.run_ids()]
    assert len(runs) == 40
    check_finished(sweep, runs, audit)
    assert all(len(sweep.run(run.run_id).attempts()) == 1 for run in runs), "no worker was ever killed"

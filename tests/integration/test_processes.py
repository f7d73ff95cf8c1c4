"""Runs of several processes: their memory, their end with the run and the worker, and a kill for memory."""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config.trainers import get_trainer
from tests import helpers
from tests.helpers import kill, running, wait_for

MB = 1 << 20
# Four actors of 60 MiB that are there at the same time.
_ACTORS = """
import os
from multiprocessing import get_context

def act(ready, over):
    held = b"x" * (60 << 20)
    ready.release()
    over.wait()

if __name__ == "__main__":
    context = get_context("fork")
    ready, over = context.Semaphore(0), context.Event()
    actors = [context.Process(target=act, args=(ready, over)) for _ in range(4)]
    for actor in actors:
        actor.start()
    for actor in actors:
        ready.acquire()
    with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
        file.write('{"frames": 1}\\n')
    over.wait(4.0)  # several looks of the keeper, also on a busy machine
    over.set()
    for actor in actors:
        actor.join()
"""
# An actor that grows until the kernel kills it, one killed by another hand, or such growth without an actor.
_VICTIM = """
import os, signal, sys, time
word = sys.argv[1]
actor = os.fork() if word != "alone" else 0
if actor == 0:
    held = []
    while word != "die":
        held.append(b"x" * (2 << 20))
        time.sleep(0.025)
    os.kill(os.getpid(), signal.SIGKILL)
_, status = os.waitpid(actor, 0)
sys.exit(f"an actor was terminated abruptly, by signal {os.WTERMSIG(status)}")
"""


def test_the_memory_of_a_run_is_the_sum_over_its_processes(results: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_ACTORS)
    sweep = helpers.make_sweep(results, [helpers.command_run([tmp_path / "program.py"])])
    assert helpers.work(sweep) == 0
    result = sweep.run(sweep.run_ids()[0]).result()
    assert result is not None
    assert 4 * 60 < result.fields["peak_memory_mb"] < 4 * 60 + 100  # shared pages are not counted four times


@pytest.mark.parametrize("victim", ["worker", "run"])
def test_a_daemon_of_a_program_ends_with_the_worker_and_with_the_run(
    results: Path, tmp_path: Path, victim: str
) -> None:
    pids = tmp_path / "pids"
    daemon = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &"
    text = f"({daemon}) ; echo $$ >> {pids}; exec sleep 600"
    run = get_trainer("command").identify({"command": ["/bin/sh", "-c", text]}, 0, threads=1)
    sweep = helpers.make_sweep(results, [run])
    worker = helpers.start_worker(sweep, helpers.submit(sweep))
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="program and daemon")
    started = [int(pid) for pid in pids.read_text().split()]
    claim = sweep.run(run.run_id).attempt(1).claim()
    assert claim is not None
    kill(worker.pid if victim == "worker" else claim.holder.pid)
    wait_for(lambda: not any(map(running, started)), timeout=10, what="the end of program and daemon")
    kill(worker.pid)
    worker.wait()


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group of 120 MiB, beside this process's own."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
    root = Path("/sys/fs/cgroup")
    base, limit = (root / "memory", "memory.limit_in_bytes") if "memory" in paths else (root, "memory.max")
    group = base / paths.get("memory", paths.get("", "/")).lstrip("/") / f"test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / limit).write_text(str(120 * MB))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"needs a control group of its own: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), what="an empty control group")
    group.rmdir()


def test_an_actor_killed_for_memory_ends_its_run_out_of_memory(
    results: Path, tmp_path: Path, control_group: Path
) -> None:
    """And no other run of the same control group."""
    (tmp_path / "program.py").write_text(_VICTIM)
    runs = [helpers.command_run([tmp_path / "program.py", word]) for word in ("grow", "die", "alone")]
    sweep = helpers.make_sweep(results, runs)
    prefix = ["sh", "-c", f'echo $$ > {shlex.quote(str(control_group))}/cgroup.procs; exec "$@"', "sh"]
    worker = helpers.start_worker(sweep, helpers.submit(sweep, slots=1), prefix=prefix)
    assert helpers.finish(worker) == 1
    grown, died, alone = (helpers.end_record(sweep.run(run.run_id).attempts()[-1]) for run in runs)
    assert (grown["outcome"], grown["reason"]) == ("failed", "out of memory")
    assert "killed for want of memory: the program left with exit code 1: an actor was" in grown["message"]
    assert (died["outcome"], died["reason"]) == ("failed", "code error")
    assert (alone["reason"], alone["message"]) == ("out of memory", "killed for want of memory")

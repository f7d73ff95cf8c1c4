"""Processes that a run started end with the run: actors, daemons, after a kill of worker, keeper or run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.training.processes.run_memory import RunMemory
from jobs.worker.capacity.slots import Slot
from jobs.worker.runs.run_handle import RunHandle
from tests.helpers import PATIENCE_S, ROOT, kill, running, wait_for

# A worker in little: one run, whose process starts actors in all ways and then acts on its standard input.
_WORKER = """
import multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import adopt_orphans, end_descendants
from jobs.training.processes.run_memory import RunMemory
from jobs.worker.runs.keeper import keep
from jobs.worker.runs.run_process import let_signals_end_children

folder = Path(sys.argv[1])

def note(name):
    (folder / f".{name}").write_text(str(os.getpid()))
    (folder / f".{name}").rename(folder / name)

def act(name):
    note(name)
    time.sleep(600)

def run(keeper):
    stops = os.open(folder / "stops", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    (folder / "keeper").write_text(str(keeper))
    let_signals_end_children()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stops, b"stop"))
    multiprocessing.get_context("fork").Process(target=act, args=("forked",)).start()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            act("daemon")
        os._exit(0)
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    for number in range(2):
        words = [sys.executable, "-S", "-c", sleeper]
        actor = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=bool(number))
        (folder / f"spawned{number}").write_bytes(actor.stdout.readline())
    note("run")
    how = sys.stdin.readline().strip()
    if how.startswith("signal "):
        os.kill(os.getpid(), int(how.split()[1]))
    os._exit(int(how))

adopt_orphans()
parent = os.getpid()
pid = os.fork()
if pid == 0:
    keep(parent, RunMemory(), Life(), run)
status = os.waitpid(pid, 0)[1]
end_descendants()
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""
ACTORS = ("forked", "daemon", "spawned0", "spawned1", "run", "keeper")


class Tree:
    """The processes of one such run."""

    def __init__(self, folder: Path) -> None:
        self.worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.stops = folder / "stops"
        wait_for(lambda: all((folder / name).exists() for name in ACTORS), what="all actors")
        self.pids = {name: int((folder / name).read_text()) for name in ACTORS}

    def order(self, text: str) -> int:
        self.worker.communicate(f"{text}\n".encode(), PATIENCE_S)
        return self.worker.returncode

    def all_ended(self) -> bool:
        return not any(map(running, self.pids.values()))

    def clear(self) -> None:
        for pid in self.pids.values():
            kill(pid)
        self.worker.kill()
        self.worker.communicate()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    tree.clear()


@pytest.mark.parametrize("victim", ["worker", "keeper", "run"])
def test_a_kill_leaves_no_actor_behind(tree: Tree, victim: str) -> None:
    assert all(map(running, tree.pids.values()))
    kill(tree.worker.pid if victim == "worker" else tree.pids[victim])
    wait_for(tree.all_ended, timeout=10, what="the end of all actors")


@pytest.mark.parametrize(
    ("how", "code"), [("0", 0), ("75", 75), ("signal 9", 256 - 9), ("signal 11", 256 - 11)]
)
def test_a_run_ends_as_its_process_did_and_its_actors_with_it(tree: Tree, how: str, code: int) -> None:
    assert tree.order(how) == code
    assert tree.all_ended()


def test_a_stop_signal_reaches_the_run_alone_and_an_actor_can_be_terminated(tree: Tree) -> None:
    kill(tree.pids["keeper"], signal.SIGTERM)
    wait_for(lambda: tree.stops.read_text() == "stop", what="the signal at the run")
    assert all(map(running, tree.pids.values()))
    kill(tree.pids["forked"], signal.SIGTERM)
    wait_for(lambda: not running(tree.pids["forked"]), what="the end of the actor")
    assert all(running(tree.pids[name]) for name in ACTORS if name != "forked")


def test_where_kills_are_not_counted_the_cause_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    child = RunHandle(1, "0" * 16, Slot(0, (0,)), -1, status=signal.SIGKILL)
    child.memory.note_kill()
    assert child.out_of_memory()
    child.memory = RunMemory()
    assert not child.out_of_memory()
    assert child.cause_of_death() == "killed by SIGKILL"
    monkeypatch.setattr("jobs.worker.runs.run_handle.oom_kills", lambda: None)
    assert child.cause_of_death() == "killed by SIGKILL (no control group tells whether for want of memory)"

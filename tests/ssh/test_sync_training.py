"""Results come home while they are made: in the end as a plain copy would have them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.trainers import get_trainer
from orchestrator.control.fleet import works
from orchestrator.control.poll import compact, poll_sweep
from orchestrator.control.submit import present
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import RunState
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.source import find_source
from orchestrator.sync.sync import sync
from tests.helpers import count_runs, finish, make_sweep, start_worker, submit, wait_for
from tests.ssh.server import ALIAS, Server
from tests.tiny_benchmarl import NAVIGATION_IQL


def bring(home: Path) -> SyncReport:
    (brought,) = sync(find_source(ALIAS), home, SyncOptions(), SyncProgress())
    return brought


def everything(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    """Files with content and time, and folders; not what is hidden, nor mailboxes.

    Times are whole seconds, as rsync compares them: a file that grows while it is fetched gets the content of
    the moment at which it is read, and the time of a moment before.
    """
    found: dict[str, tuple[bytes, int] | None] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.suffix != ".mail" and not any(part.startswith(".") for part in name.parts):
            found[name.as_posix()] = (
                (path.read_bytes(), int(path.stat().st_mtime)) if path.is_file() else None
            )
    return found


def assert_results_are_whole(home: Path) -> None:
    here = SweepDir(home, "tiny")
    for run_id in here.run_ids():
        result = here.run(run_id).result()
        if result is not None:
            here.run(run_id).verify(result, checksums=True)


def test_during_and_after_training(server: Server, tmp_path: Path) -> None:
    runs = [*count_runs(tmp_path / "audit", 6, steps=40, seconds=0.02)]
    runs.append(get_trainer("benchmarl").identify(NAVIGATION_IQL, 0, threads=1))
    there, home = make_sweep(server.home / "results", runs), server.laptop / "results"
    process = start_worker(there, submit(there, slots=2))
    wait_for(lambda: any(there.run(run.run_id).checkpoints() for run in runs), what="a checkpoint")
    rounds = states = 0
    while process.poll() is None and rounds < 100:
        bring(home)
        rounds += 1
        assert_results_are_whole(home)
        seen = poll_sweep(SweepDir(home, "tiny")).counts()
        states += RunState.RUNNING in seen and works(find_source(ALIAS), home, ["tiny"])
    assert rounds > 2
    assert states > 1
    assert finish(process) == 0
    with there.lock():
        compact(there, poll_sweep(there))  # as the next submission there does
    last = bring(home)
    assert last.problems == []
    assert not works(find_source(ALIAS), home, ["tiny"])
    plain = tmp_path / "plain"
    subprocess.run(["rsync", "-a", f"{there.results}/", f"{plain}/"], check=True)
    assert everything(home) == everything(plain)
    assert bring(home).files == 0
    counts = present(SweepDir(home, "tiny")).counts()
    assert counts == {RunState.DONE: len(runs)}


def test_watching_until_nothing_works_there_any_more(server: Server, tmp_path: Path) -> None:
    pace = tmp_path / "pace"
    pace.write_text("0.01 6")
    runs = count_runs(tmp_path / "audit", 2, steps=30, seconds=pace)
    there, home = make_sweep(server.home / "results", runs), server.laptop / "results"
    worker = start_worker(there, submit(there, slots=2))
    wait_for(lambda: any(there.run(run.run_id).checkpoints() for run in runs), what="a checkpoint")
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, str(home), "--watch", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        wait_for((home / "tiny" / "runs").exists, what="the first sync")
        server.stop()
        line = watching.stderr.readline()
        assert line.startswith("unknown since ")
        assert "trying again" in line
        server.start()
        pace.write_text("0.01")
        said, errors = watching.communicate(timeout=600)
    assert watching.returncode == 0, errors
    assert "the connection is back" in errors
    assert finish(worker) == 0
    assert "2 of 2 runs are finished there" in said.splitlines()[-1]
    assert {path.parent.name for path in home.glob("tiny/runs/*/result.json")} == set(there.run_ids())
    assert all(json.loads(path.read_text()) for path in home.glob("tiny/runs/*/result.json"))


@pytest.fixture(autouse=True)
def on_the_laptop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.laptop)

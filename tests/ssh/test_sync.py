"""Results come home from a machine behind a real sshd: what is new, whole, and nothing else."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.synthetic import finished_sweep
from orchestrator.control.decisions import stop_workers
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.records import plain
from orchestrator.rundir import Event, Holder, RunDir, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.journal import STARTED
from orchestrator.status.ownership import assigned
from orchestrator.sync.request import SyncOptions, SyncProgress, SyncReport
from orchestrator.sync.source import find_source
from orchestrator.sync.sync import sync
from tests import warm
from tests.helpers import ROOT, enter, submit
from tests.ssh.server import ALIAS, Server

MATRIX = {"algorithm": ["mappo", "iql"], "seed": [0, 1]}


@pytest.fixture
def there(server: Server) -> SweepDir:
    """A finished sweep on the cluster, where a project's results are by default."""
    return finished_sweep(server.home / "results", "speed", MATRIX, iterations=2)


@pytest.fixture
def home(server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The laptop's results folder, which is not there yet."""
    monkeypatch.chdir(server.laptop)
    return server.laptop / "results"


def bring(
    home: Path, options: SyncOptions | None = None, source: str = ALIAS, dry: bool = False
) -> SyncReport:
    (brought,) = sync(find_source(source), home, options or SyncOptions(), SyncProgress(), dry=dry)
    return brought


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file but hidden ones: what is in it, and its time."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *arguments]
    env = {**os.environ, **warm.COMMANDS}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)


def test_everything_comes_and_then_nothing(there: SweepDir, home: Path) -> None:
    done = command_line("sync", ALIAS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 runs verified; 4 of 4 runs are finished there" in done.stdout
    assert tree(home) == tree(there.results)
    again = bring(home)
    assert (again.files, again.complete, again.problems) == (0, [], [])


def test_the_mark_of_a_killed_sync_goes_and_that_of_a_live_one_stays(there: SweepDir, home: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    home.mkdir(exist_ok=True)
    dead, live = (
        home / f".orchestrate-{socket.gethostname()}-{pid}-ab_c-d" for pid in (gone.pid, os.getpid())
    )
    dead.touch()
    live.touch()
    assert command_line("sync", ALIAS).returncode == 0
    assert [path.name for path in home.glob(".orchestrate-*")] == [live.name]


def test_what_is_cleared_up_long_after_the_result_goes_here_too(there: SweepDir, home: Path) -> None:
    run = there.run(there.run_ids()[0])
    older = run.attempt(1).path / "checkpoints" / "1.json"
    older.parent.mkdir(exist_ok=True)
    older.write_text("{}")
    os.utime(run.path, (time.time() - 30, time.time() - 30))
    for _ in range(3):
        bring(home)
        assert tree(home) == tree(there.results)
    older.unlink()
    bring(home)
    assert tree(home) == tree(there.results)


def test_a_dry_run_writes_nothing(there: SweepDir, home: Path) -> None:
    done = command_line("sync", ALIAS, "--dry-run")
    total = sum(len(data) for data, _ in tree(there.path).values())
    assert done.returncode == 0
    count = len(tree(there.path))
    said = bring(home, dry=True)
    assert (said.files, said.size) == (count, total)
    assert f"{count} files" in done.stdout
    assert "would come, 4 runs would be verified" in done.stdout
    assert not home.exists()
    came = bring(home)
    assert (came.files, came.size, len(came.complete)) == (count, total, 4)


def test_a_dry_run_tells_what_is_put_aside(there: SweepDir, home: Path) -> None:
    bring(home)
    again, late = (there.run(run_id) for run_id in there.run_ids()[:2])
    again.retire_result()
    (late.path / "notes").write_text("late")
    before = tree(home)
    said = bring(home, dry=True)
    assert (said.files, said.size, said.due, said.put_aside) == (1, 4, 0, 1)
    assert "1 put aside" in command_line("sync", ALIAS, "--dry-run").stdout
    assert tree(home) == before
    came = bring(home)
    assert (came.files, came.size) == (1, 4)
    assert RunDir(home / "speed" / "runs" / again.run_id).result() is None
    (again.path / "retired-1.json").rename(again.result_path)
    assert bring(home, dry=True).due == len(bring(home).complete) == 1


def test_what_fits_nothing(there: SweepDir, home: Path) -> None:
    for options in (
        ["--run=algorithm=mappo", "--run=zzzz", "--prune-remote", "--yes"],
        ["--run=zzzz", "--dry-run"],
        ["--watch=nan"],
        ["--watch=inf"],
    ):
        done = command_line("sync", ALIAS, *options)
        assert done.returncode == 2, done
        assert ("--watch" if "--watch" in options[0] else "--run 'zzzz'") in done.stderr
        assert "Traceback" not in done.stderr
    assert there.run(there.run_ids()[0]).attempt(1).metrics.exists()
    done = command_line("sync", "--wandb", "--run", "zzzz")
    assert (done.returncode, "'zzzz'" in done.stderr) == (2, True)


def test_a_run_that_only_one_of_two_sweeps_has(there: SweepDir, home: Path) -> None:
    finished_sweep(there.results, "other", {"seed": [7]}, iterations=1)
    done = command_line("sync", ALIAS, "--run", "seed=7")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(home.rglob("result.json"))) == 1


def test_an_index_that_cannot_be_read(there: SweepDir, home: Path) -> None:
    there.index_path.write_bytes(b"\xff\xfe")
    for _ in range(2):
        done = command_line("sync", ALIAS)
        assert done.returncode == 1
        assert "index.tsv at the source: begins with '\\udcff" in done.stderr
    assert len(list(home.rglob("result.json"))) == 4
    assert "sync again once it is repaired at its source" in command_line("status").stderr


def test_records_nested_too_deeply(there: SweepDir, home: Path) -> None:
    (there.path / "ledger").mkdir(exist_ok=True)
    (there.path / "ledger" / "0009.json").write_text("[" * 100_000)
    there.run(there.run_ids()[0]).description_path.write_text("[" * 100_000)
    bring(home)
    for command in ("status", "collect", "report"):
        done = command_line(command)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done


@pytest.mark.parametrize("link", [False, True])
def test_a_file_where_results_go(there: SweepDir, home: Path, link: bool) -> None:
    home.symlink_to("nowhere") if link else home.write_text("mine")
    done = command_line("sync", ALIAS)
    assert done.returncode == 2
    assert "expected a folder for results" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_file_that_is_not_what_its_result_says_is_never_shown_as_one(there: SweepDir, home: Path) -> None:
    broken = there.run(there.run_ids()[0])
    metrics = broken.attempt(1).metrics
    good = metrics.read_bytes()
    metrics.write_bytes(good[:-3] + b"!!\n")
    brought = bring(home)
    assert len(brought.complete) == 3
    assert any(broken.run_id in line and "other content" in line for line in brought.problems)
    assert SweepDir(home, "speed").run(broken.run_id).result() is None
    times = metrics.stat()
    metrics.write_bytes(good)
    os.utime(metrics, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that only its content tells
    brought = bring(home)
    assert (brought.complete, brought.problems) == ([broken.run_id], [])
    assert tree(home) == tree(there.results)


def test_what_a_damaged_disk_here_holds_is_fetched_again(there: SweepDir, home: Path) -> None:
    run = there.run(there.run_ids()[0])
    here = RunDir(home / "speed" / "runs" / run.run_id)
    here.attempt(1).path.mkdir(parents=True)
    good = run.attempt(1).metrics
    here.attempt(1).metrics.write_bytes(bytes(good.stat().st_size))
    os.utime(here.attempt(1).metrics, ns=(0, good.stat().st_mtime_ns))
    brought = bring(home)
    assert brought.problems == []
    assert tree(home) == tree(there.results)


def test_a_manifest_that_leads_elsewhere_is_not_taken(there: SweepDir, home: Path) -> None:
    outside = home.parent / "outside.txt"
    outside.write_text("mine")
    for run_id, name in zip(
        there.run_ids(), ("../../../../outside.txt", str(outside), "attempts/./b", "result.json"), strict=True
    ):
        path = there.run(run_id).result_path
        result = json.loads(path.read_text())
        result["manifest"][0]["path"] = name
        path.write_text(json.dumps(result))
    brought = bring(home)
    assert len(brought.problems) == 4
    assert all("no file of a run" in line for line in brought.problems)
    assert not list(home.rglob("result.json"))
    assert outside.read_text() == "mine"


# A copy is not this machine's to decide about


def test_a_copy_shows_how_it_was_and_nothing_is_decided_there(there: SweepDir, home: Path) -> None:
    me = Holder.current()
    token = submit(there).token
    there.take_token(token, Event(STARTED, time.time(), data={"holder": plain(me), "slots": 1, "host": {}}))
    bring(home)
    copy = SweepDir(home, "speed")
    shown = command_line("status", "speed")
    assert re.search(r"^speed: as of \d\d:\d\d", shown.stdout, re.MULTILINE), shown
    assert f"from {ALIAS}:{there.results}" in shown.stdout
    (told,) = json.loads(command_line("status", "speed", "--json").stdout)
    assert told["copy_of"] == f"{ALIAS}:{there.results}"
    assert abs(told["as_of"] - time.time()) < 60
    grid = home.parent / "grid.yaml"
    grid.write_text("name: speed\ntrainer: command\nbase: {command: [echo]}\n")
    before = tree(home)
    for arguments in (
        ["cancel", "speed"],
        ["retry", "speed", copy.run_ids()[0]],
        ["sweep", "--grid", str(grid)],
        ["sweep", "--grid", str(grid), "--dry-run"],
    ):
        done = command_line(*arguments)
        assert done.returncode == 2, done
        assert "is a copy of" in done.stderr
        assert "only the source can change it" in done.stderr
    argv = [sys.executable, "-m", "jobs.worker", str(home), "speed", token]
    worker = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert worker.returncode == 2
    assert "is a copy of" in worker.stderr
    with pytest.raises(OrchestrateError, match="is a copy of"):
        stop_workers(copy)  # and this process, which the journal names, goes on
    assert tree(home) == before


def test_a_ledger_from_elsewhere_makes_nobody_log_in(there: SweepDir, home: Path, server: Server) -> None:
    profile = server.laptop / ".config" / "orchestrate" / "profiles" / "lab.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"ssh: {ALIAS}\n")
    given = {
        "home": "x",
        "accepted": True,
        "place": {"name": "lab", "address": "lab", "ssh": "no.such.machine.invalid", "folder": "/x"},
        "code": plain(SentCode("0" * 16, (), None)),
        "run_ids": there.run_ids(),
    }
    enter(there, "assigned", {"time": time.time(), **given})
    assert assigned(there.read_ledger())
    bring(home)
    asked = server.folder / "asked"
    (server.bin / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexit 255\n')
    assert command_line("status", "speed").returncode == 0
    assert not asked.exists()

"""Room at the source: only what is verified here goes there, and the source still knows what it has done."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.analysis.collect import collect
from orchestrator.rundir import SweepDir
from tests import warm
from tests.helpers import unshared
from tests.ssh.server import ALIAS, Server

COUNT = Path(__file__).parent.parent / "commands" / "count.py"


def orchestrate(*arguments: str, cwd: Path, env: dict[str, str] | None = None, typed: str = "") -> str:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *arguments]
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **warm.COMMANDS, **(env or {})},
        capture_output=True,
        text=True,
        input=typed,
        timeout=600,
    )
    assert done.returncode == 0, done
    return done.stdout + done.stderr


@pytest.fixture
def grid(server: Server, tmp_path: Path) -> Path:
    """A sweep of two runs, finished on the cluster by its own command line."""
    path = server.home / "grid.yaml"
    command = json.dumps([sys.executable, str(COUNT), str(tmp_path / "audit"), "6", "0.001"])
    path.write_text(f"name: tiny\ntrainer: command\nbase: {{command: {command}}}\nmatrix: {{seed: [0, 1]}}\n")
    on_cluster(server, "sweep", "--grid", str(path))
    return path


def on_cluster(server: Server, *arguments: str) -> str:
    return orchestrate(*arguments, cwd=server.home, env={"HOME": str(server.home)})


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_here_goes_there_and_nothing_is_trained_again(
    server: Server, grid: Path, tmp_path: Path
) -> None:
    there, home = SweepDir(server.home / "results", "tiny"), SweepDir(server.laptop / "results", "tiny")
    before = {run_id: files(there.run(run_id).path) for run_id in there.run_ids()}
    said = orchestrate("sync", ALIAS, "--prune-remote", cwd=server.laptop, typed="n\n")
    assert "nothing was deleted there" in said
    assert {run_id: files(there.run(run_id).path) for run_id in there.run_ids()} == before
    damaged, other = there.run_ids()
    metrics = home.run(damaged).attempt(1).metrics
    time = metrics.stat().st_mtime_ns
    metrics.write_bytes(metrics.read_bytes().replace(b"1", b"7"))
    os.utime(metrics, ns=(time, time))  # so that only a look into it tells
    said = orchestrate("sync", ALIAS, "--prune-remote", "--yes", cwd=server.laptop)
    assert "of 2 finished runs" not in said
    assert files(there.run(damaged).path) == before[damaged]
    manifest = {item["path"] for item in json.loads(there.run(other).result_path.read_text())["manifest"]}
    assert files(there.run(other).path) == before[other] - manifest | {".absent.json"}
    audit = (tmp_path / "audit").read_text()
    assert "nothing new to submit" in on_cluster(server, "sweep", "--grid", str(grid))
    assert "2 done" in on_cluster(server, "status")
    assert (tmp_path / "audit").read_text() == audit
    assert collect([home]).missing == ()
    assert "nothing new" in orchestrate("sync", ALIAS, cwd=server.laptop)
    result = home.run(other).result()
    assert result is not None
    home.run(other).verify(result, checksums=True)


def test_a_result_that_changed_there_keeps_its_files(server: Server, grid: Path) -> None:
    there = SweepDir(server.home / "results", "tiny")
    orchestrate("sync", ALIAS, cwd=server.laptop)
    run = there.run(there.run_ids()[0])
    before = files(run.path)
    run.result_path.write_text(run.result_path.read_text().replace('"done"', '"DONE"'))
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, "--prune-remote", "--yes"]
    done = subprocess.run(argv, cwd=server.laptop, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "its result at the source differs" in done.stderr
    assert files(run.path) == before


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("mount --bind {0} {0} && mount -o remount,ro,bind {0}", "read-only"),
        (
            "mount -t tmpfs -o size=8m tmpfs {1}; cp -a {0}/. {1}/; dd if=/dev/zero of={1}/full 2>&-; "
            "mount --bind {1} {0}",
            "full",
        ),
    ],
)
def test_a_source_that_cannot_be_written(server: Server, grid: Path, mount: str, said: str) -> None:
    orchestrate("sync", ALIAS, cwd=server.laptop)
    there = server.home / "results"
    before = files(there)
    folder = server.folder / "elsewhere"
    (folder / "mounted").mkdir(parents=True)
    program = folder / "rsync"
    script = f'{mount.format(there, folder / "mounted")}; exec /usr/bin/rsync "$@"'
    program.write_text(f"#!/bin/sh\nexec {shlex.join(unshared('--mount'))} sh -c '{script}' rsync \"$@\"\n")
    program.chmod(0o755)
    server.stop()
    server.start({"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"})
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, "--prune-remote", "--yes"]
    done = subprocess.run(argv, cwd=server.laptop, capture_output=True, text=True, timeout=600)
    assert done.returncode == 3, done
    assert said in done.stderr
    assert "cluster" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert files(there) == before


def refused(*arguments: str, cwd: Path) -> str:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", *arguments]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2, done
    return done.stderr


def test_a_tree_is_no_source_of_its_own(server: Server, grid: Path) -> None:
    """By its path, by a link, or by ssh to a machine that is this one or has the same disk."""
    tree = server.home / "results"
    (server.home / "other").symlink_to(tree)
    before = files(tree)
    for source, dest in (
        ("./results", "results"),
        ("./other", "results"),
        ("./results", "results/tiny/runs"),
        (f"{ALIAS}:results", "results"),
    ):
        for more in ((), ("--prune-remote", "--yes")):
            assert "are the same folder" in refused(source, dest, *more, cwd=server.home)
    assert files(tree) == before


def test_a_deletion_that_was_cut_is_completed(server: Server, grid: Path) -> None:
    there = SweepDir(server.home / "results", "tiny")
    ssh = server.bin / "ssh"
    whole = ssh.read_text()
    ssh.write_text(whole.replace("exec", 'case "$*" in *xargs*) exit 255 ;; esac\nexec'))
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, "--prune-remote", "--yes"]
    cut = subprocess.run(argv, cwd=server.laptop, capture_output=True, text=True, timeout=600)
    assert cut.returncode == 3, cut
    run = there.run(there.run_ids()[0])
    assert run.attempt(1).metrics.exists()
    ssh.write_text(whole)
    orchestrate("sync", ALIAS, "--prune-remote", "--yes", cwd=server.laptop)
    assert not run.attempt(1).metrics.exists()
    assert "nothing was deleted there" in orchestrate(
        "sync", ALIAS, "--prune-remote", "--yes", cwd=server.laptop
    )
    assert "2 done" in on_cluster(server, "status")

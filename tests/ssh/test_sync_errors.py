"""What can be wrong with a source or the way to it, here or there: one line each, and what to do."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import finished_sweep
from orchestrator.rundir import SweepDir
from tests import warm
from tests.helpers import free_port, unshared
from tests.ssh.server import ALIAS, Server

SYNC = [sys.executable, "-m", "orchestrator.ui.cli", "sync"]


@pytest.fixture
def there(server: Server, monkeypatch: pytest.MonkeyPatch) -> SweepDir:
    monkeypatch.chdir(server.laptop)
    return finished_sweep(server.home / "results", "speed", {"seed": [0, 1]}, iterations=2)


def error_of(code: int, *arguments: str, argv: list[str] | None = None) -> str:
    """The two lines that a sync ends with."""
    env = {**os.environ, **warm.COMMANDS}
    done = subprocess.run(argv or [*SYNC, *arguments], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  ")
    return done.stderr


def only(folder: Path, *programs: str) -> str:
    """A folder for PATH with nothing but these programs."""
    folder.mkdir()
    for name in programs:
        program = shutil.which(name)
        assert program is not None
        (folder / name).symlink_to(program)
    return str(folder)


def test_no_such_folder_there(there: SweepDir) -> None:
    assert "no results tree there (looked for nowhere)" in error_of(2, f"{ALIAS}:nowhere")


def test_no_results_there(there: SweepDir, server: Server) -> None:
    (server.home / "empty").mkdir()
    assert f"no sweep in {ALIAS}:{server.home}/empty" in error_of(2, f"{ALIAS}:empty")
    assert "no sweep named 'other'" in error_of(2, ALIAS, "--sweep", "other")


def test_no_such_folder_here(tmp_path: Path) -> None:
    assert "no such folder on this machine" in error_of(2, f"{tmp_path}/none")
    assert "its results are here already" in error_of(2, "local")


def test_no_such_kind_of_file() -> None:
    assert "found 'metric', expected some of" in error_of(2, ALIAS, "--only", "metric")


def test_no_rsync_there(there: SweepDir, server: Server) -> None:
    server.stop()
    server.start({"PATH": only(server.folder / "few", "sh", "bash", "env", "pwd", "printf", "cat")})
    said = error_of(3, ALIAS)
    assert f"{ALIAS}: no program 'rsync' there" in said


def test_no_rsync_here(there: SweepDir, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    few = only(server.folder / "few", "sh", "env")
    (server.folder / "few" / "ssh").symlink_to(server.bin / "ssh")
    monkeypatch.setenv("PATH", few)
    assert "no program 'rsync' on this machine's PATH" in error_of(2, ALIAS)


def test_a_noisy_login(there: SweepDir, server: Server) -> None:
    server.banner("Welcome to the cluster!\nMaintenance on Friday")
    assert "its login prints text" in (said := error_of(3, ALIAS))
    assert "~/.bashrc" in said


def test_another_host_key(there: SweepDir, server: Server) -> None:
    server.stop()
    server.new_host_key()
    server.start()
    assert "ssh-keygen -R" in error_of(3, ALIAS)


def test_nobody_listens(there: SweepDir, server: Server) -> None:
    config = server.laptop / ".ssh" / "config"
    config.write_text(config.read_text() + f"Host nobody\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    assert "nobody: cannot be reached" in error_of(3, "nobody:results")


def test_a_connection_that_ends_without_a_word(
    there: SweepDir, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in ends as ssh does when the connection that it shares ends late: silently, with 255."""
    ssh = server.folder / "cut" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\n{server.bin / "ssh"} "$@" || exit\ncase "$*" in *"rsync --server"*) exit 255 ;; esac\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    assert f"{ALIAS}: cannot be reached (connection closed)" in error_of(3, ALIAS)


@pytest.mark.parametrize(
    ("options", "said"), [("size=64k", "kB free: nothing of it was fetched"), ("ro", "read-only")]
)
def test_a_disk_here_that_takes_nothing(there: SweepDir, server: Server, options: str, said: str) -> None:
    big = there.run(there.run_ids()[0]).attempt(1).path / "big"
    big.write_bytes(os.urandom(200_000))
    home = server.laptop / "results"
    home.mkdir()
    script = f"mount -t tmpfs -o {options} tmpfs {shlex.quote(str(home))} && exec {shlex.join(SYNC)} {ALIAS}"
    assert said in error_of(3, argv=[*unshared("--mount"), "sh", "-c", script])
    assert subprocess.run([*SYNC, ALIAS], capture_output=True, timeout=600).returncode == 0


def test_files_there_that_may_not_be_read(there: SweepDir, server: Server) -> None:
    """Of the two runs one has a file that its owner may not read; root's rsync gives up that it may."""
    closed, other = (there.run(run_id) for run_id in there.run_ids())
    closed.attempt(1).metrics.chmod(0)
    folder = server.folder / "humble"
    folder.mkdir()
    program, rsync = folder / "rsync", shutil.which("rsync")
    humble = "setpriv --bounding-set=-dac_override,-dac_read_search"
    program.write_text(f'#!/bin/sh\n{humble} true && exec {humble} {rsync} "$@"\nexec {rsync} "$@"\n')
    program.chmod(0o755)
    server.stop()
    server.start({"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"})
    done = subprocess.run([*SYNC, ALIAS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done
    assert "Permission denied" in done.stderr
    home = SweepDir(server.laptop / "results", "speed")
    assert home.run(closed.run_id).result() is None
    assert home.run(other.run_id).result() is not None


def test_a_link_where_results_go(there: SweepDir, server: Server) -> None:
    outside = server.laptop / "outside"
    outside.mkdir()
    home = server.laptop / "results"
    home.mkdir()
    (home / "speed").symlink_to(outside)
    assert "found a link, expected a folder" in error_of(2, ALIAS)
    (home / "speed").unlink()
    (home / "speed" / ".synced").mkdir(parents=True)
    for name in ("lock", "incoming"):
        link, target = home / "speed" / ".synced" / name, outside / "mine"
        target.write_text("mine")
        link.symlink_to(target if name == "lock" else outside)
        assert f"{link.relative_to(server.laptop)}: found a link" in error_of(2, ALIAS)
        link.unlink()
        assert [path.read_text() for path in outside.iterdir()] == ["mine"]

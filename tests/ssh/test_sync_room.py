"""What is to come against the room that there is, and what is said meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import finished_sweep
from orchestrator.rundir import SweepDir
from orchestrator.sync.request import SyncOptions
from orchestrator.sync.source import find_source
from orchestrator.sync.sync import sync
from orchestrator.ui.cli.results.sync_progress import SyncScreen
from tests import warm
from tests.disks import mounted

MB = 1 << 20


@pytest.fixture
def there(tmp_path: Path) -> SweepDir:
    return finished_sweep(tmp_path / "there" / "results", "speed", {"seed": [0, 1]}, iterations=2)


def command_line(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", *map(str, arguments)]
    env = {**os.environ, **warm.COMMANDS}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)


@pytest.mark.disk
def test_what_does_not_fit_is_refused_with_figures(there: SweepDir, tmp_path: Path) -> None:
    (there.path / "big").write_bytes(os.urandom(6 * MB))
    with mounted(tmp_path / "disk") as disk:
        for options in (["--dry-run"], []):
            done = command_line(f"{there.results}/", disk / "results", *options)
            assert done.returncode == 3, done
            line, hint = done.stderr.splitlines()
            assert "needs 6.3" in line
            assert "MB free: nothing of it was fetched" in line
            assert "--only" in hint
        assert not list(disk.rglob("result.json"))
        assert not list(disk.rglob("big"))
        (there.path / "big").write_bytes(os.urandom(1 * MB))
        assert command_line(f"{there.results}/", disk / "results").returncode == 0


@pytest.mark.disk
def test_the_folder_s_own_file_system_counts(there: SweepDir, tmp_path: Path) -> None:
    """Not that of the results folder which it is in."""
    (there.path / "big").write_bytes(os.urandom(6 * MB))
    with mounted(tmp_path / "results" / "speed"):
        assert "nothing of it was fetched" in command_line(f"{there.results}/", tmp_path / "results").stderr


@pytest.mark.disk
def test_folders_on_one_file_system_share_its_room(there: SweepDir, tmp_path: Path) -> None:
    """Also where each of them has enough of it: a sweep's own folder, and that of a further source."""
    with mounted(tmp_path / "disk") as disk:
        home = disk / "results"
        elsewhere = finished_sweep(tmp_path / "else" / "results", "speed", {"seed": [0]}, iterations=3)
        assert command_line(f"{elsewhere.results}/", home).returncode == 0
        assert command_line(f"{there.results}/", home).returncode == 0
        for name, run_id in zip(("one", "two"), sorted(there.run_ids()), strict=True):
            (there.run(run_id).path / name).write_bytes(os.urandom(int(2.2 * MB)))
        for options in (["--dry-run"], []):
            done = command_line(f"{there.results}/", home, *options)
            assert done.returncode == 3, done
            assert "needs 4.61 MB in " in done.stderr
        assert not list(disk.rglob("one"))


@pytest.mark.disk
def test_sweeps_that_fit_one_by_one_are_counted_together(there: SweepDir, tmp_path: Path) -> None:
    """The real sync names the one that no longer fits, after those that came."""
    other = finished_sweep(there.results, "trial", {"seed": [0]}, iterations=2)
    for sweep in (there, other):
        (sweep.path / "big").write_bytes(os.urandom(int(2.5 * MB)))
    with mounted(tmp_path / "disk") as disk:
        done = command_line(f"{there.results}/", disk / "results", "--dry-run")
        assert done.returncode == 3, done
        assert "what is new of trial and of 1 sweep before it needs 5." in done.stderr
        done = command_line(f"{there.results}/", disk / "results")
        assert done.returncode == 3, done
        assert "what is new of trial needs 2.6" in done.stderr
        assert "nothing of it was fetched" in done.stderr
        assert (disk / "results" / "speed" / "big").exists()


@pytest.mark.disk
def test_what_needs_more_inodes_than_there_are_is_refused(there: SweepDir, tmp_path: Path) -> None:
    """With figures; folders take some, too. What is here already takes none."""
    files = sum(path.is_file() for path in there.path.rglob("*"))
    with mounted(tmp_path / "disk", files=100 + files + 10) as disk:
        for options in (["--dry-run"], []):
            done = command_line(f"{there.results}/", disk / "results", *options)
            assert done.returncode == 3, done
            line, hint = done.stderr.splitlines()
            assert " files and folders, but " in line
            assert " inodes free, of which 100 are kept free: nothing of it was fetched" in line
            assert "--run" in hint
        assert not list(disk.rglob("run.json"))
        subprocess.run(["mount", "-o", "remount,nr_inodes=500", disk], check=True)
        assert command_line(f"{there.results}/", disk / "results").returncode == 0
        for run_id in there.run_ids():
            metrics = there.run(run_id).attempt(1).metrics
            os.utime(metrics, (1, 1))
        left = 500 - sum(1 for _ in disk.rglob("*"))
        for number in range(left - 110):
            (disk / str(number)).touch()
        assert command_line(f"{there.results}/", disk / "results").returncode == 0


def test_holes_are_kept(there: SweepDir, tmp_path: Path) -> None:
    with open(there.path / "hole; $(touch harm)", "wb") as file:
        file.truncate(64 * MB)
        file.seek(32 * MB)
        file.write(b"something")
    done = command_line(f"{there.results}/", tmp_path / "results")
    assert (done.returncode, done.stderr) == (0, "")
    came = tmp_path / "results" / "speed" / "hole; $(touch harm)"
    assert came.read_bytes() == (there.path / came.name).read_bytes()
    assert came.stat().st_blocks * 512 < MB
    assert not list(tmp_path.rglob("harm"))


def test_a_silent_rsync_is_told_of(
    there: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It says nothing until this test has seen the lines that tell so."""
    programs, go = tmp_path / "bin", tmp_path / "go"
    programs.mkdir()
    program = programs / "rsync"
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    program.write_text(f'#!/bin/sh\n{wait}\nexec {shutil.which("rsync")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    said: list[str] = []
    monkeypatch.setattr(
        "typer.echo", lambda text, err=False: (said.append(text), len(said) > 2 and go.touch())
    )
    with SyncScreen(beat=0.05) as screen:
        sync(find_source(f"{there.results}/"), tmp_path / "results", SyncOptions(), screen)
    assert said[0] == f"listing {there.results}: 0:00 so far"
    assert "files, " in " ".join(said)


def test_a_bare_folder_is_no_host(there: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(there.results.parent)
    done = command_line("results", "--wandb")
    assert (done.returncode, done.stdout) == (0, "W&B: 0 runs uploaded\n")
    done = command_line("results", "--wandb", "--prune-remote")
    assert done.returncode == 2
    assert "orchestrate sync --wandb results" in done.stderr
    done = command_line("results", "elsewhere")
    assert done.returncode == 3
    assert "the folder of this machine is written ./results" in done.stderr


def test_a_long_transfer_tells_how_far_it_is() -> None:
    from orchestrator.ui.cli.results.sync_progress import ProgressLines

    pulse = ProgressLines(beat=20)
    pulse.expect("speed", 1_000_000)
    began = pulse._began
    assert pulse._line(began + 30).startswith("speed: 0 B of 1 MB; nothing came for 0:30")
    pulse.came(250_000)
    line = pulse._line(pulse._moved + 10)
    assert line.startswith("speed: 250 kB of 1 MB, ")
    assert line.endswith("left")
    pulse.begin("speed: checking 4 runs")
    assert "checking 4 runs: 0:0" in pulse._line(pulse._since + 5)

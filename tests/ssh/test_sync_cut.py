"""A sync that is cut off or killed at any moment: nothing half counts as whole, and the next goes on."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import create_sweep, end_attempt, matrix_runs, publish, result_of, write_attempt
from orchestrator.rundir import SweepDir
from tests.ssh.server import ALIAS, Server

CUTS, KILLS = 20, 8


def big_sweep(results: Path, runs: int, files: int, size: int) -> SweepDir:
    """Finished runs, each with so many random files of about ``size`` bytes in its manifest."""
    generator = random.Random(7)
    described = matrix_runs({"algorithm": ["mappo"], "seed": list(range(runs))})
    sweep = create_sweep(results, "big", described)
    for run in described:
        attempt = sweep.run(run.run_id).attempt(1)
        write_attempt(attempt, [])
        end_attempt(attempt, "done")
        attempt.checkpoints.mkdir()
        paths = [attempt.checkpoint_name(number, "0" * 16) for number in range(files)]
        for path in paths:
            path.write_bytes(generator.randbytes(int(size * generator.uniform(0.5, 1.5))))
        publish(sweep.run(run.run_id), result_of(run, []), [attempt.metrics, *paths])
    return sweep


def contents(folder: Path) -> dict[str, Path]:
    """Every file that is not hidden, by its path."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def assert_nothing_half(there: SweepDir, home: Path) -> None:
    """What has its name here is whole, and a run with a result has all that the result lists."""
    theirs = contents(there.results)
    for name, path in contents(home).items():
        assert path.stat().st_size == theirs[name].stat().st_size, name
    here = SweepDir(home, "big")
    for run_id in here.run_ids():
        result = here.run(run_id).result()
        if result is not None:
            here.run(run_id).verify(result)


def assert_same(there: SweepDir, home: Path) -> None:
    theirs, ours = contents(there.results), contents(home)
    assert sorted(ours) == sorted(theirs)
    for name, path in theirs.items():
        assert ours[name].read_bytes() == path.read_bytes(), name
        assert ours[name].stat().st_mtime_ns == path.stat().st_mtime_ns, name
    left = [path for path in home.rglob(".*") if path.name not in (".synced", ".lock")]
    assert left == []


def slow_rsync(server: Server, kilobytes: int) -> None:
    """The cluster's rsync sends no more than so many kB a second, so that there is time to cut it off."""
    folder = server.folder / "slow"
    folder.mkdir()
    program = folder / "rsync"
    program.write_text(
        f'#!/bin/sh\nshift\nexec {shutil.which("rsync")} --server --bwlimit={kilobytes} "$@"\n'
    )
    program.chmod(0o755)
    server.stop()
    server.start({"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"})


def start() -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def running_after(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.mark.nightly
def test_twenty_cuts_in_100_mb(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    there = big_sweep(server.home / "results", runs=20, files=20, size=250_000)
    assert sum(path.stat().st_size for path in contents(there.results).values()) > 90e6
    slow_rsync(server, 8_000)
    monkeypatch.chdir(server.laptop)
    home, generator, cuts = server.laptop / "results", random.Random(3), 0
    process = start()
    while cuts < CUTS:
        if running_after(process, generator.uniform(0.3, 0.9)):
            cuts += bool(server.cut())
            continue
        _, said = process.communicate(timeout=600)
        assert process.returncode == 3, f"after {cuts} cuts: {said}"
        assert len(said.splitlines()) == 2, said
        assert said.startswith("error: cluster: ")
        assert_nothing_half(there, home)
        process = start()
    process.communicate(timeout=600)
    assert_nothing_half(there, home)
    process = start()
    said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_same(there, home)


def test_killed_at_any_moment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    there = big_sweep(server.home / "results", runs=10, files=4, size=400_000)
    slow_rsync(server, 8_000)
    monkeypatch.chdir(server.laptop)
    home, generator = server.laptop / "results", random.Random(5)
    for _ in range(KILLS):
        process = start()
        if running_after(process, generator.uniform(0.1, 1.5)):
            process.kill()
        process.communicate(timeout=600)
        assert_nothing_half(there, home)
    process = start()
    said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_same(there, home)

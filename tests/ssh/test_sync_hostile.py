"""A source that means harm: nothing is written outside the results folder, nothing started, nobody misled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import finished_sweep
from orchestrator.rundir import SweepDir
from tests import warm
from tests.ssh.server import ALIAS, Server


@pytest.fixture
def there(server: Server, monkeypatch: pytest.MonkeyPatch) -> SweepDir:
    monkeypatch.chdir(server.laptop)
    return finished_sweep(server.home / "results", "speed", {"seed": [0, 1, 2]}, iterations=2)


@pytest.fixture
def home(server: Server) -> SweepDir:
    return SweepDir(server.laptop / "results", "speed")


def sync(code: int = 0, *arguments: str) -> str:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, *arguments]
    env = {**os.environ, **warm.COMMANDS}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def test_links_and_devices_stay_there(there: SweepDir, home: SweepDir, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    run = there.run(there.run_ids()[0])
    (run.path / "etc").symlink_to("/etc")
    (run.path / "notes.txt").symlink_to(secret)
    (run.attempt(1).path / "wandb").mkdir()
    (run.attempt(1).path / "wandb" / "debug.log").symlink_to(secret)  # W&B makes such a one itself
    (there.path / "code" / ("0" * 16) / "tree").mkdir(parents=True)
    (there.path / "code" / ("0" * 16) / "tree" / ".venv").symlink_to(tmp_path)  # as a snapshot has
    (there.path / "scripts").symlink_to(tmp_path)
    (there.results / "other").symlink_to(there.path)
    os.mkfifo(run.attempt(1).path / "pipe")
    said = sync()
    assert "no plain file" in said
    assert "debug.log" not in said
    assert ".venv" not in said
    assert sorted(path.name for path in home.results.iterdir()) == ["speed"]
    found = [
        path for path in home.path.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())
    ]
    assert found == []
    assert not any(path.name in ("etc", "notes.txt", "scripts", "pipe") for path in home.path.rglob("*"))


def test_a_result_in_the_guise_of_a_link(there: SweepDir, home: SweepDir) -> None:
    first, second, third = (there.run(run_id) for run_id in there.run_ids())
    first.result_path.unlink()
    first.result_path.symlink_to(second.result_path)
    metrics = third.attempt(1).metrics
    shutil.move(metrics, third.path / "moved")
    metrics.symlink_to(third.path / "moved")
    assert "but listed in its result" in sync(1)
    assert home.run(first.run_id).result() is None
    assert home.run(third.run_id).result() is None


def test_names_that_could_fool_a_terminal(there: SweepDir, home: SweepDir) -> None:
    run = there.run(there.run_ids()[0])
    odd = {"a\nb", "a\x1b[2Jb", "\x7f", "tab\there", "\x9b2J", "back\\#012slash"}
    for name in odd:
        (run.path / name).write_text("x")
        (there.path / name).write_text("x")
        (there.results / name).mkdir()
    (run.path / "ünd so — weiter").write_text("kept")
    said = sync()
    assert "not fetched" in said
    assert all(character.isprintable() or character == "\n" for character in said)
    names = {path.name for path in home.results.rglob("*")}
    assert not names & odd
    assert "ünd so — weiter" in names


def test_folders_that_are_no_runs_and_no_sweeps(there: SweepDir, home: SweepDir) -> None:
    runs = there.run(there.run_ids()[0]).path.parent
    (there.path / "[a-z]*").write_text("a name that is a pattern")
    for name in ("x", "..x", "-rf", "0" * 15, "A" * 16, "~", "$(touch x)"):
        shutil.copytree(runs / there.run_ids()[0], runs / name)
        shutil.copytree(there.path / "grids", there.results / f"-{name}" / "grids")
    (runs / ("n" * 255)).mkdir()
    sync()
    assert (home.path / "[a-z]*").exists()
    assert home.run_ids() == there.run_ids()
    assert sorted(path.name for path in home.path.glob("runs/*")) == there.run_ids()
    assert sorted(path.name for path in home.results.iterdir()) == ["speed"]


def test_what_only_this_machine_may_write(there: SweepDir, home: SweepDir) -> None:
    run = there.run(there.run_ids()[0])
    for path in (
        there.path / ".synced" / "copy.json",
        there.path / "sources" / "x" / "grids" / "0001.yaml",
        there.path / "uploads.jsonl",
        there.path / "heard" / "x.json",
        run.path / ".partial" / "x",
        run.attempt(1).path / ".x.tmp",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    sync()
    brought = {path.relative_to(home.path).as_posix() for path in home.path.rglob("*") if path.is_file()}
    assert not any(name.startswith(("sources", "uploads", "heard")) or ".partial" in name for name in brought)
    assert not any(name.endswith(".tmp") for name in brought)
    assert (home.path / ".synced" / "copy.json").read_text() != "{}"


def test_each_bad_run_is_named_and_the_others_come(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.laptop)
    there = finished_sweep(server.home / "results", "speed", {"seed": list(range(12))}, iterations=1)
    home = SweepDir(server.laptop / "results", "speed")
    runs = [there.run(run_id) for run_id in there.run_ids()]
    paths = ("attempts/../../x", f"attempts/1/{'n' * 300}", "/".join(["attempts", *["n" * 200] * 40]))
    for run, path in zip(runs, paths, strict=False):
        result = json.loads(run.result_path.read_text())
        result["manifest"].append({"path": path, "sha256": "0" * 64, "bytes": 1, "required": False})
        run.result_path.write_text(json.dumps(result))
    deep = "[" * 100_000
    runs[3].result_path.write_text(deep)
    (runs[4].path / ".absent.json").write_text(deep)
    (runs[5].path / ".absent.json").mkdir()
    runs[6].result_path.unlink()
    runs[6].result_path.mkdir()
    (runs[6].result_path / "x").write_text("{}")
    shutil.rmtree(runs[7].path / "attempts")
    (runs[7].path / "attempts").write_text("")
    runs[8].description_path.unlink()
    runs[8].description_path.mkdir()
    (runs[9].path / "changes").mkdir()
    (runs[9].path / "changes" / "x").write_text("x")
    there.index_path.unlink()
    there.index_path.mkdir()
    for again in range(2):
        said = sync(1)
        named = {run.run_id for run in runs if run.run_id in said}
        assert named == {run.run_id for run in runs[: 9 + again]}, said
        misplaced = {
            line.split("run ")[1][:16] for line in said.splitlines() if "the other way round" in line
        }
        assert misplaced == {run.run_id for run in runs[5:9]}
        assert "speed/index.tsv" in said
        assert max(map(len, said.splitlines())) < 1500
        done = {run_id for run_id in home.run_ids() if home.run(run_id).result() is not None}
        assert done == {run.run_id for run in (runs[5], *runs[8:])}
        if not again:
            shutil.rmtree(runs[9].path / "changes")
            (runs[9].path / "changes").write_text("")
    assert f"{runs[9].run_id}/changes" in sync(1, "--dry-run")
    assert not (home.run(runs[6].run_id).path / "result.json").exists()


def test_a_path_that_is_too_long_for_this_machine(there: SweepDir, home: SweepDir) -> None:
    run = there.run(there.run_ids()[0])
    before = os.getcwd()
    os.chdir(run.path)
    for _ in range(25):
        os.mkdir("n" * 200)
        os.chdir("n" * 200)
    Path("leaf").write_text("x")
    os.chdir(before)
    said = sync(1)
    assert "nnnnnn" in said
    assert max(map(len, said.splitlines())) < 1500
    assert all(home.run(run_id).result() is not None for run_id in there.run_ids())


def test_links_planted_here_before_lead_nowhere(there: SweepDir, home: SweepDir, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "metrics.jsonl").write_text("mine")
    sync()
    first, second, _ = (home.run(run_id) for run_id in home.run_ids())
    for run in (first, second):
        run.result_path.unlink()
    shutil.rmtree(first.attempt(1).path)
    first.attempt(1).path.symlink_to(outside)
    second.attempt(1).metrics.unlink()
    second.attempt(1).metrics.symlink_to(outside / "metrics.jsonl")
    (home.path / ".synced" / "state.json").unlink()
    sync()
    assert [path.name for path in outside.iterdir()] == ["metrics.jsonl"]
    assert (outside / "metrics.jsonl").read_text() == "mine"
    for run in (first, second):
        result = run.result()
        assert result is not None
        run.verify(result, checksums=True)
        assert not run.attempt(1).metrics.is_symlink()


def test_paths_that_a_shell_would_take_for_commands(server: Server, there: SweepDir) -> None:
    odd = server.home / "a b;touch $(x) `y` 'z' \"q\" *"
    shutil.copytree(there.results, odd)
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", f"{ALIAS}:{odd.name}", "out"]
    env = {**os.environ, **warm.COMMANDS}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done
    assert (server.laptop / "out" / "speed" / "index.tsv").exists()
    again = subprocess.run([*argv, "--prune-remote", "--yes"], capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again
    assert not list(odd.glob("speed/runs/*/attempts/1/metrics.jsonl"))
    assert sorted(path.name for path in server.home.iterdir()) == sorted([odd.name, "results"])

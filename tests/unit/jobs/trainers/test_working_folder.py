"""The folder in which each run of a program starts: what is placed there, and what stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.trainers.command import working_folder
from jobs.trainers.command.working_folder import WorkingFolder
from orchestrator.config.code.snapshot import freeze
from orchestrator.rundir import SweepDir
from orchestrator.rundir.files.placed import (
    UNFINISHED,
    is_placed_copy,
    placed_time,
    remove_placed,
    written_files,
)

TRAIN = """
import pathlib, lib.deep, beside
here = pathlib.Path(__file__).resolve().parent
open(here / "agent.pt", "w").write("own")
open("results.csv", "a").write("more")
open("data/new.npz", "w").write("own")
pathlib.Path("runs/a").mkdir(parents=True)
open("runs/a/events", "w").write(open("data/d.txt").read())
"""


def git(folder: Path, *arguments: str) -> None:
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    subprocess.run(argv, check=True, timeout=300)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "train.py": TRAIN,
        "beside.py": "",
        "lib/deep.py": "VALUE = 1",
        "results.csv": "head",
        "sub/train.py": "open('out', 'w').write(open('../data/d.txt').read())",
        ".gitignore": "data\nruns\nagent.pt\nmodels\n",
        "data/d.txt": "data",
        "data/deep/d.txt": "deep",
        "runs/old": "by hand",
        "models/base.pt": "by hand",
        "agent.pt": "by hand",
        ".env": "KEY=1",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


@pytest.fixture
def kept(project: Path, tmp_path: Path) -> Path:
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message=m")
    return freeze(SweepDir(tmp_path / "results", "s"), project).cwd


def contents(folder: Path) -> dict[str, str]:
    files = ((path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file())
    hidden = {"__pycache__", ".git"}
    return {name.as_posix(): path.read_text() for name, path in files if not hidden & set(name.parts)}


def start(folder: WorkingFolder, *arguments: str) -> None:
    argv = [sys.executable, *arguments]
    folder.place(argv)
    subprocess.run(argv, cwd=folder.start, check=True, timeout=300)


@pytest.mark.parametrize("in_git", [True, False])
def test_what_a_program_writes_beside_itself_is_the_runs_own(
    project: Path, tmp_path: Path, request: pytest.FixtureRequest, in_git: bool
) -> None:
    origin = request.getfixturevalue("kept") if in_git else project
    before = contents(project), contents(origin)
    work = tmp_path / "results" / "s" / "runs" / "r" / "work"
    folder = WorkingFolder(work, origin, tmp_path / "results")
    start(folder, "train.py")
    assert (work / "models").is_dir()
    assert not (work / "models" / "base.pt").exists()
    assert (work / ".env").is_symlink()
    folder.clear()
    assert contents(work) == {
        "agent.pt": "own",
        "data/new.npz": "own",
        "results.csv": "headmore",
        "runs/a/events": "data",
    }
    assert sorted(written_files(work)) == sorted(work / name for name in contents(work))
    assert (contents(project), contents(origin)) == before
    folder.place([sys.executable, "train.py", "--init=models/base.pt"])
    assert (work / "results.csv").read_text() == "headmore"  # found again by the next attempt
    assert (work / "models" / "base.pt").read_text() == "by hand"


def test_a_call_in_a_subfolder_finds_the_project_around_it(kept: Path, tmp_path: Path) -> None:
    folder = WorkingFolder(tmp_path / "work", kept / "sub", tmp_path / "results")
    assert folder.start == tmp_path / "work" / "sub"
    start(folder, "train.py")
    folder.clear()
    assert contents(tmp_path / "work") == {"sub/out": "data"}


def test_nothing_stays_of_a_program_that_writes_nothing_even_after_a_kill(kept: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    start(WorkingFolder(work, kept, tmp_path / "results"), "-c", "import lib.deep")
    assert written_files(work) == []
    remove_placed(work)  # as the next attempt does, with nothing but the folder
    assert not work.exists()


def test_a_folder_with_many_files_is_one_link(project: Path, tmp_path: Path) -> None:
    for number in range(201):
        (project / "lib" / f"{number}.txt").touch()
    folder = WorkingFolder(tmp_path / "work", project, tmp_path / "results")
    folder.place(["true"])
    assert (tmp_path / "work" / "lib").is_symlink()
    folder.place([sys.executable, "lib/deep.py"])
    assert not (tmp_path / "work" / "lib").is_symlink()
    assert not (tmp_path / "work" / "lib" / "deep.py").is_symlink()


def test_of_a_very_large_start_folder_the_program_alone_is_placed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_folder, "MOST_AT_START", 8)
    (project / "weights.bin").touch()
    folder = WorkingFolder(tmp_path / "work", project, tmp_path / "results")
    folder.place([sys.executable, "train.py", "weights.bin"])
    expected = {"train.py", "beside.py", "lib", "sub", "data", "weights.bin"}
    assert expected <= {*os.listdir(folder.start)}
    assert "results.csv" not in os.listdir(folder.start)


def test_links_of_the_program_stay(project: Path, tmp_path: Path) -> None:
    folder = WorkingFolder(tmp_path / "work", project, tmp_path / "results")
    folder.place(["true"])
    os.symlink("runs", folder.start / "latest")
    os.symlink(project / "lib", folder.start / "of-project")
    folder.clear()
    assert sorted(os.listdir(tmp_path / "work")) == ["latest", "of-project"]


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1), st.floats(0, 4e9))
def test_copies_are_recognised_by_their_time(name: str, changed: float) -> None:
    name = name.replace("\0", "").encode("utf-8", "replace").decode()
    assert is_placed_copy(name, placed_time(name, changed))
    assert not is_placed_copy(name, 1.5e9)


@pytest.mark.parametrize(
    "command",
    [["a/b/c/train.py"], ["-m", "a.b.c.train"], ["-m", "torch.distributed.run", "a/b/c/train.py"]],
)
def test_a_program_in_a_deep_folder_is_placed(project: Path, tmp_path: Path, command: list[str]) -> None:
    (project / "a" / "b" / "c").mkdir(parents=True)
    (project / "a" / "b" / "c" / "train.py").touch()
    folder = WorkingFolder(tmp_path / "work", project, tmp_path / "results")
    folder.place([sys.executable, *command])
    assert (folder.start / "a" / "b" / "c" / "train.py").is_file()
    assert not (folder.start / "torch").exists()


def test_a_pipe_is_linked_and_a_copy_cut_by_a_kill_is_none(project: Path, tmp_path: Path) -> None:
    os.mkfifo(project / "pipe")
    folder = WorkingFolder(tmp_path / "work", project, tmp_path / "results")
    folder.start.mkdir()
    (folder.start / UNFINISHED).write_text("half")
    assert written_files(folder.start) == []
    folder.place(["true"])
    assert (folder.start / "pipe").is_symlink()
    folder.clear()
    assert not (tmp_path / "work").exists()


def test_no_results_are_placed(project: Path) -> None:
    work = project / "sweep" / "runs" / "r" / "work"
    folder = WorkingFolder(work, project, project)
    folder.place(["true"])
    assert (folder.start / "train.py").is_file()
    assert not (folder.start / "sweep").exists()

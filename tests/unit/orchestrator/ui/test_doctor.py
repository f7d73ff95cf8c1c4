"""The doctor: its findings about this machine and a sweep, and what the command prints of them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result
from typer.testing import CliRunner

from orchestrator.config.backends import SLURM
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import ProfileError
from orchestrator.core.machine.installation import install_here
from orchestrator.core.progress import listening
from orchestrator.ui.doctor import Finding, Verdict, diagnose
from orchestrator.ui.doctor.local_machine import results_folder, space, trainers
from orchestrator.ui.doctor.past_sweep import validated
from tests.helpers import count_runs, make_sweep, submit, work
from tests.libraries import well


def test_the_results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results_folder(tmp_path / "a" / "b").verdict is Verdict.OK
    (tmp_path / "file").touch()
    assert results_folder(tmp_path / "file" / "results").verdict is Verdict.PROBLEM
    assert "cannot be written" in results_folder(Path("/proc/results")).found
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    assert "no hard links" in results_folder(tmp_path).found


@pytest.mark.parametrize(
    ("free", "files", "verdict"),
    [
        (50e9, 10**6, "ok"),
        (3e9, 10**6, "warning"),
        (50e9, 10**4, "warning"),
        (5e7, 10**6, "problem"),
        (50e9, 3, "problem"),
    ],
)
def test_space(
    free: float, files: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_favail=files, f_files=10**7)
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    assert space(tmp_path / "results").verdict.value == verdict
    told.f_files = told.f_favail = 0  # a file system that makes inodes as it needs them
    assert "files" not in space(tmp_path).found


def test_trainers_without_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", absent)
    finding = trainers(Path())
    assert "benchmarl lacks benchmarl, torchrl" in finding.found
    assert finding.fix == install_here("train")


def test_each_check_is_told_before_it_is_made(tmp_path: Path) -> None:
    steps: list[str] = []
    with listening(lambda step, done, total: steps.append(step)):
        for one in diagnose(tmp_path, Profile("local", "built in", backend="local"), probe=well):
            if one.name == "Procgen":
                assert steps[-1] == "checking procgen"
    assert "checking pytorch" in steps


def test_a_sweep_tells_what_no_look_can(tmp_path: Path) -> None:
    """Here by the local target, which is asked for nothing else."""
    local, results = Profile("local", "built in", backend="local"), tmp_path / "results"

    def training() -> Finding:
        found = diagnose(results, local, probe=well)
        return {one.name: one for one in found}["Training in jobs"]

    assert training().verdict is Verdict.NOT_HERE
    sweep = make_sweep(results, count_runs(tmp_path / "audit", 2, steps=3), "validate")
    assert training().verdict is Verdict.NOT_HERE
    submit(sweep)
    assert training().fix == "orchestrate status validate --watch"
    work(sweep)
    assert training().found.startswith("2 runs of sweep validate trained there")
    elsewhere = validated(results, Profile("local", "x", "local"))
    assert elsewhere.verdict is Verdict.OK
    there = Profile("there", "there.yaml", "local")
    fix = validated(results, there).fix
    assert fix is not None
    assert fix.startswith(f"rm -r {sweep.path} && orchestrate sweep")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """What the command line does with arguments of `orchestrate doctor`, typed in ``tmp_path``."""
    from orchestrator.ui.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestrator.ui.doctor.Probing", lambda: nullcontext(well))
    return lambda *arguments: CliRunner().invoke(app, ["doctor", *arguments])


def test_the_command_prints_whole_lines_and_exits_by_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., Result]
) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    for program in SLURM.programs:
        (folder / program).write_text("#!/bin/sh\nexit 1\n")
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (tmp_path / "lab.yaml").write_text("partition: cpu\n")
    said = told("--on", "local")
    assert said.exit_code == 0
    assert "ok        Results folder    " in said.stdout
    said = told("--on", "lab.yaml")
    assert said.exit_code == 3
    assert "problem   Slurm controller  exit code 1\n" in said.stdout
    assert "\x1b" not in said.stdout
    said = told("--on", "lab.yaml", "--json")
    assert said.exit_code == 3
    data = json.loads(said.stdout)
    assert data["problems"] == 1
    assert [one["name"] for one in data["findings"] if one["verdict"] == "problem"] == ["Slurm controller"]
    said = told("--on", "nosuch")
    assert (type(said.exception), said.stdout) == (ProfileError, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.yaml", "slurm"]


def test_lines_fit_a_terminal_and_what_is_to_be_copied_stays_whole() -> None:
    from rich.console import Console

    from orchestrator.ui.cli.setup.doctor import _print

    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    path = "/a/path/" + "x" * 70
    finding = Finding("Setup", Verdict.PROBLEM, f"found {path} in [a] word " + "and more " * 9, "do it " * 20)
    _print(finding, screen)
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert [line.strip() for line in lines if len(line) > 80] == [path]
    assert lines[0] == "problem   Setup             found"
    assert lines[2].startswith(f"{'':28}in [a] word and more")
    assert lines[-2].startswith("          fix: do it")
    assert lines[-1].startswith("               do it")


def test_options_are_these() -> None:
    import typer

    from orchestrator.ui.cli import app

    command = typer.main.get_command(app).commands["doctor"]  # type: ignore[attr-defined]
    assert sorted(option for parameter in command.params for option in parameter.opts) == [
        "--json",
        "--on",
        "--results",
    ]

"""The results folder given as a source, and policies asked of a program: one answer, with what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.helpers import command_run, make_sweep


def typed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", *arguments]
    env = {**os.environ, **warm.COMMANDS}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, cwd=folder)


@pytest.mark.parametrize("source", ["results", "results/", "./results"])
def test_uploading_from_the_results_folder_by_any_of_its_names(tmp_path: Path, source: str) -> None:
    make_sweep(tmp_path / "results", [command_run(["-c", "pass"])])
    done = typed(tmp_path, "sync", "--wandb", source)
    assert (done.returncode, done.stdout, done.stderr) == (0, "W&B: 0 runs uploaded\n", "")


def test_a_sweep_of_the_results_folder_is_no_source(tmp_path: Path) -> None:
    make_sweep(tmp_path / "results", [command_run(["-c", "pass"])])
    done = typed(tmp_path, "sync", "--wandb", "results/tiny")
    assert done.returncode == 2
    assert "orchestrate sync --wandb (of one sweep: --sweep NAME)" in done.stderr


def test_evaluating_programs_is_refused_once(tmp_path: Path) -> None:
    make_sweep(tmp_path / "results", [command_run(["-c", "pass"], seed) for seed in range(3)])
    done = typed(tmp_path, "evaluate", "tiny")
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1
    assert "the runs of tiny are of the trainer 'command'" in done.stderr

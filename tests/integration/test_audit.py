"""`orchestrate audit` on programs that resume exactly and on such that leave one thing out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PATIENCE_S, ROOT

PROGRAMS = ROOT / "tests" / "commands" / "audit"
GRID = """\
name: audited
trainer: command
base:
  command: [{python}, {program}.py, --seed, "{{seed}}", --steps, "{{steps}}", --omit, "{{omit}}"]
  omit: {omit}
  steps: 100
matrix: {{seed: range(2)}}
"""
# What is left out, by program, with how the audit names it.
LEFT_OUT = {
    ("evolution", "generator"): "random generator generator",
    ("evolution", "sigma"): "exploration schedule sigma",
    ("evolution", "momentum"): "variable momentum",
    ("evolution", "best"): "best or early-stopping state best",
    ("dqn", "python_random"): "Python's random state random",
    ("dqn", "numpy_random"): "NumPy's random state numpy.random",
    ("dqn", "rb"): "replay memory rb",
    ("dqn", "pos"): "replay memory's position rb.pos",
    ("dqn", "epsilon"): "exploration schedule epsilon",
    ("dqn", "target_network"): "target network target_network",
    ("dqn", "env_rng"): "random generator of the environment env.np_random",
    ("dqn", "env"): "episode in progress env",
    ("dqn", "obs"): "observation carried over obs",
    ("dqn", "episode"): "episode in progress episode",
    ("dqn", "counters"): "step counter counters['since_target']",
    ("ppo", "torch_rng"): "PyTorch's random state torch",
    ("ppo", "optimizer"): "optimizer optimizer",
    ("ppo", "scheduler"): "learning-rate schedule scheduler",
    ("ppo", "obs_rms"): "observation normaliser obs_rms",
    ("ppo", "return_rms"): "return normaliser return_rms",
    ("sb3_like", "cursor"): "sampler's cursor model.cursor",
    ("sb3_like", "n_updates"): "step counter model.n_updates",
    ("sb3_like", "rng"): "random generator model.rng",
    ("sac", "memory"): "replay memory memory.rows",
    ("sac", "q_target"): "target network agent.q_target",
    ("sac", "log_alpha"): "exploration schedule agent.log_alpha",
}
EXACT = ("evolution", "dqn", "ppo", "sb3_like", "sac")
# Checked with each commit: it starts fast.
SOON = ("evolution", "none")


def orchestrate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.ui.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def written(folder: Path, program: str, omit: str) -> Path:
    for path in PROGRAMS.glob("*.py"):
        shutil.copy(path, folder)
    grid = folder / "grid.yaml"
    grid.write_text(GRID.format(python=sys.executable, program=program, omit=omit))
    return grid


def audited(folder: Path, program: str, omit: str) -> dict[str, Any]:
    grid = written(folder, program, omit)
    done = orchestrate(folder, "audit", grid.name, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == int(found["verdict"] != "exact")
    return found


@pytest.mark.parametrize(
    ("program", "omit"),
    [
        pytest.param(*case, marks=[] if case == SOON else [pytest.mark.nightly])
        for case in (*((program, "none") for program in EXACT), *LEFT_OUT)
    ],
)
def test_what_a_program_leaves_out_is_found_and_named(tmp_path: Path, program: str, omit: str) -> None:
    found = audited(tmp_path, program, omit)
    assert 1 <= len(found["kills"]) <= 3
    if omit == "none":
        assert (found["verdict"], found["left_out"]) == ("exact", [])
        return
    assert found["verdict"] == "not exact"
    assert found["differences"][0]["frames"] > found["kills"][0]
    named = [f"{one['kind']} {one['name']}" for one in found["left_out"]]
    assert LEFT_OUT[program, omit] in named[:2]
    assert len(named) <= 3, named


def test_the_verdict_is_kept_and_a_program_that_declares_more_is_warned_of(tmp_path: Path) -> None:
    grid = written(tmp_path, "evolution", "sigma")
    said = orchestrate(tmp_path, "audit", grid.name).stdout
    assert "not exact: killed at" in said
    assert "exploration schedule sigma: " in said
    checked = orchestrate(tmp_path, "check", grid.name)
    assert 'the program declares exactness="exact", but its audit found it not exact' in checked.stderr
    program = tmp_path / "evolution.py"
    program.write_text(program.read_text().replace("0.999", "0.998"))
    assert "audit found" not in orchestrate(tmp_path, "check", grid.name).stderr


def test_a_program_that_differs_by_itself_is_not_deterministic(tmp_path: Path) -> None:
    grid = written(tmp_path, "evolution", "none")
    program = tmp_path / "evolution.py"
    program.write_text(program.read_text().replace("default_rng(args.seed)", "default_rng()"))
    done = orchestrate(tmp_path, "audit", grid.name)
    assert done.returncode == 1
    assert "not deterministic: two uninterrupted runs differ" in done.stdout
    assert "return from 1 frames on" in done.stdout


def test_a_program_without_checkpoints_is_told_the_three_lines(tmp_path: Path) -> None:
    grid = written(tmp_path, "evolution", "none")
    (tmp_path / "evolution.py").write_text(
        "with open('metrics.csv', 'w') as file:\n"
        "    print('frames,return', '1,2.0', '2,3.0', sep='\\n', file=file)\n"
    )
    done = orchestrate(tmp_path, "audit", grid.name)
    assert done.returncode == 2
    assert "the run wrote no checkpoint before its end at 2 frames" in done.stderr
    assert "run.resume(" in done.stderr


def test_a_run_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    grid = written(tmp_path, "evolution", "none")
    (tmp_path / "evolution.py").write_text("raise ValueError('no such game')\n")
    done = orchestrate(tmp_path, "audit", grid.name)
    assert done.returncode == 2
    assert "no such game" in done.stderr

"""The project's own grids and batch scripts: their keys and values are right, and both name the same runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from pkgutil import resolve_name

import pytest

from benchmarks import returns
from jobs.check import Problem
from jobs.hydra.overrides import runs_of
from jobs.training.games.procgen import GAMES
from orchestrator.config.sweep import load_sweep
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Sweep
from tests.helpers import ROOT

GRIDS = sorted(path.stem for path in (ROOT / "sweeps").glob("*.yaml"))


def grid(name: str) -> Sweep:
    return load_sweep(ROOT / f"sweeps/{name}.yaml")


def first_look(sweep: Sweep) -> list[Problem]:
    """What `check` says of names, keys and values, before it builds anything."""
    found = resolve_name(get_trainer(sweep.trainer).first_look)(sweep.runs)
    return list(found)


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_is_right_and_named_as_its_file(name: str) -> None:
    sweep = grid(name)
    assert (sweep.name, first_look(sweep)) == (name, [])
    assert sweep.runs


@pytest.mark.parametrize("trainer", returns.PUBLISHED)
def test_returns_beside_published_ones_are_of_five_seeds_each(
    trainer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, published = grid(f"returns_{trainer}").runs, returns.PUBLISHED[trainer]
    assert Counter(run.overrides["task"] for run in runs) == dict.fromkeys(published, 5)
    behind = {task: [value - returns.MARGINS[task] - 1] for task, value in published.items()}
    assert list(returns.compared(trainer, {task: [value] for task, value in published.items()})) == [True] * 3
    assert list(returns.compared(trainer, behind)) == [False] * 3
    assert "not met" in capsys.readouterr().out


def test_a_wrong_key_would_be_found(tmp_path: Path) -> None:
    for name in ("procgen_impala", "multiwalker"):
        text = f"extends: {ROOT}/sweeps/{name}.yaml\nname: wrong\nbase: {{no_such_key: 1}}\n"
        (tmp_path / "wrong.yaml").write_text(text)
        [found] = first_look(load_sweep(tmp_path / "wrong.yaml"))
        assert found.key == "no_such_key"


@pytest.mark.parametrize(("name", "trainer"), [("procgen_all", "ppo"), ("procgen_all_impala", "impala")])
def test_all_games_are_trained_in_one_process_and_in_four(name: str, trainer: str) -> None:
    sweep = grid(name)
    assert sweep.trainer == trainer
    sizes = Counter((run.overrides["task"], run.overrides["mode"]) for run in sweep.runs)
    assert sizes == {(f"procgen/{game}", mode): 3 for game in GAMES for mode in ("sequential", "parallel")}


def test_the_small_grid_names_all_games_to_choose_from() -> None:
    text = (ROOT / "sweeps/procgen.yaml").read_text()
    assert all(text.count(f"- procgen/{game}\n") == 1 for game in GAMES)


@pytest.mark.parametrize(
    ("script", "trainer", "name"),
    [
        ("bench_multiwalker", "", "multiwalker"),
        ("bucket_brigade", "", "bucket_brigade"),
        ("procgen", "", "procgen"),
        ("procgen", "impala", "procgen_impala"),
    ],
)
def test_a_batch_script_trains_the_runs_of_its_grid(
    script: str, trainer: str, name: str, tmp_path: Path
) -> None:
    """What it would start is printed by a ``python`` that does nothing else."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    own = {"PATH": f"{python.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
    environment = {**os.environ, **own, **({"TRAINER": trainer} if trainer else {})}
    done = subprocess.run(
        ["bash", f"launch/{script}.sh"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    sweep = grid(name)
    options, (started, *overrides) = done.stdout.split()[:7], done.stdout.split()[7:]
    assert options == ["-P", "-m", "jobs.train", "--results", "results", "--sweep", name]
    assert started == sweep.trainer
    listed = {run.run_id for run in sweep.runs if run.overrides.get("steps") != 1_000_000}
    assert {run.run_id for run in runs_of(get_trainer(started), overrides)} == listed

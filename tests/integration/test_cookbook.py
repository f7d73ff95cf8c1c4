"""docs/cookbook.md: each grid is checked, and its commands are typed where they take seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.check import check_sweep
from orchestrator.config.sweep import load_sweep
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run, Sweep
from orchestrator.rundir import SweepDir
from tests.helpers import PATIENCE_S, ROOT, make_sweep, work
from tests.warm import WORKERS

PAGE = (ROOT / "docs" / "cookbook.md").read_text()
FILE = re.compile(
    r"^```yaml\n# (?P<name>[\w-]+\.yaml)(?:: (?P<runs>\d+) runs)?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
COMMANDS = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RECIPES = PAGE.split("\n## ")[1:]
# What makes a run one of seconds: keys that it gets, and sizes of the grid's own that it loses.
SHORT = {
    "benchmarl": {"experiment": "debug", "experiment.max_n_frames": 200, "experiment.evaluation": False},
    "ppo": {"steps": 64, "envs": 4, "rollout_steps": 16, "batch_size": 64, "evaluation_episodes": 1},
    "impala": {"steps": 64, "envs": 8, "rollout_steps": 8, "evaluation_interval": 0},
}
SIZES = re.compile(
    r"experiment\.(max_n_frames|evaluation_interval|on_policy_n_.*)|minutes|evaluation_interval"
)


def save(folder: Path, text: str = PAGE) -> Iterator[tuple[str, int]]:
    """Write the page's grids to a folder; their names, and the runs that the page says."""
    for found in FILE.finditer(text):
        (folder / found["name"]).write_text(found["text"])
        if found["runs"]:
            yield found["name"], int(found["runs"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_nineteen_and_each_has_a_grid_and_a_command() -> None:
    assert len(RECIPES) == 19
    for recipe in RECIPES:
        title = recipe.partition("\n")[0]
        assert FILE.search(recipe), title
        assert COMMANDS.search(recipe), title
    assert len(FILE.findall(PAGE)) == PAGE.count("```yaml")


def test_every_grid_has_as_many_runs_as_the_page_says(folder: Path) -> None:
    for name, runs in save(folder):
        assert len(load_sweep(Path(name)).runs) == runs, name


def test_more_seeds_are_new_runs_and_the_same_old_ones(folder: Path) -> None:
    assert [*save(folder)]
    few, many = (load_sweep(Path(f"{count}-seeds.yaml")) for count in ("three", "eight"))
    assert {run.run_id for run in few.runs} < {run.run_id for run in many.runs}
    assert few.name == many.name


@pytest.mark.nightly(but=["ppo"])
@pytest.mark.parametrize("trainer", ["benchmarl", "ppo", "impala"])
def test_every_grid_is_one_that_its_trainer_takes(folder: Path, trainer: str) -> None:
    """All in one process: to load a trainer takes longer than to check."""
    sweeps: list[Sweep] = [load_sweep(Path(name)) for name, _ in save(folder)]
    runs = {run.run_id: run for sweep in sweeps if sweep.trainer == trainer for run in sweep.runs}
    every = next(sweep for sweep in sweeps if sweep.trainer == trainer)
    report = check_sweep(replace(every, runs=tuple(runs.values()), targets=("cpu",)))
    assert [f"{one.key}: {one.message}" for one in report.problems] == []
    assert report.points == len(runs) > 0


def shortened(run: Run) -> Run:
    kept = {key: value for key, value in run.overrides.items() if not SIZES.fullmatch(key)}
    return get_trainer(run.trainer).identify({**kept, **SHORT[run.trainer]}, run.seed, threads=1)


@pytest.mark.nightly
def test_a_run_of_every_grid_trains(folder: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each grid's algorithm, task and keys, but not its sizes. Programs have tests of their own."""
    for name, value in WORKERS.items():
        monkeypatch.setenv(name, value)
    sweeps = [load_sweep(Path(name)) for name, _ in save(folder)]
    short = {
        run.run_id: run for sweep in sweeps if sweep.trainer in SHORT for run in [shortened(sweep.runs[-1])]
    }
    assert len(short) > 10
    sweep = make_sweep(results, short.values())
    work(sweep)
    untrained = [one.point for run_id, one in short.items() if sweep.run(run_id).result() is None]
    assert untrained == []


def typed(folder: Path, line: str) -> str:
    program, *arguments = line.split()
    assert program == "orchestrate"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.ui.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.mark.nightly
def test_a_program_of_ones_own_trains_as_the_page_says(folder: Path) -> None:
    shutil.copy(ROOT / "examples/program/train.py", folder)
    (recipe,) = (one for one in RECIPES if one.startswith("A program of mine"))
    assert [*save(folder, recipe)]
    for line in COMMANDS.findall(recipe)[0].splitlines():
        typed(folder, line)
    sweep = SweepDir(folder / "results", "hill")
    assert len([run for run in map(sweep.run, sweep.run_ids()) if run.result()]) == 2


@pytest.mark.nightly
def test_what_is_trained_counts_in_longer_runs_in_other_trees_and_in_branches(folder: Path) -> None:
    lab = folder / "lab"
    for place in (lab, folder):
        place.mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples/program/train.py", place)
        assert [*save(place, PAGE.replace("/lab/results", str(lab / "results")))]
    recipes = {text.partition("\n")[0]: text for text in RECIPES}

    def said(title: str, place: Path = folder) -> list[str]:
        return [typed(place, line) for line in COMMANDS.findall(recipes[title])[0].splitlines()]

    assert "6 runs go on from 6 shorter ones: 0.12 M of 0.24 M frames" in said("Train longer", lab)[1]
    assert f"6 of 9 runs are in the library {lab}/results" in said("Do not train what the lab has")[0]
    trained, compared = said("Branch from here")
    assert "12 runs waiting for 6 runs to fork from, trained first" in trained
    assert "paired by common prefix and seed, 6 pairs" in compared


@pytest.mark.nightly
def test_what_goes_to_a_cluster_is_planned_as_the_page_says(folder: Path) -> None:
    shutil.copy(ROOT / "examples/program/train.py", folder)
    runs = dict(save(folder))
    lines = [line for block in COMMANDS.findall(PAGE) for line in block.splitlines() if "--dry-run" in line]
    assert len(lines) == 5
    for line in lines:
        (name,) = re.findall(r"--grid (\S+)", line)
        said = typed(folder, line)
        assert "#SBATCH" in said
        assert load_sweep(Path(name)).name in said
        assert runs[name] > 0
    assert not (folder / "results").exists()


def test_every_other_command_is_one_that_exists() -> None:
    """They are those of pages with tests of their own; here their words are compared with the program's."""
    from orchestrator.ui.cli import app

    known = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    for block in COMMANDS.findall(PAGE):
        for line in block.splitlines():
            assert line.split()[1] in known, line

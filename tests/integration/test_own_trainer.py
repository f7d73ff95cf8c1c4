"""examples/my-trainer, the trainer that docs/trainer.md shows: checked, swept, killed, resumed, evaluated."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrator.rundir import RunDir, SweepDir
from tests import warm
from tests.helpers import ROOT, running, wait_for
from tests.resuming import bits

EXAMPLE = ROOT / "examples" / "my-trainer"
PAGE = ROOT / "docs" / "trainer.md"
GRID = """\
name: cartpole
trainer: cartpole
base: {frames: 2048, rollout: 256, batch_size: 64, epochs: 2, evaluation_interval: 512, lr: LR}
"""
STEP = "        steps, ended = [], False\n"
# Start actors in the 6th iteration, end one of them, report the others, and stay there; the next attempt
# does not.
HOLD = (
    STEP
    + """\
        self.iterations = getattr(self, "iterations", 0) + 1
        if self.iterations == 6 and (hold := os.environ.get("HOLD")) and not os.path.lexists(hold):
            contexts = [multiprocessing.get_context(how) for how in ("fork", "spawn", "fork")]
            actors = [context.Process(target=time.sleep, args=(600,)) for context in contexts]
            for actor in actors:
                actor.start()
            actors[2].terminate()
            actors[2].join()
            os.symlink(" ".join(str(actor.pid) for actor in actors[:2]), hold)
            signal.pause()
"""
)
FIRST_IMPORT = "import gymnasium\n"
OTHERS = '    frames=("frames",),\n'
IMPORTS = f"import multiprocessing, os, signal, time\n{FIRST_IMPORT}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example as an installed package, with a place to hold a run."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    metadata = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / "my_trainer-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {metadata['name']}\nVersion: 1\n")
    ((group, points),) = metadata["entry-points"].items()
    (about / "entry_points.txt").write_text(f"[{group}]\ncartpole = {points['cartpole']}\n")
    module = folder / "my_trainer" / "learner.py"
    assert module.read_text().count(STEP) == 1
    code = module.read_text().replace(STEP, HOLD).replace(FIRST_IMPORT, IMPORTS)
    module.write_text(code)
    return folder


def start(project: Path, *arguments: str, lr: str = "0.001", **more: str) -> subprocess.Popen[str]:
    (project / "grid.yaml").write_text(GRID.replace("LR", lr))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator.ui.cli", *arguments],
        cwd=project,
        env={**os.environ, **warm.WORKERS, "PYTHONPATH": f"{project}{os.pathsep}{ROOT}", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(process: subprocess.Popen[str]) -> str:
    printed = process.communicate(timeout=600)[0]
    assert process.returncode == 0, printed
    return printed


def only(results: Path) -> RunDir:
    sweep = SweepDir(results, "cartpole")
    (run_id,) = sweep.run_ids()
    return sweep.run(run_id)


@pytest.mark.nightly
def test_killed_and_resumed_it_is_what_it_would_have_been(project: Path) -> None:
    hold = project / "held"
    first = start(project, "sweep", "--grid", "grid.yaml", HOLD=str(hold))
    actors = wait_for(lambda: hold.is_symlink() and os.readlink(hold)).split()
    first.kill()
    (worker,) = SweepDir(project / "results", "cartpole").read_journals()
    assert worker.holder is not None
    assert all(running(int(actor)) for actor in actors)
    os.kill(worker.holder.pid, signal.SIGKILL)
    first.communicate(timeout=600)
    wait_for(lambda: not any(running(int(actor)) for actor in actors), timeout=10, what="the actors' end")
    run = only(project / "results")
    assert [file.frames for file in run.checkpoints()] == [1024, 512]
    done(start(project, "sweep", "--grid", "grid.yaml"))
    done(start(project, "sweep", "--grid", "grid.yaml", "--results", "whole"))
    whole = only(project / "whole")
    assert [len(run.attempts()), len(whole.attempts())] == [2, 1]
    rows = [[(row.frames, bits(row.metrics)) for row in one.history()] for one in (run, whole)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 8
    result = run.result()
    assert result is not None
    assert (result.frames, result.fields["exactness"], result.fields["versions"]["my-trainer"]) == (
        2048,
        "exact",
        "1",
    )
    assert run.checkpoints()[0].frames == 2048
    run.verify(result, checksums=True)
    assert "policies on CartPole-v1: 10 episodes" in done(start(project, "evaluate", "cartpole"))
    assert "100 episodes" in done(start(project, "evaluate", "cartpole", "--best"))
    done(start(project, "collect", "cartpole"))


def test_a_loop_of_its_own_as_on_the_page(project: Path) -> None:
    (loop,) = re.findall(r"```python\n([^`]*def train\(context\):\n.*?)```", PAGE.read_text(), re.DOTALL)
    ends = 'Outcome(state["frames"], '
    assert loop.count(ends) == 1
    as_float = loop.replace(ends, 'Outcome(1.0 * state["frames"], ')  # as from a count in 1e6 frames
    (project / "my_trainer" / "own_loop.py").write_text(as_float)
    description = project / "my_trainer" / "__init__.py"
    text = description.read_text()
    assert text.count(OTHERS) == 1
    description.write_text(text.replace(OTHERS, f"{OTHERS}    train='my_trainer.own_loop:train',\n"))
    done(start(project, "sweep", "--grid", "grid.yaml"))
    result = only(project / "results").result()
    assert result is not None
    assert (result.frames, result.final_return) == (2100, None)


def test_its_check_refuses_a_value(project: Path) -> None:
    process = start(project, "check", "grid.yaml", lr="-1")
    printed = process.communicate(timeout=600)[0]
    assert "grid.yaml:3:" in printed
    assert "lr: found -1" in printed
    assert process.returncode == 2


def test_its_presets_stand_for_keys(project: Path) -> None:
    """They need none of the keys that those of the built-in trainers have."""
    description = project / "my_trainer" / "__init__.py"
    presets = "presets={'quick': {'frames': 512}, 'wrong': {'lr': -1.0}}"
    description.write_text(description.read_text().replace(OTHERS, f"{OTHERS}    {presets},\n"))
    grid = project / "own.yaml"
    grid.write_text("name: own\ntrainer: cartpole\nbase: {rollout: 256}\nmatrix: {preset: [quick, wrong]}\n")
    process = start(project, "check", "own.yaml")
    printed = process.communicate(timeout=600)[0]
    assert "lr: found -1" in printed
    assert process.returncode == 2
    grid.write_text("name: own\ntrainer: cartpole\nbase: {rollout: 256, preset: quick}\n")
    assert "frames=512 rollout=256" in done(start(project, "sweep", "own.yaml", "--dry-run"))
    grid.write_text("name: own\ntrainer: cartpole\nbase: {preset: slow}\n")
    printed = start(project, "check", "own.yaml").communicate(timeout=600)[0]
    assert "own.yaml:3:8: preset: found 'slow', expected one of quick, wrong" in printed


def test_the_page_shows_parts_of_the_example_as_they_are() -> None:
    example = "\n".join(file.read_text() for file in EXAMPLE.rglob("*") if file.suffix in (".py", ".toml"))
    shown = PAGE.read_text().partition("## A loop of your own")[0]
    parts = re.findall(r"```(?:python|toml)\n(.*?)```", shown, re.DOTALL)
    assert len(parts) == 3
    for part in parts:
        assert part in example

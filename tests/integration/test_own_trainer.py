"""examples/my-trainer, the trainer that docs/trainer.md shows: checked, swept, killed and resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrator.rundir import RunDir, SweepDir
from tests.helpers import ROOT, running, wait_for

EXAMPLE = ROOT / "examples" / "my-trainer"
GRID = "name: hill\ntrainer: hill\nbase: {frames: 4000, speed: SPEED}\n"
STEP = "        iteration += 1\n"
# Start actors in the 25th iteration, end one of them, report the others, and stay there; the next attempt
# does not.
HOLD = (
    STEP
    + """\
        if iteration == 25 and (hold := os.environ.get("HOLD")) and not os.path.lexists(hold):
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
IMPORTS = "import multiprocessing, os, random, signal, time\n"


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
    (about / "entry_points.txt").write_text(f"[{group}]\nhill = {points['hill']}\n")
    module = folder / "my_trainer" / "climbing.py"
    assert STEP in module.read_text()
    code = module.read_text().replace(STEP, HOLD).replace("import random\n", IMPORTS)
    module.write_text(code)
    return folder


def start(project: Path, *arguments: str, speed: str = "1.0", **more: str) -> subprocess.Popen[str]:
    (project / "grid.yaml").write_text(GRID.replace("SPEED", speed))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator.ui.cli", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}{os.pathsep}{ROOT}", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(process: subprocess.Popen[str]) -> str:
    printed = process.communicate(timeout=600)[0]
    assert process.returncode == 0, printed
    return printed


def only(results: Path) -> RunDir:
    sweep = SweepDir(results, "hill")
    (run_id,) = sweep.run_ids()
    return sweep.run(run_id)


def test_killed_and_resumed_it_is_what_it_would_have_been(project: Path) -> None:
    hold = project / "held"
    first = start(project, "sweep", "--grid", "grid.yaml", HOLD=str(hold))
    actors = wait_for(lambda: hold.is_symlink() and os.readlink(hold)).split()
    first.kill()
    (worker,) = SweepDir(project / "results", "hill").read_journals()
    assert worker.holder is not None
    assert all(running(int(actor)) for actor in actors)
    os.kill(worker.holder.pid, signal.SIGKILL)
    first.communicate(timeout=600)
    wait_for(lambda: not any(running(int(actor)) for actor in actors), timeout=10, what="the actors' end")
    run = only(project / "results")
    assert [file.frames for file in run.checkpoints()] == [2000, 1000]
    done(start(project, "sweep", "--grid", "grid.yaml"))
    done(start(project, "sweep", "--grid", "grid.yaml", "--results", "whole"))
    whole = only(project / "whole")
    assert [len(run.attempts()), len(whole.attempts())] == [2, 1]
    rows = [[(row.frames, dict(row.metrics)) for row in one.history()] for one in (run, whole)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 40
    result = run.result()
    assert result is not None
    assert (result["frames"], result["exactness"], result["versions"]["my-trainer"]) == (4000, "exact", "1")
    assert [file.frames for file in run.checkpoints()] == [4000]
    run.verify(result, checksums=True)


def test_its_check_refuses_a_value(project: Path) -> None:
    process = start(project, "check", "grid.yaml", speed="11.0")
    assert "grid.yaml:3:" in process.communicate(timeout=600)[0]
    assert process.returncode == 2


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "trainer.md").read_text()
    for name in ("my_trainer/__init__.py", "my_trainer/climbing.py", "pyproject.toml"):
        assert f"\n{(EXAMPLE / name).read_text()}```\n" in page, name

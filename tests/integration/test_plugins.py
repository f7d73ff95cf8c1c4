"""A plug-in from a folder, and from an installed package: checked, trained by a sweep, told when stale."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.script import Script
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.control import submit
from orchestrator.planning.plan import AS_USUAL
from orchestrator.rundir import SweepDir
from tests import warm
from tests.helpers import submit_sweep

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "my-marl"
DOCS = ROOT / "docs" / "tasks.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of a user's with the example in it."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


def orchestrate(folder: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", *arguments],
        cwd=folder,
        env={**os.environ, **warm.WORKERS, **({"PYTHONPATH": str(path)} if path else {})},
        capture_output=True,
        text=True,
        timeout=600,
    )


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def results(project: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in project.glob("results/corridor/runs/*/result.json")]


def told(project: Path, path: Path | None = None) -> list[str]:
    """What `check` finds wrong, without the places."""
    done = orchestrate(project, "check", "corridor.yaml", "--json", path=path)
    assert done.returncode in (0, 2), done.stderr
    return [problem["message"] for problem in json.loads(done.stdout)["problems"]]


def states(project: Path, path: Path | None = None) -> set[str]:
    done = orchestrate(project, "status", "corridor", "--json", path=path)
    return {run["state"] for run in json.loads(done.stdout)[0]["runs"]}


def test_a_folder_named_in_the_grid(project: Path) -> None:
    assert told(project) == []
    done = orchestrate(project, "sweep", "--grid", "corridor.yaml")
    assert done.returncode == 0, done.stderr + done.stdout
    found = results(project)
    assert [result["exactness"] for result in found] == ["exact"] * 4
    assert {result["config"]["choices"]["model"] for result in found} == {"layers/scaled_mlp"}
    assert {result["config"]["algorithm"].get("price") for result in found} == {None, 0.1}
    assert states(project) == {"done"}
    (project / "my_marl" / "__pycache__").mkdir(exist_ok=True)
    (project / "my_marl" / "__pycache__" / "more.pyc").write_bytes(b"")
    assert states(project) == {"done"}
    edit(project / "my_marl" / "conf" / "task" / "corridor" / "meet.yaml", "length: 10", "length: 11")
    assert states(project) == {"stale"}


CALLBACK = """
import os, signal
from pathlib import Path
from benchmarl.experiment import Callback

FILE = Path(os.environ.get("ORCHESTRATE_SUBMIT_DIR", "."), "tally")

class Tally(Callback):
    count = 0

    def on_batch_collected(self, batch):
        self.count += 1
        with FILE.open("a") as file:
            file.write(f"{self.count}\\n")
        if self.count == 2 and FILE.read_text() == "1\\n2\\n":
            os.kill(os.getpid(), signal.SIGKILL)

    def on_state_dict(self, state):
        state["tally"] = self.count

    def on_load_state_dict(self, state):
        self.count = state["tally"]
"""


@pytest.mark.nightly
def test_callbacks_of_a_plugin_keep_their_state_in_checkpoints(project: Path) -> None:
    (project / "my_marl" / "tally.py").write_text(CALLBACK)
    file = project / "my_marl" / "__init__.py"
    edit(
        file, "plugin = Plugin(\n", "from my_marl.tally import Tally\nplugin = Plugin(callbacks=[Tally()],\n"
    )
    grid = "algorithm: ippo\n  experiment.checkpoint_interval: 200\nmatrix:\n  seed: [0]\n"
    text = (project / "corridor.yaml").read_text()
    (project / "corridor.yaml").write_text(text.partition("matrix:")[0] + "  " + grid)
    assert any("expected subclasses of BenchMARL's Callback" in message for message in told(project))
    edit(file, "Tally()", "Tally")
    done = orchestrate(project, "sweep", "--grid", "corridor.yaml")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (project / "tally").read_text().split() == ["1", "2", "2"]  # killed in the second, done again


@pytest.mark.nightly
def test_an_installed_package(project: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", site, project], check=True, capture_output=True)
    shutil.rmtree(project / "my_marl")
    edit(project / "corridor.yaml", "plugins: ./my_marl", "plugins: my_marl")
    edit(project / "corridor.yaml", "seed: range(2)", "seed: [0]")
    assert "no installed package has it as an entry point" in told(project)[0]
    assert told(project, site) == []
    done = orchestrate(project, "sweep", "--grid", "corridor.yaml", path=site)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [result["exactness"] for result in results(project)] == ["exact"] * 2
    assert states(project, site) == {"done"}
    edit(site / "my_marl" / "thrifty_ippo.py", "self.price = price", "self.price = 2 * price")
    assert states(project, site) == {"stale"}


@pytest.mark.nightly
def test_faults_of_plugins_are_told_with_their_place(project: Path) -> None:
    grid = project / "corridor.yaml"
    edit(grid, "task: corridor/meet\n", "task.lenght: 3\n")
    edit(grid, "matrix:\n", "matrix:\n  task: [corridor/meet, corridor/met]\n")
    done = orchestrate(project, "check", "corridor.yaml")
    assert "did you mean corridor/meet?" in done.stdout + done.stderr
    assert "did you mean task.length?" in done.stdout + done.stderr
    edit(grid, "task.lenght: 3", "task.length: 1")
    assert any("task.length: found 1, expected 2 or more" in message for message in told(project))
    edit(project / "my_marl" / "scaled_mlp.py", "class ScaledMlp(Mlp):", "class ScaledMlp(Mpl):")
    done = orchestrate(project, "check", "corridor.yaml")
    assert "scaled_mlp.py:12: NameError: name 'Mpl' is not defined" in done.stdout + done.stderr
    assert "corridor.yaml:8:1: plug-in my_marl" in done.stdout + done.stderr


def test_the_page_shows_parts_of_the_example_as_they_are() -> None:
    files = [file for file in EXAMPLE.rglob("*") if file.suffix in (".py", ".toml", ".yaml")]
    example = "\n".join(file.read_text() for file in files)
    own = DOCS.read_text().partition("## Your own")[2]
    parts = re.findall(r"```(?:python|toml|yaml)\n(.*?)```", own, re.DOTALL)
    assert len(parts) == 3
    for part in parts:
        assert part in example


def test_the_grids_on_the_page_can_be_read() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    grids = [block for block in blocks if "\ntrainer: " in block]
    sweeps = [runs_of(parse_grid(grid, "grid.yaml")) for grid in grids]
    assert [len(sweep.runs) for sweep in sweeps] == [6, 1, 30, 4]


def test_a_job_that_replaces_another_has_its_plugins(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all that is known is the grid as it was recorded, far from the plug-in's folder."""
    monkeypatch.chdir(project)
    sweep, sweep_dir = load_sweep(Path("corridor.yaml")), SweepDir(project / "results", "corridor")
    backend = Nobody()
    first = submit_sweep(sweep, sweep_dir, backend).plan
    assert [job.plugins for job in first.jobs] == [sweep.plugins]
    recorded = load_sweep(sweep_dir.latest_grid_path())
    assert recorded.plugins != sweep.plugins
    second = submit.resubmit(recorded, sweep_dir, backend, AS_USUAL).plan
    assert [job.plugins for job in second.jobs] == [sweep.plugins]


class Nobody(LocalBackend):
    """Takes jobs, and they end at once without a word."""

    def submit(self, script: Script, after: Sequence[str] = ()) -> Mapping[str, str]:
        ids = super().submit(replace(script, text="true"))
        os.waitpid(self._children.pop(), 0)
        return ids

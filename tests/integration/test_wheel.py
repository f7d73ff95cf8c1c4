"""The wheel in an environment of its own, far from the clone: what a person gets who has no clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.wheels import ROOT, build_wheel

GRID = """
name: wheel
trainer: command
base: {command: [python, program.py, audit, "2", "0"]}
matrix: {seed: range(2)}
"""
PROGRAM = (ROOT / "tests" / "commands" / "count.py").read_text()
WHERE = """
import json, importlib.metadata, jobs, orchestrator
from orchestrator.core.machine import installation
from orchestrator.core.machine import package_files
data = [package_files.template("profiles"), installation.constraints()]
files = [orchestrator.__file__, jobs.__file__, *map(str, data)]
print(json.dumps({
    "files": files,
    "name": importlib.metadata.metadata("orchestrate-rl")["Name"],
    "needed": installation.requirements("train"),
    "train": installation.install_here("train"),
}))
"""


class Environment:
    """An environment without packages, with an empty folder to type commands in."""

    def __init__(self, tmp_path: Path) -> None:
        self.environment = tmp_path / "environment"
        self.folder = tmp_path / "empty"
        self.folder.mkdir()
        options = ["--without-pip", self.environment]
        subprocess.run([sys.executable, "-m", "venv", *options], check=True, capture_output=True)
        self.python = self.environment / "bin" / "python"
        (self.site,) = self.environment.glob("lib/python3*/site-packages")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Type it; only this environment's programs are found, and no path of the clone is inherited."""
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self.environment / 'bin'}{os.pathsep}{inherited['PATH']}"
        return subprocess.run(
            list(map(str, command)),
            cwd=self.folder,
            env={**inherited, "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
        )


class Installed(Environment):
    """An environment that holds the wheel.

    What the wheel needs is taken from the environment of this test; the clone is not on the path: records of
    editable installs are not read from a folder that a .pth file names.
    """

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.wheel = build_wheel(tmp_path)
        (self.site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-index"]
        subprocess.run([*pip, "--no-deps", self.wheel], check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_runs_and_not_the_clone(installed: Installed) -> None:
    found = json.loads(installed.run(installed.python, "-c", WHERE).stdout)
    assert [name for name in found["files"] if not Path(name).is_relative_to(installed.site)] == []
    assert [name for name in found["files"] if not Path(name).exists()] == []
    assert found["name"] == "orchestrate-rl"
    assert found["train"].endswith(f"/constraints.txt '{installed.wheel}[train]'")
    assert {"torch", "rich"} <= {one.partition(">")[0] for one in found["needed"]}


def test_both_packages_say_that_they_have_types(installed: Installed) -> None:
    assert (installed.site / "orchestrator" / "py.typed").exists()
    assert (installed.site / "jobs" / "py.typed").exists()


def test_commands_keep_their_names(installed: Installed) -> None:
    for command in ("orchestrate", "sync-results"):
        said = installed.run(installed.environment / "bin" / command, "--help")
        assert said.returncode == 0, said.stderr
        assert f"Usage: {command}" in said.stdout


UV = Path(sys.executable).with_name("uv")
SWEEP = {
    "check grid.yaml": "all good: 2 runs",
    "sweep --grid grid.yaml": "2/2 done",
    "collect wheel": "wrote results/wheel/results.parquet",
}
AFTERWARDS = {
    "report wheel": "index.html",
    "figures wheel": "curves.pdf",
    "top --help": "Usage: orchestrate top",
}
TYPED = """
from orchestrator.api import Launched, launch

sweep: Launched = launch("grid.yaml")
runs = sweep.collect().runs
"""


def type_all(environment: Environment, commands: dict[str, str]) -> None:
    """Type these commands of `orchestrate` about a sweep; each must print its text."""
    (environment.folder / "grid.yaml").write_text(GRID)
    (environment.folder / "program.py").write_text(PROGRAM)
    for command, told in commands.items():
        said = environment.run("orchestrate", *command.split())
        assert said.returncode == 0, said.stdout + said.stderr
        assert told in said.stdout


def test_a_sweep_from_the_wheel(installed: Installed) -> None:
    type_all(installed, SWEEP)
    (result, _) = (installed.folder / "results" / "wheel" / "runs").glob("*/result.json")
    assert json.loads(result.read_text())["versions"]["orchestrate"]
    ours = list((installed.folder / "results" / "wheel" / "code").glob("*/ours/orchestrator/templates/*"))
    assert ours, "the code that is kept with the sweep is not the wheel's"


@pytest.mark.nightly
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_a_sweep_with_the_oldest_and_the_newest_packages(
    installed: Installed, tmp_path: Path, resolution: str
) -> None:
    """Needs an index of packages: PyPI, or that of uv's own configuration."""
    environment = Environment(tmp_path)
    install = [UV, "pip", "install", "--quiet", "--system-certs", "--python", environment.python]
    for packages in (
        ["--resolution", resolution, "-r", ROOT / "pyproject.toml"],
        ["--no-deps", installed.wheel],
    ):
        said = subprocess.run([*install, *packages], capture_output=True, text=True, timeout=600)
        assert said.returncode == 0, f"uv could not install the {resolution} packages:\n{said.stderr}"
    type_all(environment, SWEEP | AFTERWARDS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("last_line", "told"),
    [
        ("print(len(runs.columns))", "Success"),
        ("sweep.colect()", 'error: "Launched" has no attribute "colect"'),
    ],
    ids=["right", "wrong"],
)
def test_a_program_on_the_installed_wheel_is_checked_by_its_types(
    installed: Installed, last_line: str, told: str
) -> None:
    (installed.folder / "typed.py").write_text(TYPED + last_line + "\n")
    mypy = [Path(sys.executable).with_name("mypy"), "--strict", "--python-executable", installed.python]
    said = installed.run(*mypy, "--config-file=", "typed.py")
    assert told in said.stdout, said.stdout + said.stderr


def test_a_project_begins_from_the_wheel(installed: Installed) -> None:
    said = installed.run("orchestrate", "init", "project")
    assert said.returncode == 0, said.stderr
    said = installed.run("orchestrate", "profiles")
    assert "jean-zay-a100" in said.stdout, said.stderr


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ("cpus_per_task: 4096", "needs 4096 cores, this machine has "),
        ("mem: 900T", "needs 900T of memory, this "),
    ],
)
def test_what_the_machine_has_not_is_skipped_with_the_reason(
    installed: Installed, resources: str, why: str
) -> None:
    (installed.folder / "large.yaml").write_text(
        f"name: large\ntrainer: command\nbase: {{command: [python, --version]}}\nresources: {{{resources}}}\n"
    )
    said = installed.run("orchestrate", "check", "large.yaml")
    assert said.returncode == 2, said.stderr
    assert said.stdout.startswith("1 run in 1 structure")
    assert f"1 skipped: {why}" in said.stdout
    assert said.stderr.startswith("error: local can train no run of this grid")


def test_no_summary_of_what_is_to_do_follows_problems(installed: Installed) -> None:
    (installed.folder / "wrong.yaml").write_text(
        "name: wrong\ntrainer: command\nbase: {command: [python, '{lr}']}\n"
    )
    said = installed.run("orchestrate", "check", "wrong.yaml")
    assert (said.returncode, said.stdout) == (2, "")
    assert "to do" not in said.stderr
    assert said.stderr.splitlines()[-1].endswith("Nothing of this grid would be submitted")

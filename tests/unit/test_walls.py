"""The walls of the code: who imports whom, what a light command loads, what a wheel holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import grimp
import pytest

from orchestrator.config.code import own_files
from tests.wheels import build_wheel

ROOT = Path(__file__).parents[2]
HEAVY = (
    "torch",
    "torchrl",
    "tensordict",
    "benchmarl",
    "vmas",
    "sky",
    "wandb",
    "polars",
    "matplotlib",
    "hydra",
    "textual",
    "boto3",
)
# What the worker side may know of the control plane.
SHARED = (
    "config.code.identity",
    "config.code.key_files",
    "config.code.worktree",
    "config.command_line",
    "config.file_kinds",
    "config.grid.hydra_sweeps",
    "config.grid.other_programs",
    "config.grid.resources",
    "config.program",
    "config.returns",
    "config.trainers",
    "core.environment",
    "core.errors",
    "core.hydra_text",
    "core.metric_files",
    "core.machine.hardware",
    "core.machine.installation",
    "core.machine.package_files",
    "core.machine.s3",
    "core.records",
    "core.secret_detection",
    "core.types",
    "planning.throughput.measure",
    "rundir",
)
# A backend is one folder, one entry in config/backends and one class in scheduler_job: nothing else names it.
NAMES_A_BACKEND = {"jobs/worker/scheduler_job.py", "orchestrator/config/backends.py"}
LONGEST_FILE = 450
# What a job starts, from the copy of the code that is kept with a sweep.
STARTED_BY_JOBS = (
    *("jobs.worker", "jobs.worker.nodes.agent", "jobs.check", "jobs.evaluate", "jobs.instance", "jobs.probe"),
    *("jobs.train", "jobs.wandb.upload", "orchestrator.control.continue_from_job"),
    # Another tree runs these over ssh.
    *(f"orchestrator.ui.cli.submit.{name}" for name in ("sweep", "cancel_retry", "delegated")),
    *(f"orchestrator.ui.cli.watch.{name}" for name in ("status", "logs")),
    # `orchestrate monitor` starts it there; Python loads its package with it.
    *("orchestrator.ui.monitor", "orchestrator.ui.monitor.probe"),
)


def our_files(*patterns: str) -> list[Path]:
    """Files below the two packages, without what Python leaves behind."""
    found = {
        path
        for package in ("orchestrator", "jobs")
        for pattern in patterns
        for path in files_below(ROOT / package, pattern)
    }
    return sorted(found)


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file() and "__pycache__" not in path.parts]


@pytest.mark.parametrize("module", ["orchestrator", "orchestrator.ui.cli"])
def test_the_control_plane_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_help_loads_what_it_draws_and_no_more() -> None:
    code = (
        "import sys\nfrom orchestrator.ui.cli import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(helped.stderr.split())
    assert "Commands" in helped.stdout
    ours = {name for name in loaded if name.startswith("orchestrator.")}
    assert {name for name in ours if not name.startswith("orchestrator.ui.cli")} == {
        "orchestrator.core",
        "orchestrator.core.environment",
        "orchestrator.core.errors",
        "orchestrator.core.formatting",
        "orchestrator.ui",
        "orchestrator.ui.terminal",
        "orchestrator.ui.terminal.output",
    }
    assert loaded.isdisjoint(("typer.rich_utils", "rich", "pygments", "orjson"))


def test_the_import_contracts_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_worker_side_knows_only_what_both_sides_share() -> None:
    graph = grimp.build_graph("orchestrator", "jobs", cache_dir=None)
    crossings = {
        (module, imported)
        for module in graph.modules
        if module.split(".")[0] == "jobs"
        for imported in graph.find_modules_directly_imported_by(module)
        if imported.split(".")[0] == "orchestrator"
    }
    assert crossings, "the graph is empty: this test sees nothing"
    shared = tuple(f"orchestrator.{name}." for name in SHARED)
    assert {
        one for one in crossings if one[1] != "orchestrator" and not f"{one[1]}.".startswith(shared)
    } == set()


def test_no_other_module_names_a_backend() -> None:
    own = ("orchestrator/backends/slurm/", "orchestrator/backends/skypilot/")
    files = {path.relative_to(ROOT).as_posix(): path for path in our_files("*.py")}
    named = {name for name, path in files.items() if not name.startswith(own) and names_a_backend(path)}
    assert named == NAMES_A_BACKEND


def names_a_backend(file: Path) -> bool:
    """Whether the code says Slurm or SkyPilot, in a name or a text; docstrings and comments may."""
    tree = ast.parse(file.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(one.value) for one in first if isinstance(one, ast.Expr)}
    texts = (
        value
        for node in ast.walk(tree)
        if id(node) not in docstrings
        for _, value in ast.iter_fields(node)
        if isinstance(value, str)
    )
    return any(re.search("slurm|skypilot", text, re.IGNORECASE) for text in texts)


def test_no_file_is_longer_than_one_idea() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in our_files("*.py")}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_a_wheel_holds_every_module_and_data_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as archive:
        held = set(archive.namelist())
    expected = {path.relative_to(ROOT).as_posix() for path in our_files("*") if path.name != "README.md"}
    expected |= {
        f"orchestrator/{path.relative_to(ROOT).as_posix()}" for path in files_below(ROOT / "templates")
    }
    expected.add("orchestrator/constraints.txt")
    for folder in ("jobs/conf", "orchestrator/templates/profiles"):
        assert any(name.startswith(folder) for name in expected)
    assert expected - held == set()


def test_jobs_need_nothing_that_their_copy_of_the_code_leaves_out() -> None:
    graph = grimp.build_graph("orchestrator", "jobs")
    needed = {module for start in STARTED_BY_JOBS for module in graph.find_upstream_modules(start, True)}
    left_out = tuple(name.removesuffix(".py").replace("/", ".") for name in own_files._NOT_IN_JOBS)
    assert not [module for module in needed if module.startswith(left_out)]

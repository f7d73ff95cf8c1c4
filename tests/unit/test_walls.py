"""The walls of the code: who imports whom, what a light command loads, what a wheel holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import grimp
import pytest

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
SHARED = ("buckets", "errors", "machine", "rundir", "trainers", "types")
LONGEST_FILE = 450


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


@pytest.mark.parametrize("module", ["orchestrator", "orchestrator.cli"])
def test_the_control_plane_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


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
    assert {pair for pair in crossings if pair[1].split(".")[1] not in SHARED} == set()


def test_no_file_is_longer_than_one_idea() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in our_files("*.py")}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_a_wheel_holds_every_module_and_data_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in ("orchestrator", "jobs", "templates"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=ignored)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    expected = {path.relative_to(ROOT).as_posix() for path in our_files("*")}
    expected |= {
        f"orchestrator/{path.relative_to(ROOT).as_posix()}" for path in files_below(ROOT / "templates")
    }
    for folder in ("jobs/conf", "orchestrator/templates/profiles"):
        assert any(name.startswith(folder) for name in expected)
    assert expected - held == set()

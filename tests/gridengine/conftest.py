"""One real Grid Engine cell for all tests that need one, and the example as an installed package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gridengine.cell import PROGRAMS, Cell
from tests.helpers import ROOT
from tests.slurm.daemons import ClusterError
from tests.slurm.lab import Lab

EXAMPLE = ROOT / "examples" / "grid-engine"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gridengine)


@pytest.fixture(scope="session")
def running_cell() -> Iterator[Cell]:
    try:
        cell = Cell.in_temporary_folder()
        cell.start()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    yield cell
    cell.stop()


@pytest.fixture
def cell(running_cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """The cell with an empty queue; this test's commands find it."""
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    for name, value in running_cell.env.items():
        monkeypatch.setenv(name, value)
    yield running_cell
    running_cell.clean()


@pytest.fixture
def lab(cell: Cell, tmp_path: Path) -> Iterator[Lab]:
    """A folder to submit from, with the example installed and its profile."""
    site = tmp_path / "site"
    about = site / "orchestrate_grid_engine-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: orchestrate-grid-engine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[orchestrate.backends]\ngridengine = grid_engine:BACKEND\n")
    shutil.copy(EXAMPLE / "grid_engine.py", site)
    lab = Lab(tmp_path / "lab", {"PYTHONPATH": f"{ROOT}:{site}"})
    shutil.copy(EXAMPLE / "profiles" / "sge.yaml", lab.folder / "profile.yaml")
    yield lab
    for process in lab.started:
        process.kill()
        process.communicate()

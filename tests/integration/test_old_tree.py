"""A results tree made before the packages moved, without format numbers: shown, collected, trained on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from orchestrator.ui.cli import app
from tests.helpers import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six runs of a program: four done, with the return 5 * lr + seed, and two failed, one of them twice."""
    with tarfile.open(ROOT / "tests" / "trees" / "before-the-move.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for entry in (tmp_path / "results" / "before" / "ledger").iterdir():
        entry.write_text(entry.read_text().replace("/home/user/project", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def orchestrate(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_a_tree_of_before_the_move_is_collected_and_its_finished_runs_are_stale(project: Path) -> None:
    (told,) = json.loads(orchestrate("status", "before", "--json"))
    runs = {(run["state"], run["attempt"]) for run in told["runs"]}
    assert runs == {("stale", 1), ("failed", 1), ("failed", 2)}
    assert "2 failed" in orchestrate("collect", "before")
    table = pl.read_parquet(project / "results" / "before" / "results.parquet")
    done = table.filter(pl.col("final_return").is_not_null())
    assert sorted(done["last_return"]) == [0.5, 1.0, 1.5, 2.0]
    assert sorted(done["final_return"]) == [0.45, 0.9, 1.45, 1.9]  # the mean of the last five
    orchestrate("report", "before")
    assert "lr=0.2" in (project / "results" / "before" / "report" / "index.html").read_text()
    assert "nothing to submit" in orchestrate("sweep", "--grid", "grid.yaml", "--dry-run")


def test_its_runs_are_trained_again_beside_what_they_left(project: Path) -> None:
    assert "1 run to do again" in orchestrate("retry", "before", "lr=0.1,seed=0", "--follow", code=1)
    (told,) = json.loads(orchestrate("status", "before", "--json"))
    (again,) = [run for run in told["runs"] if run["state"] == "done"]
    assert (again["attempt"], again["value"]) == (2, 0.5)
